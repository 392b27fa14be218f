//! Inputs into sorted rows: cut, parsed, gathered, on several threads.
//!
//! The calling thread reads and cuts. Parsers take pieces in any order. One
//! thread gathers their batches in the order of the input, and sends them to the
//! file if they are sorted already, or makes runs of them. One more writes a run
//! to disk while the next is gathered. Every queue is bounded: who is fast waits.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use rayon::ThreadPool;

use super::bad_rows::BadRowsFile;
use super::budget::Budget;
use super::columns::find_fields;
use super::cut::{CutError, Cutter, TextPiece};
use super::fill::Filler;
use super::input::{Input, InputFacts};
use super::origins::{Origins, Unit};
use super::parse::RowSpec;
use super::parse::delimited::{Delimited, Record, first_record};
use super::parse::json_lines::JsonLines;
use super::sort::batch::Batch;
use super::sort::held::LINES_MAX;
use super::sort::merge::Tally;
use super::sort::run::{REF_LEN_BYTES, Run};
use super::sort::spill::{SpillFile, SpilledRun};
use super::stream::{Stream, Taken};
use super::{BakeError, Format, Keys, Options, Progress};
use crate::format::key::KeyKind;

/// What a bake works with.
pub(super) struct Context<'o> {
    pub(super) options: &'o Options,
    pub(super) budget: &'o Budget,
    pub(super) pool: &'o ThreadPool,
}

impl Context<'_> {
    pub(super) fn check_cancelled(&self) -> Result<(), BakeError> {
        let cancelled = self.options.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if cancelled { Err(BakeError::Cancelled) } else { Ok(()) }
    }
}

/// All rows of the inputs.
pub(super) struct Gathered<'b> {
    /// What the keys are.
    pub(super) kind: KeyKind,
    /// Rows that came sorted and are in the file already. If there are others as well, these were the first.
    pub(super) stream: Option<Stream<'b>>,
    pub(super) spilled: Vec<SpilledRun>,
    pub(super) last: Option<Run>,
    pub(super) tally: Tally,
    pub(super) rows_read: u64,
    pub(super) bad_rows: u64,
    /// Runs that were put on disk.
    pub(super) runs: usize,
    pub(super) inputs: Vec<InputFacts>,
}

/// A piece on its way to a parser.
struct Work {
    number: u64,
    piece: TextPiece,
    input: Arc<InputSpec>,
    is_first: bool,
}

/// What parsers know of an input.
struct InputSpec {
    name: String,
    /// The origin of its line 0.
    origin: u64,
    parser: Parser,
}

/// How an input is parsed. Each thread has its own.
#[derive(Clone)]
enum Parser {
    Delimited(Delimited),
    JsonLines(Box<JsonLines>),
}

impl Parser {
    fn parse(&mut self, piece: &TextPiece, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        match self {
            Parser::Delimited(delimited) => delimited.parse(piece, filler),
            Parser::JsonLines(json_lines) => json_lines.parse(&piece.bytes, piece.first_line, filler),
        }
    }
}

/// A batch, or why there is none.
type Parsed = (u64, Result<Batch, BakeError>);

/// Memory that was used and can be used again.
#[derive(Default)]
struct Pool {
    texts: Mutex<Vec<Vec<u8>>>,
    batches: Mutex<Vec<Batch>>,
}

impl Pool {
    fn text(&self) -> Vec<u8> {
        self.texts.lock().expect("no panic").pop().unwrap_or_default()
    }

    fn batch(&self) -> Batch {
        self.batches.lock().expect("no panic").pop().unwrap_or_else(Batch::new)
    }
}

