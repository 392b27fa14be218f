//! `zkv`: asks a server or a file for a key, or for rows in key order.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use csv::{QuoteStyle, WriterBuilder};
use zero_kv::client::{Client, ClientError, Row};
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::{DEFAULT_SOCKET, Key, KeyKind, Store};

const EXIT_FOUND: u8 = 0;
const EXIT_NOT_FOUND: u8 = 1;
/// Also what clap gives to usage errors.
const EXIT_ERROR: u8 = 2;

/// What some readers take away from the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Asks a running kv_store, or a baked file, for a key, or for rows in key order.
///
/// What a key is, the table says: if its keys are numbers, an unsigned 64-bit decimal; else the
/// bytes of the argument as they are.
///
/// Rows are written as lines `key,value`, quoted where they must be, as baker reads them.
///
/// Exit status: 0 if there is such a key or row, 1 if there is none, 2 after an error.
#[derive(Parser)]
#[command(name = "zkv", version, max_term_width = 100)]
struct Args {
    #[arg(long, global = true, value_name = "PATH", help = format!("Socket of the server to ask [default: {DEFAULT_SOCKET}]"))]
    socket: Option<PathBuf>,
    /// Baked file to ask, without a server; not together with --socket
    #[arg(long, global = true, value_name = "FILE")]
    db: Option<PathBuf>,
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand)]
enum Question {
    /// Write the key's value to standard output, as it is, without a line end
    Get(KeyArg),
    /// Print nothing, and tell by the exit status whether the key is in the table
    Exists(KeyArg),
    /// Write the row with the largest key that is not above KEY
    Floor(KeyArg),
    /// Write the row with the smallest key that is not below KEY
    Ceiling(KeyArg),
    /// Write the row with the smallest key
    First,
    /// Write the row with the largest key
    Last,
    /// Write the rows of a range in key order; without bounds, all
    Range {
        #[command(flatten)]
        range: RangeArgs,
        /// Begin with the largest key
        #[arg(long)]
        reverse: bool,
        /// Write so many rows at most
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Write how many keys lie in a range; without bounds, all
    Count {
        #[command(flatten)]
        range: RangeArgs,
    },
}

#[derive(clap::Args)]
struct KeyArg {
    /// Unsigned 64-bit decimal, or bytes; after `--` if it begins with `-`
    #[arg(allow_negative_numbers = true)]
    key: OsString,
}

#[derive(clap::Args)]
struct RangeArgs {
    /// Keys from this one on
    #[arg(long, value_name = "KEY", conflicts_with = "after")]
    from: Option<OsString>,
    /// Keys above this one
    #[arg(long, value_name = "KEY")]
    after: Option<OsString>,
    /// Keys up to this one
    #[arg(long, value_name = "KEY", conflicts_with = "before")]
    to: Option<OsString>,
    /// Keys below this one
    #[arg(long, value_name = "KEY")]
    before: Option<OsString>,
    /// Keys that begin with these bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["from", "after", "to", "before"])]
    prefix: Option<OsString>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::from(EXIT_FOUND),
        Ok(false) => ExitCode::from(EXIT_NOT_FOUND),
        Err(error) => {
            // Not eprintln!, which panics when nobody reads standard error.
            let _ = writeln!(io::stderr(), "zkv: {error}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// Whether there was something to find.
fn run(args: &Args) -> anyhow::Result<bool> {
    match (&args.socket, &args.db) {
        // By hand: clap overlooks a conflict of global options before and after the subcommand.
        (Some(_), Some(_)) => Args::command()
            .error(ErrorKind::ArgumentConflict, "--socket and --db cannot be used together: ask one of them")
            .exit(),
        (_, Some(file)) => ask_file(&Store::open(file)?, &args.question),
        (socket, None) => {
            let socket = socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET));
            ask_server(&mut Client::connect(socket)?, &args.question)
        }
    }
}

fn ask_server(client: &mut Client, question: &Question) -> anyhow::Result<bool> {
    // Asked for only where a key must be read.
    let key = |client: &mut Client, arg| read_key(client.key_kind()?, arg, 1);
    match question {
        Question::Get(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            write_value(client.get(key)?.as_deref())
        }
        Question::Exists(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            Ok(client.exists(key)?)
        }
        Question::Floor(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            write_received(client.floor(key).transpose())
        }
        Question::Ceiling(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            write_received(client.ceiling(key).transpose())
        }
        Question::First => write_received(client.first().transpose()),
        Question::Last => write_received(client.last().transpose()),
        Question::Range { range, reverse, limit } => {
            let rows = match &range.prefix {
                Some(prefix) => client.prefix(prefix.as_bytes())?,
                None if range.is_all() => client.rows(),
                None => {
                    let kind = client.key_kind()?;
                    client.range(range.bounds(kind)?)?
                }
            };
            let limit = limit.unwrap_or(usize::MAX);
            let rows = rows.page_rows(u32::try_from(limit).unwrap_or(u32::MAX));
            match reverse {
                false => write_received(rows.take(limit)),
                true => write_received(rows.rev().take(limit)),
            }
        }
        Question::Count { range } => write_count(match &range.prefix {
            Some(prefix) => client.count_prefix(prefix.as_bytes())?,
            None if range.is_all() => client.count(..)?,
            None => {
                let kind = client.key_kind()?;
                client.count(range.bounds(kind)?)?
            }
        }),
    }
}

fn ask_file(store: &Store, question: &Question) -> anyhow::Result<bool> {
    let key = |arg| read_key(store.key_kind(), arg, 1);
    match question {
        Question::Get(KeyArg { key: arg }) => write_value(store.get(key(arg)?)?),
        Question::Exists(KeyArg { key: arg }) => Ok(store.contains(key(arg)?)?),
        Question::Floor(KeyArg { key: arg }) => write_borrowed(store.floor(key(arg)?)?),
        Question::Ceiling(KeyArg { key: arg }) => write_borrowed(store.ceiling(key(arg)?)?),
        Question::First => write_borrowed(store.first()),
        Question::Last => write_borrowed(store.last()),
        Question::Range { range, reverse, limit } => {
            let (rows, limit) = (rows_of(store, range)?, limit.unwrap_or(usize::MAX));
            match reverse {
                false => write_borrowed(rows.take(limit)),
                true => write_borrowed(rows.rev().take(limit)),
            }
        }
        Question::Count { range } => write_count(rows_of(store, range)?.len() as u64),
    }
}

fn rows_of<'s>(store: &'s Store, range: &RangeArgs) -> anyhow::Result<zero_kv::store::Rows<'s>> {
    match &range.prefix {
        Some(prefix) => Ok(store.prefix(read_bytes(prefix, 0)?)?),
        None => Ok(store.range(range.bounds(store.key_kind())?)?),
    }
}

