//! Turns inputs into sorted rows, on several threads.
//!
//! The calling thread runs the `feed`, which reads inputs and cuts them into pieces. Parser threads parse pieces in any
//! order. The gatherer takes the parsed rows of the pieces in the order of the input. As long as the rows arrive in key
//! order, the gatherer writes them to the new file. It collects all later rows into runs. Another thread sorts and
//! spills a run while the next run is collected. Every queue is bounded, so fast stages block on slow ones.

use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use super::bad_rows::BadRowsFile;
use super::budget::{Context, spawn};
use super::error::BakeError;
use super::feed::{Feed, Origins, Parsed, Recycled, Work, lock};
use super::input::{Input, InputFacts};
use super::keys::Keys;
use super::parse::Piece;
use super::report::Progress;
use super::row::Filler;
use super::sort::parsed_piece::ParsedPiece;
use super::sort::run::{REF_LEN_BYTES, SortedRun};
use super::sort::spill::{SpillFile, SpilledRun};
use super::sort::{LINES_MAX, Tally};
use super::stream::{Offered, SortedStream};
use super::warning::Warning;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::{KeyType, PartType};

/// The result of [`gather`]: all rows of the inputs. The rows are in a [`SortedStream`], in spilled runs, and in a last
/// run in memory.
pub(super) struct Gathered<'b> {
    /// The kind of the keys.
    pub(super) kind: KeyKind,
    /// The origin (see [`Origins`]) of the first row whose key is text. A key is text unless it is a 64-bit decimal
    /// without leading zeros. The origin is tracked only if keys are held as bytes.
    pub(super) first_text_origin: Option<u64>,
    /// Writes the rows to the new file for as long as they arrive in key order. `None` if the options rule this out.
    pub(super) stream: Option<SortedStream<'b>>,
    pub(super) spilled: Vec<SpilledRun>,
    pub(super) last: Option<SortedRun>,
    pub(super) tally: Tally,
    pub(super) rows_read: u64,
    pub(super) bad_rows: BadRowsFile,
    pub(super) rows_in_quotes: RowsInQuotes,
    pub(super) key_forms: KeyForms,
    /// The number of runs that were spilled.
    pub(super) runs: usize,
    /// The number of merge passes before the final merge. A merge pass merges all spilled runs into fewer runs.
    pub(super) merge_passes: usize,
    /// The number of rows that `stream` wrote. 0 until `stream` is finished.
    pub(super) rows_streamed: u64,
    pub(super) inputs: Vec<InputFacts>,
}

/// The rows with a quoted field whose lines look like rows.
#[derive(Clone, Copy, Default)]
pub(super) struct RowsInQuotes {
    pub(super) rows: u64,
    /// The origin (see [`Origins`]) of the first of these rows.
    pub(super) first_origin: Option<u64>,
}

/// What keys of bytes look like, as far as some keys of each piece show.
#[derive(Clone, Copy, Default)]
pub(super) enum KeyForms {
    #[default]
    Unknown,
    All(PartType),
    /// Several forms, or none that a key type has.
    Other,
}

impl KeyForms {
    /// The maximum number of keys of a piece that are looked at.
    const SAMPLE: usize = 16;

    fn add(&mut self, piece: &ParsedPiece) {
        let step = piece.len().div_ceil(KeyForms::SAMPLE).max(1);
        for position in piece.positions().iter().step_by(step) {
            let form = match (*self, piece.key_at(*position)) {
                (KeyForms::Other, _) | (_, Key::U64(_)) => None,
                (KeyForms::All(form), Key::Bytes(key)) => Some(form).filter(|form| has_form(*form, key)),
                (KeyForms::Unknown, Key::Bytes(key)) => {
                    [PartType::Ip, PartType::Uuid].into_iter().find(|form| has_form(*form, key))
                }
            };
            *self = form.map_or(KeyForms::Other, KeyForms::All);
            if form.is_none() {
                return;
            }
        }
    }

    pub(super) fn warning(self) -> Option<Warning> {
        match self {
            KeyForms::All(PartType::Ip) => Some(Warning::KeysAreAddresses),
            KeyForms::All(PartType::Uuid) => Some(Warning::KeysAreUuids),
            _ => None,
        }
    }
}

