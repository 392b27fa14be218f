//! The command-line options of the commands that read baked files, such as `zkv inspect FILE`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use zero_kv::cli::number::parse_count;

use super::lookups::RangeArgs;

#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Describe a file: its header, sections, keys, and lengths of values
    ///
    /// The command reads and verifies the whole file. For a damaged file, it prints the header and
    /// marks the damaged sections.
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Inspect {
        /// Read this baked file
        file: PathBuf,
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Verify a whole file: check all checksums and the order of the keys, and look up every key
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Verify {
        /// Verify this baked file
        file: PathBuf,
    },
    /// Write the rows of a file as text or Parquet that bakes to the same file
    ///
    /// Exit status: 0 after success, 2 after an error. If the reader of the output closes the pipe early,
    /// the exit status is 0.
    Dump(DumpArgs),
    /// Print the rows that differ between two files, in key order
    ///
    /// A line of text begins with `-` for a key that only A has, with `+` for a key that only B has, and
    /// with `~` for a key whose values differ. The last line counts these keys and the equal rows. If the
    /// headers of both files have the same digest, the command reports all rows as equal without reading
    /// them. A digest can be forged: if you do not trust the files, use cmp to compare them.
    ///
    /// In typed tables, the first lines are the columns that differ, and each line `~` names the columns whose values
    /// differ. Rows are compared by the columns that both tables have.
    ///
    /// Exit status: 0 if all rows and columns are equal, 1 if some differ, 2 after an error.
    Diff(DiffArgs),
    /// Write canaries: `key,digest` lines that `kv_store --canary` checks in a new file before serving it
    ///
    /// The digest is the XXH3-128 of the key's value, as 32 hexadecimal digits, or `absent` for a key
    /// that is not in the table.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Canary(CanaryArgs),
}

#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// Read this baked file
    pub(crate) file: PathBuf,
    /// Choose the output format
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    pub(crate) format: DumpFormat,
    /// Write to this file, which gets its name only when it is complete; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Write only these columns of a typed table, in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Lines `key,value`, quoted where necessary; for a typed table, a row of column names and one field per column
    Csv,
    /// Like csv, with tabs instead of commas, for `baker --format tsv`
    Tsv,
    /// Lines `{"key":…,"value":"…"}`, or for a typed table, with one field per column; only for tables whose keys and
    /// values are UTF-8
    Jsonl,
    /// Apache Parquet, with the types of a typed table's columns; requires the feature `parquet`
    Parquet,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// Compare this baked file
    pub(crate) a: PathBuf,
    /// Compare A with this baked file
    pub(crate) b: PathBuf,
    /// Write the values too
    #[arg(long)]
    pub(crate) values: bool,
    /// Write only the counts
    #[arg(long, conflicts_with = "values")]
    pub(crate) summary: bool,
    /// Choose the output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: DiffFormat,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Text for people: byte keys and values are quoted, with everything but printable ASCII escaped
    Text,
    /// One JSON object per line; only for tables whose keys and values are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct CanaryArgs {
    /// Read this baked file
    pub(crate) file: PathBuf,
    /// Write canaries for these keys. A key is an unsigned 64-bit decimal, or bytes. Pass `--` before the keys if one
    /// begins with `-`. A single `-` reads keys from standard input, one per line
    #[arg(required_unless_present = "sample", value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Write canaries for this many evenly spaced keys of the table, or for all keys if there are fewer
    #[arg(long, value_name = "N", conflicts_with = "keys", value_parser = parse_count)]
    pub(crate) sample: Option<NonZeroUsize>,
}