impl RangeArgs {
    fn is_all(&self) -> bool {
        [&self.from, &self.after, &self.to, &self.before].iter().all(|key| key.is_none())
    }

    /// The two ends, of which clap has seen that each is given once at most.
    fn bounds(&self, kind: KeyKind) -> anyhow::Result<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        Ok((bound(kind, &self.from, &self.after)?, bound(kind, &self.to, &self.before)?))
    }
}

fn bound<'a>(
    kind: KeyKind,
    included: &'a Option<OsString>,
    excluded: &'a Option<OsString>,
) -> anyhow::Result<Bound<Key<'a>>> {
    match (included, excluded) {
        (Some(key), _) => read_key(kind, key, 0).map(Bound::Included),
        (_, Some(key)) => read_key(kind, key, 0).map(Bound::Excluded),
        (None, None) => Ok(Bound::Unbounded),
    }
}

/// Bytes that a server can be asked for; a file answers alike.
fn read_bytes(arg: &OsStr, least_bytes: usize) -> Result<&[u8], ClientError> {
    let len_bytes = arg.len();
    match (least_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) {
        true => Ok(arg.as_bytes()),
        false => Err(ClientError::KeyLen { len_bytes }),
    }
}

/// A key as the table has them; at the end of a range, bytes may be none. Of
/// numbers as strict as `baker`, which refuses the `+` that Rust reads.
fn read_key(kind: KeyKind, arg: &OsStr, least_bytes: usize) -> anyhow::Result<Key<'_>> {
    if kind == KeyKind::Bytes {
        return Ok(Key::Bytes(read_bytes(arg, least_bytes)?));
    }
    let digits = arg.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Key::U64).ok_or_else(|| {
        anyhow!(
            "the key is \"{}\" where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected: the keys of \
             this table are numbers",
            arg.as_bytes().escape_ascii()
        )
    })
}

/// Writes the value, if there is one, and says whether there is.
fn write_value(value: Option<&[u8]>) -> anyhow::Result<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut output = io::stdout().lock();
    // Flushed here, because on exit nobody would see that it failed.
    output.write_all(value).and_then(|()| output.flush()).map_err(unwritten)?;
    Ok(true)
}

fn write_count(count: u64) -> anyhow::Result<bool> {
    let mut output = io::stdout().lock();
    writeln!(output, "{count}").and_then(|()| output.flush()).map_err(unwritten)?;
    Ok(count > 0)
}

/// Rows on their way to standard output.
#[derive(Default)]
struct RowWriter {
    /// Once there is a row.
    output: Option<csv::Writer<io::Stdout>>,
}

impl RowWriter {
    fn write(&mut self, key: Key<'_>, value: &[u8]) -> anyhow::Result<()> {
        let output = self.output.get_or_insert_with(|| {
            // Who reads the text takes these bytes for a mark at its beginning, unless a quote precedes them.
            let is_mark = key.as_bytes().is_some_and(|key| key.starts_with(BYTE_ORDER_MARK));
            let quote_style = if is_mark { QuoteStyle::Always } else { QuoteStyle::Necessary };
            WriterBuilder::new().quote_style(quote_style).from_writer(io::stdout())
        });
        let written = match key {
            Key::U64(key) => output.write_record([key.to_string().as_bytes(), value]),
            Key::Bytes(key) => output.write_record([key, value]),
        };
        written.map_err(|error| unwritten(error.into()))
    }

    /// Whether there were any.
    fn finish(self) -> anyhow::Result<bool> {
        let Some(mut output) = self.output else { return Ok(false) };
        output.flush().map_err(unwritten)?;
        Ok(true)
    }
}

fn write_borrowed<'s>(rows: impl IntoIterator<Item = (Key<'s>, &'s [u8])>) -> anyhow::Result<bool> {
    let mut writer = RowWriter::default();
    rows.into_iter().try_for_each(|(key, value)| writer.write(key, value))?;
    writer.finish()
}

fn write_received(rows: impl IntoIterator<Item = Result<Row, ClientError>>) -> anyhow::Result<bool> {
    let mut writer = RowWriter::default();
    for row in rows {
        let (key, value) = row?;
        writer.write(key.as_key(), &value)?;
    }
    writer.finish()
}

fn unwritten(error: io::Error) -> anyhow::Error {
    anyhow!("standard output: {error}")
}