/// Reads all inputs.
pub(super) fn gather<'b>(
    inputs: Vec<Input<'_>>,
    context: &Context<'_>,
    origins: &mut Origins,
    stream: Option<Stream<'b>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Gathered<'b>, BakeError> {
    let budget = context.budget;
    let (work, works) = sync_channel(budget.threads);
    let (parsed, batches) = sync_channel(budget.threads);
    let (window, passes) = sync_channel(budget.pieces_under_way());
    let (works, pool, rows_read) = (Arc::new(Mutex::new(works)), Pool::default(), AtomicU64::new(0));
    let pool = &pool;
    std::thread::scope(|scope| {
        for _ in 0..budget.threads {
            let (works, parsed) = (works.clone(), parsed.clone());
            scope.spawn(move || parse(context, &works, &parsed, pool));
        }
        drop(works);
        let rows_read = &rows_read;
        let gatherer = Gatherer::new(context, pool, scope, stream, rows_read)?;
        let gatherer = scope.spawn(move || gatherer.run(batches, passes));
        let mut feed = Feed { context, pool, window, work, parsed, next: 0, rows_read, facts: Vec::new() };
        feed.all(inputs, origins, progress);
        let inputs = mem::take(&mut feed.facts);
        drop(feed);
        let gathered = gatherer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Gathered { inputs, ..gathered })
    })
}

/// Sends pieces to the parsers.
struct Feed<'p> {
    context: &'p Context<'p>,
    pool: &'p Pool,
    window: SyncSender<()>,
    work: SyncSender<Work>,
    parsed: SyncSender<Parsed>,
    next: u64,
    rows_read: &'p AtomicU64,
    facts: Vec<InputFacts>,
}

/// Nobody takes pieces any more: the bake has failed, and whoever gathers knows why.
struct Closed;