/// Returns whether a key has the usual form of a type. A UUID without hyphens looks like the digits of any hash.
fn has_form(form: PartType, key: &[u8]) -> bool {
    (form != PartType::Uuid || key.contains(&b'-')) && KeyType::of(form).parse(key).is_ok()
}

impl Gathered<'_> {
    /// Returns a result without rows, for a table whose keys are of the kind `kind`.
    pub(super) fn empty(kind: KeyKind) -> Self {
        Gathered {
            kind,
            stream: None,
            spilled: Vec::new(),
            last: None,
            tally: Tally::default(),
            rows_read: 0,
            bad_rows: BadRowsFile::default(),
            rows_in_quotes: RowsInQuotes::default(),
            key_forms: KeyForms::default(),
            runs: 0,
            merge_passes: 0,
            rows_streamed: 0,
            first_text_origin: None,
            inputs: Vec::new(),
        }
    }
}

/// Reads, parses, and sorts the rows of all inputs. If `stream` is not `None`, the rows are passed to the stream as
/// long as they arrive sorted.
pub(super) fn gather<'b>(
    inputs: Vec<Input<'_>>,
    context: &Context<'_>,
    origins: &mut Origins,
    stream: Option<SortedStream<'b>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Gathered<'b>, BakeError> {
    let budget = context.budget;
    let (work, works) = sync_channel(budget.threads);
    let (parsed, pieces) = sync_channel(budget.threads);
    let (window, slots) = sync_channel(budget.pieces_in_flight());
    let (works, recycled, rows_read) = (Arc::new(Mutex::new(works)), Recycled::default(), AtomicU64::new(0));
    let recycled = &recycled;
    std::thread::scope(|scope| {
        for _ in 0..budget.threads {
            let (works, parsed) = (works.clone(), parsed.clone());
            spawn(scope, move || parse(context, &works, &parsed, recycled))?;
        }
        // Only the parsers hold the receiver now, so the feed does not wait for them if all have ended.
        drop(works);
        let rows_read = &rows_read;
        let gatherer = Gatherer::new(context, recycled, scope, stream, rows_read)?;
        let gatherer = spawn(scope, move || gatherer.run(pieces, slots))?;
        let inputs = Feed::new(context, recycled, window, work, parsed, rows_read).run(inputs, origins, progress);
        let gathered = gatherer.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(Gathered { inputs, ..gathered })
    })
}

fn parse(context: &Context<'_>, works: &Mutex<Receiver<Work>>, parsed: &SyncSender<Parsed>, recycled: &Recycled) {
    loop {
        // Only one parser waits for a piece at a time. The other idle parsers wait for the lock.
        let Ok(work) = lock(works).recv() else { return };
        let Work { ticket, piece, input_name, input_origin } = work;
        let Piece { first_line, len_bytes, first_row, mut rows, .. } = piece;
        let mut piece = recycled.parsed_piece();
        piece.begin(context.options.sorted_keys().kind(), len_bytes, first_line, input_origin + first_line);
        let mut filler = Filler::new(context.options, &input_name, &mut piece, first_row);
        let result = catch_unwind(AssertUnwindSafe(|| rows.parse(&mut filler)));
        if let Some(buffer) = rows.into_buffer() {
            recycled.add_buffer(buffer);
        }
        if parsed.send((ticket, result.map(|parsed| parsed.map(|()| piece)))).is_err() {
            return;
        }
    }
}

/// Collects parsed rows into runs, and spills the runs that do not fit into memory.
struct Gatherer<'s, 'e, 'c, 'b> {
    context: &'c Context<'c>,
    recycled: &'c Recycled,
    scope: &'s Scope<'s, 'e>,
    /// The rows gathered so far, without the rows of `pieces`. The field `kind` gets its final value only after the
    /// last piece.
    gathered: Gathered<'b>,
    /// Whether the next rows are offered to the [`SortedStream`]: true if there is a stream and all earlier rows
    /// arrived sorted.
    is_streaming: bool,
    /// The rows of the current run. Each element has the rows of one piece.
    pieces: Vec<ParsedPiece>,
    held_bytes: u64,
    spill: Option<SpillFile>,
    spilling: Option<ScopedJoinHandle<'s, Result<Spilled, BakeError>>>,
    rows_read: &'c AtomicU64,
}

