//! Inputs into sorted rows: cut, parsed, gathered, on several threads.
//!
//! The calling thread is the `feed`: it reads and cuts. Parsers take pieces in any order. One
//! thread gathers their batches in the order of the input, and sends them to the
//! file if they are sorted already, or makes runs of them. One more writes a run
//! to disk while the next is gathered. Every queue is bounded: who is fast waits.

use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use super::bad_rows::BadRowsFile;
use super::context::Context;
use super::feed::{Feed, Parsed, Parser, Pool, Work};
use super::fill::Filler;
use super::input::{Input, InputFacts};
use super::origins::Origins;
use super::sort::batch::Batch;
use super::sort::held::LINES_MAX;
use super::sort::merge::Tally;
use super::sort::run::{REF_LEN_BYTES, Run};
use super::sort::spill::{SpillFile, SpilledRun};
use super::stream::{Stream, Taken};
use super::{BakeError, Keys, Progress};
use crate::format::key::KeyKind;

/// All rows of the inputs.
pub(super) struct Gathered<'b> {
    /// What the keys are.
    pub(super) kind: KeyKind,
    /// Of the first row whose key is not a number as it is usually written; not looked for among numbers.
    pub(super) first_text_origin: Option<u64>,
    /// Rows that came sorted and are in the file already. If there are others as well, these were the first.
    pub(super) stream: Option<Stream<'b>>,
    pub(super) spilled: Vec<SpilledRun>,
    pub(super) last: Option<Run>,
    pub(super) tally: Tally,
    pub(super) rows_read: u64,
    pub(super) bad_rows: u64,
    /// Runs that were put on disk.
    pub(super) runs: usize,
    /// How many times these were merged with each other.
    pub(super) merge_passes: usize,
    /// Rows of the stream.
    pub(super) rows_streamed: u64,
    pub(super) inputs: Vec<InputFacts>,
}

impl Gathered<'_> {
    /// No rows, whose keys are of some kind.
    pub(super) fn nothing(kind: KeyKind) -> Self {
        Gathered {
            kind,
            stream: None,
            spilled: Vec::new(),
            last: None,
            tally: Tally::default(),
            rows_read: 0,
            bad_rows: 0,
            runs: 0,
            merge_passes: 0,
            rows_streamed: 0,
            first_text_origin: None,
            inputs: Vec::new(),
        }
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
        let inputs = Feed::new(context, pool, window, work, parsed, rows_read).all(inputs, origins, progress);
        let gathered = gatherer.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(Gathered { inputs, ..gathered })
    })
}

/// Parses pieces as long as there are any.
fn parse(context: &Context<'_>, works: &Mutex<Receiver<Work>>, parsed: &SyncSender<Parsed>, pool: &Pool) {
    let mut own: Option<(u64, Parser)> = None;
    loop {
        // One at a time waits for work, the others for the lock.
        let Ok(work) = works.lock().expect("no panic").recv() else { return };
        let Work { ticket, piece, input, may_be_header } = work;
        let mut batch = pool.batch();
        let first_line = piece.first_line();
        batch.begin(context.options.keys.kind(), piece.len_bytes(), first_line, input.origin + first_line);
        let mut filler = Filler::new(context.options, &input.name, &mut batch, may_be_header);
        if own.as_ref().is_none_or(|(origin, _)| *origin != input.origin) {
            own = Some((input.origin, input.parser.clone()));
        }
        let parser = own.as_mut().map(|(_, parser)| parser).expect("of this input");
        let result = catch_unwind(AssertUnwindSafe(|| parser.parse(&piece, &mut filler)));
        if let Some(text) = piece.into_text() {
            pool.texts.lock().expect("no panic").push(text);
        }
        if parsed.send((ticket, result.map(|parsed| parsed.map(|()| batch)))).is_err() {
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
    first_text_origin: Option<u64>,
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
            first_text_origin: None,
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
        for (ticket, batch) in batches {
            early.insert(ticket.number, (ticket.passes, batch));
            while let Some((room, batch)) = early.remove(&next) {
                next += 1;
                // Every piece has taken its passes before it was sent.
                passes.iter().take(room).for_each(|()| ());
                self.take(batch.unwrap_or_else(|panic| resume_unwind(panic))?)?;
            }
        }
        self.finish()
    }

    fn take(&mut self, mut batch: Batch) -> Result<(), BakeError> {
        self.context.check_cancelled()?;
        self.bad_rows.take(mem::take(&mut batch.bad))?;
        self.rows_read.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.first_text_origin = self.first_text_origin.or(batch.first_text_origin());
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
            Keys::Auto if self.first_text_origin.is_none() => KeyKind::U64,
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
        let Spilled { file, run, tally } = spilling.join().unwrap_or_else(|panic| resume_unwind(panic))?;
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
            first_text_origin: self.first_text_origin,
            stream: self.stream,
            runs: self.spilled.len(),
            spilled: self.spilled,
            last,
            rows_read: self.rows_read.load(Ordering::Relaxed),
            bad_rows: self.bad_rows.finish()?,
            tally: self.tally,
            ..Gathered::nothing(kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::Options;
    use crate::bake::budget::Budget;
    use crate::bake::cut::TextPiece;
    use crate::bake::feed::{InputSpec, Piece, Ticket};
    use crate::bake::parse::delimited::{Delimited, Fields, ValueFields};

    #[test]
    fn a_panic_of_a_parser_stands_for_its_piece_so_that_nobody_waits_for_it() {
        let budget = Budget { memory_bytes: 1 << 20, threads: 1, temp_dir: std::env::temp_dir() };
        let options = Options::default();
        let context = Context { options: &options, budget: &budget, pool: &budget.thread_pool().unwrap() };
        let ((work, works), (parsed, batches)) = (sync_channel(2), sync_channel(2));
        for (number, key) in [(0, 9), (1, 0)] {
            // A field that no row of two has.
            let fields = Fields { key, value: ValueFields::One(1), delete: None, count: 2, chosen: false };
            let parser = Parser::Delimited(Delimited::new(b',', fields));
            let input = Arc::new(InputSpec { name: "input".to_owned(), origin: number, parser });
            let piece = Piece::Text(TextPiece { bytes: b"1,one\n".to_vec(), first_line: 1, has_quotes: false });
            let ticket = Ticket { number, passes: 1 };
            work.send(Work { ticket, piece, input, may_be_header: false }).unwrap();
        }
        drop(work);
        parse(&context, &Mutex::new(works), &parsed, &Pool::default());
        drop(parsed);
        let ends: Vec<_> = batches.iter().map(|(ticket, batch)| (ticket.number, batch.is_err())).collect();
        assert_eq!(ends, [(0, true), (1, false)]);
    }
}