impl Feed<'_> {
    fn all(&mut self, inputs: Vec<Input<'_>>, origins: &mut Origins, progress: &mut dyn FnMut(Progress)) {
        let mut read_bytes = 0;
        let mut lines_before = 0;
        for input in inputs {
            match self.input(input, origins, &mut lines_before, &mut read_bytes, progress) {
                Ok(Ok(())) => {}
                // In its turn: what is wrong with rows in front of it is told first.
                Ok(Err(error)) => {
                    let _ = self.number().map(|number| self.parsed.send((number, Err(error))));
                    return;
                }
                Err(Closed) => return,
            }
        }
    }

    fn input(
        &mut self,
        input: Input<'_>,
        origins: &mut Origins,
        lines_before: &mut u64,
        read_bytes: &mut u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Result<(), BakeError>, Closed> {
        let options = self.context.options;
        let name = input.name().to_owned();
        let origin = origins.begin(&name, Unit::Line, *lines_before);
        let opened = match input.open() {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let budget = self.context.budget;
        let format = options.format.of(&name);
        let quoted = (format != Format::JsonLines).then_some(options.delimiter);
        let mut cutter = Cutter::new(opened, quoted, budget.piece_len_bytes(), budget.row_len_max_bytes());
        let mut spec: Option<Arc<InputSpec>> = None;
        loop {
            let mut piece = match cutter.next_piece(self.pool.text()) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(CutError::Io(error)) => return Ok(Err(BakeError::Input { input: name, error })),
                Err(CutError::Row { line, fault }) => return Ok(Err(BakeError::Row { input: name, line, fault })),
            };
            if let Err(error) = self.context.check_cancelled() {
                return Ok(Err(error));
            }
            *lines_before = piece.first_line + piece.bytes.len() as u64;
            let is_first = spec.is_none();
            let spec = match &spec {
                Some(spec) => spec.clone(),
                None => match parser(options, format, &name, &mut piece) {
                    Ok(Some(parser)) => spec.insert(Arc::new(InputSpec { name: name.clone(), origin, parser })).clone(),
                    Ok(None) => continue,
                    Err(error) => return Ok(Err(error)),
                },
            };
            let number = self.number()?;
            self.work.send(Work { number, piece, input: spec, is_first }).map_err(|_| Closed)?;
            let input_bytes = *read_bytes + cutter.input().read_bytes();
            progress(Progress::Read { input_bytes, rows: self.rows_read.load(Ordering::Relaxed) });
        }
        let opened = cutter.into_input();
        *read_bytes += opened.read_bytes();
        Ok(opened.finish().map(|facts| self.facts.push(facts)))
    }

    /// The number of the next piece, when there is room for it.
    fn number(&mut self) -> Result<u64, Closed> {
        self.window.send(()).map_err(|_| Closed)?;
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// Finds out how an input is parsed by its first piece, and takes the header off. `None` if there is no record yet.
fn parser(options: &Options, format: Format, input: &str, piece: &mut TextPiece) -> Result<Option<Parser>, BakeError> {
    if format == Format::JsonLines {
        let json_lines = JsonLines::new(&RowSpec::of(options));
        let json_lines = json_lines.map_err(|fault| BakeError::Columns { input: input.to_owned(), fault })?;
        return Ok(Some(Parser::JsonLines(Box::new(json_lines))));
    }
    let refuse = |line, fault| BakeError::Row { input: input.to_owned(), line, fault };
    let find = |record: Record<'_>| Ok((find_fields(options, input, &record)?, record.end));
    let Some((fields, end)) = first_record(piece, options.delimiter, find, refuse)? else { return Ok(None) };
    if options.header {
        piece.first_line += memchr::memchr_iter(b'\n', &piece.bytes[..end]).count() as u64;
        piece.bytes.drain(..end);
    }
    Ok(Some(Parser::Delimited(Delimited::new(options.delimiter, fields))))
}

/// Parses pieces as long as there are any.
fn parse(context: &Context<'_>, works: &Mutex<Receiver<Work>>, parsed: &SyncSender<Parsed>, pool: &Pool) {
    let mut own: Option<(u64, Parser)> = None;
    loop {
        // One at a time waits for work, the others for the lock.
        let Ok(work) = works.lock().expect("no panic").recv() else { return };
        let Work { number, piece, input, is_first } = work;
        let mut batch = pool.batch();
        let origin = input.origin + piece.first_line;
        batch.begin(context.options.keys.kind(), piece.bytes.len(), piece.first_line, origin);
        let mut filler = Filler::new(context.options, &input.name, &mut batch, is_first);
        if own.as_ref().is_none_or(|(origin, _)| *origin != input.origin) {
            own = Some((input.origin, input.parser.clone()));
        }
        let parser = own.as_mut().map(|(_, parser)| parser).expect("of this input");
        let result = parser.parse(&piece, &mut filler);
        pool.texts.lock().expect("no panic").push(piece.bytes);
        if parsed.send((number, result.map(|()| batch))).is_err() {
            return;
        }
    }
}

/// Makes runs of batches.
struct Gatherer<'s, 'e, 'c, 'b> {
    context: &'c Context<'c>,
    pool: &'c Pool,
    scope: &'s Scope<'s, 'e>,
    stream: Option<Stream<'b>>,
    /// Whether rows still go to the stream.
    is_streaming: bool,
    batches: Vec<Batch>,
    held_bytes: u64,
    is_decimal: bool,
    spill: Option<SpillFile>,
    spilling: Option<ScopedJoinHandle<'s, Result<Spilled, BakeError>>>,
    spilled: Vec<SpilledRun>,
    tally: Tally,
    bad_rows: BadRowsFile,
    rows_read: &'c AtomicU64,
}

/// A run that was written.
struct Spilled {
    file: SpillFile,
    run: SpilledRun,
    tally: Tally,
}

impl<'s, 'e, 'c: 's, 'b> Gatherer<'s, 'e, 'c, 'b> {
    fn new(
        context: &'c Context<'c>,
        pool: &'c Pool,
        scope: &'s Scope<'s, 'e>,
        stream: Option<Stream<'b>>,
        rows_read: &'c AtomicU64,
    ) -> Result<Self, BakeError> {
        Ok(Gatherer {
            context,
            pool,
            scope,
            is_streaming: stream.is_some(),
            stream,
            batches: Vec::new(),
            held_bytes: 0,
            is_decimal: true,
            spill: None,
            spilling: None,
            spilled: Vec::new(),
            tally: Tally::default(),
            bad_rows: BadRowsFile::create(&context.options.bad_rows)?,
            rows_read,
        })
    }

    /// Takes batches in the order of the input, whatever order they come in.
    fn run(mut self, batches: Receiver<Parsed>, passes: Receiver<()>) -> Result<Gathered<'b>, BakeError> {
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (number, batch) in batches {
            early.insert(number, batch);
            while let Some(batch) = early.remove(&next) {
                next += 1;
                // Every piece has taken its pass before it was sent.
                let _ = passes.recv();
                self.take(batch?)?;
            }
        }
        self.finish()
    }

    fn take(&mut self, mut batch: Batch) -> Result<(), BakeError> {
        self.context.check_cancelled()?;
        self.bad_rows.take(mem::take(&mut batch.bad))?;
        self.rows_read.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.is_decimal &= batch.is_decimal;
        if self.is_streaming
            && let Some(stream) = &mut self.stream
        {
            match stream.take(batch, &mut self.tally)? {
                Taken::Yes(done) => {
                    self.pool.batches.lock().expect("no panic").extend(done);
                    return Ok(());
                }
                Taken::No(back) => {
                    self.is_streaming = false;
                    stream.flush()?;
                    batch = back;
                }
            }
        }
        self.hold(batch)
    }

    /// Adds a batch to the run that is being gathered.
    fn hold(&mut self, batch: Batch) -> Result<(), BakeError> {
        if batch.len() == 0 {
            self.pool.batches.lock().expect("no panic").push(batch);
            return Ok(());
        }
        let len_bytes = (batch.taken_bytes() + batch.len() * REF_LEN_BYTES) as u64;
        let first_origin = self.batches.first().map_or(0, Batch::origin);
        let is_full = self.held_bytes + len_bytes > self.context.budget.run_len_bytes()
            || batch.last_origin() - first_origin >= LINES_MAX;
        if is_full && !self.batches.is_empty() {
            self.spill()?;
        }
        self.held_bytes += len_bytes;
        self.batches.push(batch);
        Ok(())
    }

    fn kind(&self) -> KeyKind {
        match self.context.options.keys {
            Keys::Auto if self.is_decimal => KeyKind::U64,
            keys => keys.kind(),
        }
    }

    /// Sends what was gathered to disk. Waits for the run before.
    fn spill(&mut self) -> Result<(), BakeError> {
        self.join_spilling()?;
        let folder = &self.context.budget.temp_dir;
        let temporary = |error| BakeError::temporary(folder, error);
        let mut file = match self.spill.take() {
            Some(file) => file,
            None => SpillFile::new(folder).map_err(temporary)?,
        };
        let (batches, kind) = (mem::take(&mut self.batches), self.kind());
        self.held_bytes = 0;
        let (context, pool) = (self.context, self.pool);
        self.spilling = Some(self.scope.spawn(move || {
            let mut tally = Tally::default();
            let mut sorted = Run::sorted(batches, kind, context.pool);
            sorted.settle(context.options.duplicates, &mut tally);
            let mut writer = file.begin(kind, sorted.first_origin());
            for index in 0..sorted.len() {
                let (row, origin) = sorted.row(index);
                writer.push(&row, origin).map_err(temporary)?;
            }
            let run = writer.finish().map_err(temporary)?;
            pool.batches.lock().expect("no panic").extend(sorted.into_batches());
            Ok(Spilled { file, run, tally })
        }));
        Ok(())
    }

    fn join_spilling(&mut self) -> Result<(), BakeError> {
        let Some(spilling) = self.spilling.take() else { return Ok(()) };
        let Spilled { file, run, tally } = spilling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.spill = Some(file);
        self.spilled.push(run);
        self.tally.add(tally);
        Ok(())
    }

    fn finish(mut self) -> Result<Gathered<'b>, BakeError> {
        self.join_spilling()?;
        let kind = self.kind();
        if self.is_streaming
            && let Some(stream) = &mut self.stream
        {
            stream.flush()?;
        }
        let last = (!self.batches.is_empty()).then(|| {
            let mut last = Run::sorted(mem::take(&mut self.batches), kind, self.context.pool);
            last.settle(self.context.options.duplicates, &mut self.tally);
            last
        });
        Ok(Gathered {
            kind,
            stream: self.stream,
            runs: self.spilled.len(),
            inputs: Vec::new(),
            spilled: self.spilled,
            last,
            rows_read: self.rows_read.load(Ordering::Relaxed),
            bad_rows: self.bad_rows.finish()?,
            tally: self.tally,
        })
    }
}
