//! Sends the pieces of all inputs to the parsers.
//!
//! In: inputs. Out: numbered pieces, and the origin of each row: one number that identifies its input and line. If too
//! many pieces are in flight, the feed waits.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::budget::Context;
use super::error::BakeError;
use super::input::{Input, InputFacts};
use super::parse::{self, Piece, RowUnit};
use super::report::Progress;
use super::sort::parsed_piece::ParsedPiece;
use super::typed::TypedPlan;
use super::warning::Warning;

/// A piece of an input, to be parsed.
pub(super) struct Work {
    pub(super) ticket: Ticket,
    pub(super) piece: Piece,
    pub(super) input_name: Arc<str>,
    /// The origin (see [`Origins`]) of line 0 of the input. The origin of a row is this number plus the row's line
    /// number.
    pub(super) input_origin: u64,
}

/// A piece in flight: the piece's number, counted over all inputs in order, and the number of entries that the piece
/// occupies in [`Feed::window`], the channel that limits the pieces in flight.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) slots: usize,
}

/// The result of parsing a piece: the piece's ticket, and either its rows, an error, or a panic. A parser that panics
/// sends a result too, because the receiver waits for every piece.
pub(super) type Parsed = (Ticket, thread::Result<Result<ParsedPiece, BakeError>>);

/// Buffers of earlier pieces, for text and for parsed rows. Later pieces reuse their memory.
#[derive(Default)]
pub(super) struct Recycled {
    buffers: Mutex<Vec<Vec<u8>>>,
    pieces: Mutex<Vec<ParsedPiece>>,
}

impl Recycled {
    pub(super) fn buffer(&self) -> Vec<u8> {
        lock(&self.buffers).pop().unwrap_or_default()
    }

    pub(super) fn add_buffer(&self, buffer: Vec<u8>) {
        lock(&self.buffers).push(buffer);
    }

    pub(super) fn parsed_piece(&self) -> ParsedPiece {
        lock(&self.pieces).pop().unwrap_or_else(ParsedPiece::new)
    }

    pub(super) fn add_parsed(&self, pieces: impl IntoIterator<Item = ParsedPiece>) {
        lock(&self.pieces).extend(pieces);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds the lock")
}

/// Reads all inputs and sends their pieces to the parsers.
pub(super) struct Feed<'p> {
    context: &'p Context<'p>,
    recycled: &'p Recycled,
    /// A bounded channel that limits the number of pieces in flight. Each piece in flight occupies one or more entries
    /// of the channel.
    window: SyncSender<()>,
    work: SyncSender<Work>,
    parsed: SyncSender<Parsed>,
    next_number: u64,
    rows_read: &'p AtomicU64,
    /// The number of bytes read from earlier inputs, counted before decompression.
    read_bytes: u64,
    /// An upper bound on the line number of the last line that has been read from the latest input.
    last_line_max: u64,
    facts: Vec<InputFacts>,
    /// The kinds of warnings that are reported once, and have been reported.
    reported: HashSet<Discriminant<Warning>>,
}

/// The reason why the feed stops before the end of an input.
enum Stop {
    /// The input cannot be read or cut into pieces, or the bake was canceled.
    Failed(BakeError),
    /// The receivers are closed, because the thread that collects parsed rows has failed. That thread returns the
    /// error.
    Closed,
}

impl From<BakeError> for Stop {
    fn from(error: BakeError) -> Self {
        Stop::Failed(error)
    }
}

impl<'p> Feed<'p> {
    pub(super) fn new(
        context: &'p Context<'p>,
        recycled: &'p Recycled,
        window: SyncSender<()>,
        work: SyncSender<Work>,
        parsed: SyncSender<Parsed>,
        rows_read: &'p AtomicU64,
    ) -> Self {
        Feed {
            context,
            recycled,
            window,
            work,
            parsed,
            next_number: 0,
            rows_read,
            read_bytes: 0,
            last_line_max: 0,
            facts: Vec::new(),
            reported: HashSet::new(),
        }
    }

    /// Sends the pieces of all inputs. Stops at the first error, and sends this error to the gatherer instead of a
    /// piece. Returns the facts about the inputs that were read to their end.
    pub(super) fn run(
        mut self,
        inputs: Vec<Input<'_>>,
        origins: &mut Origins,
        progress: &mut dyn FnMut(Progress),
    ) -> Vec<InputFacts> {
        for input in inputs {
            match self.send_input(input, origins, progress) {
                Ok(()) => {}
                // The error gets the next ticket, so that the gatherer reports errors of earlier pieces first.
                Err(Stop::Failed(error)) => {
                    if let Ok(ticket) = self.take_ticket(0) {
                        let _ = self.parsed.send((ticket, Ok(Err(error))));
                    }
                    break;
                }
                Err(Stop::Closed) => break,
            }
        }
        self.facts
    }