/// The result of spilling a run.
struct Spilled {
    file: SpillFile,
    run: SpilledRun,
    tally: Tally,
}

impl<'s, 'e, 'c: 's, 'b> Gatherer<'s, 'e, 'c, 'b> {
    fn new(
        context: &'c Context<'c>,
        recycled: &'c Recycled,
        scope: &'s Scope<'s, 'e>,
        stream: Option<SortedStream<'b>>,
        rows_read: &'c AtomicU64,
    ) -> Result<Self, BakeError> {
        Ok(Gatherer {
            context,
            recycled,
            scope,
            is_streaming: stream.is_some(),
            gathered: Gathered {
                stream,
                bad_rows: BadRowsFile::create(&context.options.bad_rows)?,
                ..Gathered::empty(context.options.sorted_keys().kind())
            },
            pieces: Vec::new(),
            held_bytes: 0,
            spill: None,
            spilling: None,
            rows_read,
        })
    }

    /// Processes parsed pieces in the order of the input, although they may arrive in another order.
    fn run(mut self, pieces: Receiver<Parsed>, slots: Receiver<()>) -> Result<Gathered<'b>, BakeError> {
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (ticket, piece) in pieces {
            early.insert(ticket.number, (ticket.slots, piece));
            while let Some((taken_slots, piece)) = early.remove(&next) {
                next += 1;
                // Frees the entries of the window that the piece occupies. The feed filled these entries before it sent
                // the piece, so this call does not block.
                slots.iter().take(taken_slots).for_each(|()| ());
                self.take(piece.unwrap_or_else(|panic| resume_unwind(panic))?)?;
            }
        }
        self.finish()
    }

    fn take(&mut self, mut piece: ParsedPiece) -> Result<(), BakeError> {
        self.context.check_canceled()?;
        self.gathered.bad_rows.take(mem::take(&mut piece.bad))?;
        self.rows_read.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let Gathered { first_text_origin, stream, tally, rows_in_quotes, key_forms, .. } = &mut self.gathered;
        key_forms.add(&piece);
        rows_in_quotes.rows += piece.rows_in_quotes;
        rows_in_quotes.first_origin = rows_in_quotes.first_origin.or(piece.first_origin_in_quotes);
        *first_text_origin = first_text_origin.or(piece.first_text_origin());
        // Sorted input is written as it arrives. If a later piece is out of order, what is in the file becomes a sorted
        // run, so no work is lost.
        if self.is_streaming
            && let Some(stream) = stream
        {
            match stream.offer(piece, tally)? {
                Offered::Accepted(done) => {
                    self.recycled.add_parsed(done);
                    return Ok(());
                }
                Offered::Rejected(back) => {
                    self.is_streaming = false;
                    stream.flush()?;
                    piece = back;
                }
            }
        }
        self.hold(piece)
    }

    /// Adds the rows of a piece to the current run. If the run is full, spills it first.
    fn hold(&mut self, piece: ParsedPiece) -> Result<(), BakeError> {
        if piece.len() == 0 {
            self.recycled.add_parsed([piece]);
            return Ok(());
        }
        let len_bytes = (piece.taken_bytes() + piece.len() * REF_LEN_BYTES) as u64;
        let first_origin = self.pieces.first().map_or(0, ParsedPiece::origin);
        // A row stores its line in 31 bits, relative to the first line of its run.
        let is_full = self.held_bytes + len_bytes > self.context.budget.run_len_bytes()
            || piece.last_origin() - first_origin >= LINES_MAX;
        if is_full && !self.pieces.is_empty() {
            self.spill()?;
        }
        self.held_bytes += len_bytes;
        self.pieces.push(piece);
        Ok(())
    }

    fn kind(&self) -> KeyKind {
        match self.context.options.sorted_keys() {
            // Runs of numbers stay sorted if a text key comes later: they are then merged once per number of digits.
            Keys::Auto if self.gathered.first_text_origin.is_none() => KeyKind::U64,
            keys => keys.kind(),
        }
    }

    /// Waits until the previous run has been spilled. Then starts a thread that sorts and spills the current run.
    fn spill(&mut self) -> Result<(), BakeError> {
        self.join_spilling()?;
        let folder = &self.context.budget.temp_dir;
        let temporary = |error| BakeError::temporary(folder, error);
        let mut file = match self.spill.take() {
            Some(file) => file,
            None => SpillFile::new(folder).map_err(temporary)?,
        };
        let (pieces, kind) = (mem::take(&mut self.pieces), self.kind());
        self.held_bytes = 0;
        let (context, recycled) = (self.context, self.recycled);
        self.spilling = Some(spawn(self.scope, move || {
            let mut tally = Tally::default();
            let mut sorted = SortedRun::sorted(pieces, kind, context.pool);
            sorted.drop_duplicates(context.options.duplicates, &mut tally);
            let mut writer = file.begin(kind, sorted.first_origin());
            for index in 0..sorted.len() {
                let (row, origin) = sorted.row(index);
                writer.push(&row, origin).map_err(temporary)?;
            }
            let run = writer.finish().map_err(temporary)?;
            recycled.add_parsed(sorted.into_pieces());
            Ok(Spilled { file, run, tally })
        })?);
        Ok(())
    }

    fn join_spilling(&mut self) -> Result<(), BakeError> {
        let Some(spilling) = self.spilling.take() else { return Ok(()) };
        let Spilled { file, run, tally } = spilling.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        self.spill = Some(file);
        self.gathered.spilled.push(run);
        self.gathered.tally.add(tally);
        Ok(())
    }

    fn finish(mut self) -> Result<Gathered<'b>, BakeError> {
        self.join_spilling()?;
        let kind = self.kind();
        let mut gathered = self.gathered;
        if self.is_streaming
            && let Some(stream) = &mut gathered.stream
        {
            stream.flush()?;
        }
        if !self.pieces.is_empty() {
            let mut last = SortedRun::sorted(self.pieces, kind, self.context.pool);
            last.drop_duplicates(self.context.options.duplicates, &mut gathered.tally);
            gathered.last = Some(last);
        }
        let (runs, rows_read) = (gathered.spilled.len(), self.rows_read.load(Ordering::Relaxed));
        Ok(Gathered { kind, runs, rows_read, ..gathered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::budget::Budget;
    use crate::bake::error::RowPlace;
    use crate::bake::feed::Ticket;
    use crate::bake::options::Options;
    use crate::bake::parse::ParsePiece;

    struct TestPiece {
        panics: bool,
    }

    impl ParsePiece for TestPiece {
        fn parse(&mut self, _: &mut Filler<'_>) -> Result<(), BakeError> {
            assert!(!self.panics, "a panic of a parser");
            Ok(())
        }

        fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
            None
        }
    }

    #[test]
    fn a_parser_that_panics_reports_its_piece() {
        let budget = Budget::test(1 << 20, 1);
        let options = Options::default();
        let context = Context { options: &options, typed: None, budget: &budget, pool: &budget.thread_pool().unwrap() };
        let ((work, works), (parsed, pieces)) = (sync_channel(2), sync_channel(2));
        for (number, panics) in [(0, true), (1, false)] {
            let rows = Box::new(TestPiece { panics });
            let piece = Piece {
                first_line: 1,
                last_line_max: 1,
                len_bytes: 1,
                first_row: RowPlace::default(),
                warnings: Vec::new(),
                rows,
            };
            let ticket = Ticket { number, slots: 1 };
            work.send(Work { ticket, piece, input_name: "input".into(), input_origin: number }).unwrap();
        }
        drop(work);
        parse(&context, &Mutex::new(works), &parsed, &Recycled::default());
        drop(parsed);
        let ends: Vec<_> = pieces.iter().map(|(ticket, piece)| (ticket.number, piece.is_err())).collect();
        assert_eq!(ends, [(0, true), (1, false)]);
    }
}
