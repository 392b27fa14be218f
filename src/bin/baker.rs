//! `baker`: compiles `key,value` rows into a file to serve.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{anyhow, bail};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use zero_kv::DEFAULT_FILE;
use zero_kv::bake::{self, Column, Duplicates, Keys, Options, Progress, Report};

/// Compiles rows of `key,value` into an immutable file that kv_store serves.
///
/// Keys are unsigned 64-bit decimals, or any bytes with --keys bytes; values are
/// any bytes; rows come in any order.
/// The file is put in place whole: whatever fails, what was there before stays.
#[derive(Parser)]
#[command(name = "baker", version, max_term_width = 100)]
struct Args {
    /// Delimited text to read (RFC 4180 quoting); `-` is standard input
    input: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    output: PathBuf,
    /// One byte between fields; `\t` is a tab
    #[arg(short, long, value_name = "BYTE", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// The first row names the columns, and is not data
    #[arg(long)]
    header: bool,
    /// Column that holds the key: its number from 1, or with --header its name
    #[arg(long, value_name = "COLUMN")]
    key: Option<Column>,
    /// Column that holds the value: its number from 1, or with --header its name
    #[arg(long, value_name = "COLUMN")]
    value: Option<Column>,
    /// What the keys are
    #[arg(long, value_name = "KIND", default_value = "u64")]
    keys: KeysArg,
    /// What to do with rows that have the same key
    #[arg(long, value_name = "POLICY", default_value = "error")]
    duplicates: DuplicatesArg,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum KeysArg {
    /// Unsigned 64-bit decimals
    U64,
    /// 1 to 65535 bytes, as they are
    Bytes,
    /// Numbers if every key is one without zeros in front, else bytes
    Auto,
}

impl From<KeysArg> for Keys {
    fn from(arg: KeysArg) -> Self {
        match arg {
            KeysArg::U64 => Keys::U64,
            KeysArg::Bytes => Keys::Bytes,
            KeysArg::Auto => Keys::Auto,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum DuplicatesArg {
    /// Refuse the input, naming both lines
    Error,
    /// Keep the first
    First,
    /// Keep the last
    Last,
}

impl From<DuplicatesArg> for Duplicates {
    fn from(arg: DuplicatesArg) -> Self {
        match arg {
            DuplicatesArg::Error => Duplicates::Error,
            DuplicatesArg::First => Duplicates::First,
            DuplicatesArg::Last => Duplicates::Last,
        }
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("a quote or a line end cannot part fields".to_owned()),
        [byte] => Ok(*byte),
        _ => Err("one byte was expected, such as `;` or `\\t`".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "baker: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let (input, input_name, input_len_bytes) = open(&args.input, &args.output)?;
    let mut options = Options::default();
    options.input_name = input_name;
    options.delimiter = args.delimiter;
    options.header = args.header;
    options.key = args.key.clone();
    options.value = args.value.clone();
    options.keys = args.keys.into();
    options.duplicates = args.duplicates.into();

    let bar = Bar::new(args.quiet, input_len_bytes);
    let report = bake::bake_csv(input, &args.output, &options, &mut |progress| bar.show(progress))?;
    bar.clear();
    if !args.quiet {
        // The file is in place, whether anybody reads this or not.
        let _ = writeln!(io::stdout(), "{}", summary(&args.output, &report, started));
    }
    Ok(())
}

fn open(path: &Path, output: &Path) -> anyhow::Result<(Box<dyn Read>, String, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), "standard input".to_owned(), None));
    }
    let name = path.display().to_string();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened.map_err(|error| anyhow!("{name}: {error}"))?;
    let same = |other: Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    if fs::metadata(output).is_ok_and(same) {
        bail!("{name}: is also the output: name another file with -o");
    }
    let len_bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), name, len_bytes))
}

fn summary(output: &Path, report: &Report, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    let dropped = match report.duplicates_dropped {
        0 => String::new(),
        dropped => format!(" ({dropped} duplicates dropped)"),
    };
    format!(
        "{}: {} rows{dropped}, {} bytes in {seconds:.2} s, {:.0} rows/s, {:.1} bytes of overhead a row; keys are {}",
        output.display(),
        report.rows,
        report.file_len_bytes,
        report.rows as f64 / seconds,
        report.overhead_bytes_per_row(),
        report.key_kind,
    )
}

/// What a terminal shows while it lasts.
struct Bar {
    bar: ProgressBar,
    input_len_bytes: Option<u64>,
}

impl Bar {
    fn new(quiet: bool, input_len_bytes: Option<u64>) -> Self {
        let bar = if quiet || !io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new(0) };
        Bar { bar, input_len_bytes }
    }

    fn show(&self, progress: Progress) {
        match progress {
            Progress::Read { input_bytes, rows } => {
                match self.input_len_bytes {
                    Some(len_bytes) => self.style(
                        "reading {bar:30} {bytes}/{total_bytes} ({bytes_per_sec}), {msg}, {eta} left",
                        len_bytes,
                    ),
                    None => self.style("reading {spinner} {bytes} ({bytes_per_sec}), {msg}", 0),
                }
                self.bar.set_message(format!("{rows} rows"));
                self.bar.set_position(input_bytes);
            }
            Progress::Sort { rows } => self.style(&format!("sorting {rows} rows"), 0),
            Progress::Write { rows, rows_total } => {
                self.style("writing {bar:30} {human_pos}/{human_len} rows ({per_sec}), {eta} left", rows_total);
                self.bar.set_position(rows);
            }
            _ => self.style("checking and syncing", 0),
        }
        self.bar.tick();
    }

    /// Changes to another stage's line; its rate and time left begin anew.
    fn style(&self, template: &str, len: u64) {
        if self.bar.length() != Some(len) || len == 0 {
            self.bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
            self.bar.set_length(len);
            self.bar.reset_eta();
        }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
