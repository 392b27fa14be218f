//! `zkv`: asks a server or a file for one key.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use zero_kv::client::Client;
use zero_kv::{DEFAULT_SOCKET, Store};

const EXIT_FOUND: u8 = 0;
const EXIT_NOT_FOUND: u8 = 1;
/// Also what clap gives to usage errors.
const EXIT_ERROR: u8 = 2;

/// Asks a running kv_store, or a baked file, for one key.
///
/// Exit status: 0 if the key is in the table, 1 if it is not, 2 after an error.
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

#[derive(Clone, Copy, Subcommand)]
enum Question {
    /// Write the key's value to standard output, as it is, without a line end
    Get {
        /// Unsigned 64-bit decimal
        #[arg(value_parser = key, allow_negative_numbers = true)]
        key: u64,
    },
    /// Print nothing, and tell by the exit status whether the key is in the table
    Exists {
        /// Unsigned 64-bit decimal
        #[arg(value_parser = key, allow_negative_numbers = true)]
        key: u64,
    },
}

/// As strict as `baker`, which refuses the `+` that Rust reads.
fn key(text: &str) -> Result<u64, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| "an unsigned 64-bit decimal (0 to 18446744073709551615) was expected".to_owned())
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

/// Whether the key was found.
fn run(args: &Args) -> anyhow::Result<bool> {
    match (&args.socket, &args.db) {
        // By hand: clap overlooks a conflict of global options before and after the subcommand.
        (Some(_), Some(_)) => Args::command()
            .error(ErrorKind::ArgumentConflict, "--socket and --db cannot be used together: ask one of them")
            .exit(),
        (_, Some(file)) => ask_file(file, args.question),
        (Some(socket), None) => ask_server(socket, args.question),
        (None, None) => ask_server(Path::new(DEFAULT_SOCKET), args.question),
    }
}

fn ask_server(socket: &Path, question: Question) -> anyhow::Result<bool> {
    let mut client = Client::connect(socket)?;
    match question {
        Question::Get { key } => print(client.get(key)?.as_deref()),
        Question::Exists { key } => Ok(client.exists(key)?),
    }
}

fn ask_file(file: &Path, question: Question) -> anyhow::Result<bool> {
    let store = Store::open(file)?;
    match question {
        Question::Get { key } => print(store.get(key)?),
        Question::Exists { key } => Ok(store.contains(key)?),
    }
}

/// Writes the value, if there is one, and says whether there is.
fn print(value: Option<&[u8]>) -> anyhow::Result<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut output = io::stdout().lock();
    // Flushed here, because on exit nobody would see that it failed.
    output.write_all(value).and_then(|()| output.flush()).map_err(|error| anyhow!("standard output: {error}"))?;
    Ok(true)
}
