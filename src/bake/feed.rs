//! Inputs into pieces for parsers.
//!
//! In: inputs, one after another. Out: pieces of each, numbered, and how they are
//! parsed. It waits where parsers or whoever takes their rows are behind.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread;

use twox_hash::XxHash3_128;

use super::columns::find_fields;
use super::context::Context;
use super::cut::{CutError, Cutter, TextPiece};
use super::fill::Filler;
use super::input::{Compression, FillRows, Input, InputFacts, OpenInput, Opened};
use super::origins::{Origins, Unit};
use super::parse::RowSpec;
use super::parse::delimited::{Delimited, Record, first_record};
use super::parse::json_lines::JsonLines;
#[cfg(feature = "parquet")]
use super::parse::parquet::{self, ParquetParser, ParquetPieces};
use super::parse::rows::RowPiece;
use super::sort::batch::Batch;
use super::{BakeError, Format, Options, Progress};

/// What a Parquet file begins with.
const PARQUET_MAGIC: [u8; 4] = *b"PAR1";

/// A piece on its way to a parser.
pub(super) struct Work {
    pub(super) ticket: Ticket,
    pub(super) piece: Piece,
    pub(super) input: Arc<InputSpec>,
    pub(super) may_be_header: bool,
}

/// A piece's place in the order of the input, and the room that it takes among those under way.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) passes: usize,
}

/// What parsers know of an input.
pub(super) struct InputSpec {
    pub(super) name: String,
    /// The origin of its line 0.
    pub(super) origin: u64,
    pub(super) parser: Parser,
}

/// Some rows of an input.
pub(super) enum Piece {
    Text(TextPiece),
    Rows(RowPiece),
    #[cfg(feature = "parquet")]
    Parquet(parquet::Piece),
}

impl Piece {
    /// The first line, or row.
    pub(super) fn first_line(&self) -> u64 {
        match self {
            Piece::Text(piece) => piece.first_line,
            Piece::Rows(piece) => piece.first_row(),
            #[cfg(feature = "parquet")]
            Piece::Parquet(piece) => piece.first_row(),
        }
    }

    /// Memory that can be used for another piece.
    pub(super) fn into_text(self) -> Option<Vec<u8>> {
        match self {
            Piece::Text(piece) => Some(piece.bytes),
            Piece::Rows(piece) => Some(piece.into_bytes()),
            #[cfg(feature = "parquet")]
            Piece::Parquet(_) => None,
        }
    }

    /// What its rows take up, more or less.
    pub(super) fn len_bytes(&self) -> usize {
        match self {
            Piece::Text(piece) => piece.bytes.len(),
            Piece::Rows(piece) => piece.len_bytes(),
            #[cfg(feature = "parquet")]
            Piece::Parquet(_) => parquet::PIECE_LEN_BYTES as usize,
        }
    }
}

/// How an input is parsed. Each thread has its own.
#[derive(Clone)]
pub(super) enum Parser {
    Delimited(Delimited),
    JsonLines(Box<JsonLines>),
    Rows,
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetParser>),
}

impl Parser {
    /// Hands on the rows of a piece of its input.
    pub(super) fn parse(&mut self, piece: &Piece, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        match (self, piece) {
            (Parser::Delimited(delimited), Piece::Text(piece)) => delimited.parse(piece, filler),
            (Parser::JsonLines(json_lines), Piece::Text(piece)) => {
                json_lines.parse(&piece.bytes, piece.first_line, filler)
            }
            #[cfg(feature = "parquet")]
            (Parser::Parquet(parquet), Piece::Parquet(piece)) => parquet.parse(piece, filler),
            (Parser::Rows, Piece::Rows(piece)) => piece.parse(filler),
            _ => unreachable!("a piece of another format than its input's"),
        }
    }
}

/// A piece's place and its batch, or why there is none. A panic is one of whoever gathers, not of a parser alone: the
/// others would wait for the piece.
pub(super) type Parsed = (Ticket, thread::Result<Result<Batch, BakeError>>);

/// Memory that was used and can be used again.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) texts: Mutex<Vec<Vec<u8>>>,
    pub(super) batches: Mutex<Vec<Batch>>,
}

impl Pool {
    pub(super) fn text(&self) -> Vec<u8> {
        self.texts.lock().expect("no panic").pop().unwrap_or_default()
    }