    fn send_input(
        &mut self,
        input: Input<'_>,
        origins: &mut Origins,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Stop> {
        let input_name: Arc<str> = input.name().into();
        let mut reader = parse::open(input, self.context)?;
        // The exact number of lines is known only after the parsers have finished, so an upper bound separates the
        // inputs.
        let input_origin = origins.begin(&input_name, reader.row_unit(), self.last_line_max);
        self.last_line_max = 0;
        while let Some(mut piece) = reader.next_piece(self.recycled.buffer())? {
            self.last_line_max = piece.last_line_max;
            self.context.check_canceled()?;
            for warning in piece.warnings.drain(..) {
                let is_once = matches!(warning, Warning::PossibleEscapes { .. } | Warning::PossibleDeletions { .. });
                if !is_once || self.reported.insert(discriminant(&warning)) {
                    progress(Progress::Warning(warning));
                }
            }
            if let Some(types) = self.context.typed.as_ref().and_then(TypedPlan::take_inferred) {
                progress(Progress::Inferred { types });
            }
            let ticket = self.take_ticket(piece.len_bytes)?;
            let work = Work { ticket, piece, input_name: input_name.clone(), input_origin };
            self.work.send(work).map_err(|_| Stop::Closed)?;
            let input_bytes = self.read_bytes + reader.read_bytes();
            progress(Progress::Read { input_bytes, rows: self.rows_read.load(Ordering::Relaxed) });
        }
        self.read_bytes += reader.read_bytes();
        self.facts.push(reader.finish()?);
        Ok(())
    }

    /// Waits until the limit of pieces in flight allows another piece, and returns the ticket for this piece. A long
    /// piece counts toward the limit as several pieces.
    fn take_ticket(&mut self, len_bytes: usize) -> Result<Ticket, Stop> {
        let budget = self.context.budget;
        let slots = len_bytes.div_ceil(budget.piece_len_bytes()).clamp(1, budget.pieces_in_flight());
        for _ in 0..slots {
            self.window.send(()).map_err(|_| Stop::Closed)?;
        }
        self.next_number += 1;
        Ok(Ticket { number: self.next_number - 1, slots })
    }
}

/// Maps origins to inputs and lines. Origins ascend from line to line, and from one input to the next.
#[derive(Debug, Default)]
pub(super) struct Origins {
    inputs: Vec<InputOrigins>,
}

#[derive(Debug)]
struct InputOrigins {
    /// The origin of line 0 of the input. The origin of a row is this number plus the row's line or row number.
    base: u64,
    unit: RowUnit,
    name: String,
}

impl Origins {
    /// Adds an input, and returns the origin of the input's line 0. `last_line_before` must be at least the number of
    /// the previous input's last line.
    pub(super) fn begin(&mut self, name: &str, unit: RowUnit, last_line_before: u64) -> u64 {
        let base = self.inputs.last().map_or(0, |last| last.base + last_line_before + 1);
        self.inputs.push(InputOrigins { base, unit, name: name.to_owned() });
        base
    }

    /// Returns the input of the row with this origin, the unit in which the input's rows are counted, and the row's
    /// number in this unit.
    pub(super) fn locate(&self, origin: u64) -> (&str, RowUnit, u64) {
        let input = self.input(origin);
        (&input.name, input.unit, origin - input.base)
    }

    /// Returns the line or row number of the row with the origin `origin`, for a message about the row with the origin
    /// `other`. If the two rows are in different inputs, the result also names the input of the row with the origin
    /// `origin`.
    pub(super) fn describe(&self, origin: u64, other: u64) -> String {
        let InputOrigins { base, unit, name } = self.input(origin);
        let place = match unit {
            RowUnit::Line => format!("line {}", origin - base),
            RowUnit::Row | RowUnit::TableRow => format!("row {}", origin - base),
        };
        if self.input(other).base == *base { place } else { format!("{place} of {name}") }
    }

    fn input(&self, origin: u64) -> &InputOrigins {
        &self.inputs[self.inputs.partition_point(|input| input.base <= origin).saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_identifies_its_input_and_line() {
        let mut origins = Origins::default();
        let a = origins.begin("a.csv", RowUnit::Line, 0);
        let b = origins.begin("b.db", RowUnit::TableRow, 7);
        let c = origins.begin("c.csv", RowUnit::Line, 0);
        assert_eq!(origins.locate(a + 7), ("a.csv", RowUnit::Line, 7));
        assert_eq!(origins.locate(c + 1), ("c.csv", RowUnit::Line, 1));
        assert_eq!(origins.locate(b), ("b.db", RowUnit::TableRow, 0));
        assert_eq!(origins.describe(a + 3, a + 7), "line 3");
        assert_eq!(origins.describe(b, c + 1), "row 0 of b.db");
    }
}
