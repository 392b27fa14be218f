//! `baker`: compiles `key,value` rows into a file to serve.

use std::fs::{self, Metadata};
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use zero_kv::DEFAULT_FILE;
use zero_kv::bake::{self, Column, Duplicates, Input, Keys, Options, Progress, Report, ValueSpec};

/// Compiles rows of `key,value` into an immutable file that kv_store serves.
///
/// Keys are unsigned 64-bit decimals, or any bytes with --keys bytes; values are
/// any bytes; rows come in any order.
/// The file is put in place whole: whatever fails, what was there before stays.
#[derive(Parser)]
#[command(name = "baker", version, max_term_width = 100)]
struct Args {
    /// Delimited text to read (RFC 4180 quoting), plain or compressed; `-` is standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
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
    /// Memory to use, such as 512MiB or 2GB; what does not fit is sorted in temporary files
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Threads to use
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZero<usize>>,
    /// Folder for temporary files [default: that of the output]
    #[arg(long, value_name = "FOLDER")]
    temp_dir: Option<PathBuf>,
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

fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err("a size was expected, such as 512MiB or 2GB".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "a size was expected, such as 512MiB or 2GB".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more than can be counted".to_owned())
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
    let inputs = Input::expand(&args.inputs)?;
    let input_len_bytes = len_bytes(&inputs, &args.output)?;
    let mut options = Options::default();
    options.delimiter = args.delimiter;
    options.header = args.header;
    options.key = args.key.clone();
    options.value = args.value.clone().map_or(ValueSpec::Unnamed, ValueSpec::Column);
    options.keys = args.keys.into();
    options.duplicates = args.duplicates.into();
    options.memory_bytes = args.memory;
    options.threads = args.threads;
    options.temp_dir = args.temp_dir.clone();

    let bar = Bar::new(args.quiet, input_len_bytes);
    let report = bake::bake(inputs, &args.output, &options, &mut |progress| bar.show(progress))?;
    bar.clear();
    if !args.quiet {
        // The file is in place, whether anybody reads this or not.
        let _ = writeln!(io::stdout(), "{}", summary(&args.output, &report, started));
    }
    Ok(())
}

/// What all inputs have together, if all are files. None may be the output.
fn len_bytes(inputs: &[Input<'_>], output: &Path) -> anyhow::Result<Option<u64>> {
    let output = fs::metadata(output).ok();
    let mut all_bytes = Some(0);
    for input in inputs {
        let metadata = input.path().and_then(|path| fs::metadata(path).ok());
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if let (Some(input_is), Some(output_is)) = (&metadata, &output)
            && same(input_is, output_is)
        {
            bail!("{}: is also the output: name another file with -o", input.name());
        }
        let len_bytes = metadata.filter(Metadata::is_file).map(|metadata| metadata.len());
        all_bytes = all_bytes.zip(len_bytes).map(|(all, one)| all + one);
    }
    Ok(all_bytes)
}

fn summary(output: &Path, report: &Report, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    let dropped = match report.duplicates_dropped {
        0 => String::new(),
        dropped => format!(" ({dropped} duplicates dropped)"),
    };
    for (stage, took) in report.stages.iter().filter(|_| std::env::var_os("ZKV_T").is_some()) {
        eprintln!("{} {:.2}", stage.name(), took.as_secs_f64());
    }
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
            Progress::Merge { rows, rows_total } => {
                self.style("merging {bar:30} {human_pos}/{human_len} rows ({per_sec}), {eta} left", rows_total);
                self.bar.set_position(rows);
            }
            Progress::Write { rows, rows_total } => {
                self.style("writing {bar:30} {human_pos}/{human_len} rows ({per_sec}), {eta} left", rows_total);
                self.bar.set_position(rows);
            }
            Progress::Index { done, total } => {
                self.style("indexing {bar:30} {percent} %, {eta} left", total);
                self.bar.set_position(done);
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