    pub(super) fn batch(&self) -> Batch {
        self.batches.lock().expect("no panic").pop().unwrap_or_else(Batch::new)
    }
}

/// Sends pieces to the parsers.
pub(super) struct Feed<'p> {
    context: &'p Context<'p>,
    pool: &'p Pool,
    /// Has room for as many pieces as may be under way.
    window: SyncSender<()>,
    work: SyncSender<Work>,
    parsed: SyncSender<Parsed>,
    next: u64,
    rows_read: &'p AtomicU64,
    /// Bytes of inputs that were read whole.
    read_bytes: u64,
    /// Lines of the input that was read last, or more.
    lines: u64,
    facts: Vec<InputFacts>,
}

/// Why there are no more pieces of an input.
enum Stop {
    /// It, or a row of it, is bad.
    Failed(BakeError),
    /// Nobody takes pieces any more: the bake has failed, and whoever gathers knows why.
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
        pool: &'p Pool,
        window: SyncSender<()>,
        work: SyncSender<Work>,
        parsed: SyncSender<Parsed>,
        rows_read: &'p AtomicU64,
    ) -> Self {
        let facts = Vec::new();
        Feed { context, pool, window, work, parsed, next: 0, rows_read, read_bytes: 0, lines: 0, facts }
    }

    /// Sends all inputs, and gives what is known of those that were read whole.
    pub(super) fn all(
        mut self,
        inputs: Vec<Input<'_>>,
        origins: &mut Origins,
        progress: &mut dyn FnMut(Progress),
    ) -> Vec<InputFacts> {
        for input in inputs {
            match self.input(input, origins, progress) {
                Ok(()) => {}
                // In its turn: what is wrong with rows in front of it is told first.
                Err(Stop::Failed(error)) => {
                    if let Ok(ticket) = self.ticket(0) {
                        let _ = self.parsed.send((ticket, Ok(Err(error))));
                    }
                    break;
                }
                Err(Stop::Closed) => break,
            }
        }
        self.facts
    }

    fn input(
        &mut self,
        input: Input<'_>,
        origins: &mut Origins,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Stop> {
        let name = input.name().to_owned();
        let opened = match input.open()? {
            Opened::Bytes(opened) => *opened,
            Opened::Rows(fill) => return self.rows(fill, name, origins, progress),
        };
        let format = self.context.options.format.of(&name, opened.starts_with(PARQUET_MAGIC));
        let unit = if format == Format::Parquet { Unit::Row } else { Unit::Line };
        let origin = origins.begin(&name, unit, self.lines);
        let opened = match format {
            Format::Parquet => self.parquet(opened, &name, origin, progress)?,
            _ => self.text(opened, format, &name, origin, progress)?,
        };
        self.read_bytes += opened.read_bytes();
        self.facts.push(opened.finish()?);
        Ok(())
    }

    fn text<'i>(
        &mut self,
        opened: OpenInput<'i>,
        format: Format,
        name: &str,
        origin: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<OpenInput<'i>, Stop> {
        let (options, budget) = (self.context.options, self.context.budget);
        let delimiter = options.delimiter_of(format);
        let mut cutter = Cutter::new(opened, delimiter, budget.piece_len_bytes(), budget.row_len_max_bytes());
        let mut spec: Option<Arc<InputSpec>> = None;
        loop {
            let mut piece = match cutter.next_piece(self.pool.text()) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(cutter.into_input()),
                Err(CutError::Io(error)) => return Err(BakeError::Input { input: name.to_owned(), error }.into()),
                Err(CutError::Row { line, fault }) => {
                    return Err(BakeError::Row { input: name.to_owned(), line, fault }.into());
                }
            };
            self.lines = piece.first_line + piece.bytes.len() as u64;
            let is_first = spec.is_none();
            if is_first {
                let parser = text_parser(options, delimiter, name, &mut piece)?;
                spec = parser.map(|parser| Arc::new(InputSpec { name: name.to_owned(), origin, parser }));
            }
            let read_bytes = cutter.input().read_bytes();
            if let Some(input) = &spec {
                let may_be_header = is_first && delimiter.is_some() && !options.header;
                self.send(Piece::Text(piece), input.clone(), may_be_header, read_bytes, progress)?;
            }
        }
    }

    fn rows(
        &mut self,
        mut fill: FillRows<'_>,
        name: String,
        origins: &mut Origins,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Stop> {
        let origin = origins.begin(&name, Unit::Row, self.lines);
        let input = Arc::new(InputSpec { name: name.clone(), origin, parser: Parser::Rows });
        let (mut hasher, mut len_bytes) = (XxHash3_128::new(), 0);
        self.lines = 0;
        loop {
            let mut piece = RowPiece::new(self.lines + 1, self.pool.text(), self.context.budget.piece_len_bytes());
            fill(&mut piece).map_err(|error| BakeError::Input { input: name.clone(), error })?;
            if piece.is_empty() {
                break;
            }
            self.lines += piece.len() as u64;
            len_bytes += piece.content_len_bytes() as u64;
            piece.digest_into(&mut hasher);
            self.send(Piece::Rows(piece), input.clone(), false, len_bytes, progress)?;
        }
        self.read_bytes += len_bytes;
        let digest = hasher.finish_128();
        self.facts.push(InputFacts { name, len_bytes, digest, compression: Compression::None });
        Ok(())
    }

    #[cfg(feature = "parquet")]
    fn parquet<'i>(
        &mut self,
        mut opened: OpenInput<'i>,
        name: &str,
        origin: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<OpenInput<'i>, Stop> {
        let file = opened.seekable(&self.context.budget.temp_dir)?;
        let mut pieces = ParquetPieces::open(file, &RowSpec::of(self.context.options), name)?;
        let parser = Parser::Parquet(Box::new(pieces.parser()));
        let input = Arc::new(InputSpec { name: name.to_owned(), origin, parser });
        while let Some(piece) = pieces.next_piece()? {
            self.lines = piece.first_row() + piece.rows() as u64;
            self.send(Piece::Parquet(piece), input.clone(), false, opened.read_bytes(), progress)?;
        }
        Ok(opened)
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet<'i>(
        &mut self,
        _: OpenInput<'i>,
        name: &str,
        _: u64,
        _: &mut dyn FnMut(Progress),
    ) -> Result<OpenInput<'i>, Stop> {
        let fault = "is Parquet, which this program was built without: build it with the feature parquet".to_owned();
        Err(BakeError::Columns { input: name.to_owned(), fault }.into())
    }

    fn send(
        &mut self,
        piece: Piece,
        input: Arc<InputSpec>,
        may_be_header: bool,
        read_bytes: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Stop> {
        self.context.check_cancelled()?;
        let ticket = self.ticket(piece.len_bytes())?;
        self.work.send(Work { ticket, piece, input, may_be_header }).map_err(|_| Stop::Closed)?;
        let input_bytes = self.read_bytes + read_bytes;
        progress(Progress::Read { input_bytes, rows: self.rows_read.load(Ordering::Relaxed) });
        Ok(())
    }

    /// The next piece's, when there is room for it. A row can be much longer than pieces are, and takes the room of many.
    fn ticket(&mut self, len_bytes: usize) -> Result<Ticket, Stop> {
        let budget = self.context.budget;
        let passes = len_bytes.div_ceil(budget.piece_len_bytes()).clamp(1, budget.pieces_under_way());
        for _ in 0..passes {
            self.window.send(()).map_err(|_| Stop::Closed)?;
        }
        self.next += 1;
        Ok(Ticket { number: self.next - 1, passes })
    }
}

/// Finds out how text is parsed by its first piece, and takes the header off. `None` if there is no record yet.
fn text_parser(
    options: &Options,
    delimiter: Option<u8>,
    input: &str,
    piece: &mut TextPiece,
) -> Result<Option<Parser>, BakeError> {
    let Some(delimiter) = delimiter else {
        let json_lines = JsonLines::new(&RowSpec::of(options));
        let json_lines = json_lines.map_err(|fault| BakeError::Columns { input: input.to_owned(), fault })?;
        return Ok(Some(Parser::JsonLines(Box::new(json_lines))));
    };
    let refuse = |line, fault| BakeError::Row { input: input.to_owned(), line, fault };
    let find = |record: Record<'_>| Ok((find_fields(options, input, &record)?, record.end));
    let Some((fields, end)) = first_record(piece, delimiter, find, refuse)? else { return Ok(None) };
    if options.header {
        piece.first_line += memchr::memchr_iter(b'\n', &piece.bytes[..end]).count() as u64;
        piece.bytes.drain(..end);
    }
    Ok(Some(Parser::Delimited(Delimited::new(delimiter, fields))))
}
