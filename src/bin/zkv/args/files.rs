//! Commands that read baked files, named as arguments.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::lookups::RangeArgs;

#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Describe a file: header, sections, keys, sizes of values
    ///
    /// The command reads and verifies the whole file. For a damaged file, it prints the header and
    /// which sections are damaged.
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Inspect {
        /// Baked file
        file: PathBuf,
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Verify a whole file: every checksum, the order of the keys, and that every key can be looked up
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Verify {
        /// Baked file
        file: PathBuf,
    },
    /// Write the rows of a file as text that bakes to the same file
    ///
    /// Exit status: 0 done, 2 after an error. It is not an error if the reader of the output closes the
    /// pipe early.
    Dump(DumpArgs),
    /// Print the rows that differ between two files, in key order
    ///
    /// A line of text begins with `-` for a key that only A has, `+` for a key that only B has, `~`
    /// for a key with different values. The last line counts them. Files with equal digests in their
    /// headers are reported as equal, and their rows are not read. A digest can be forged: compare
    /// files that you do not trust with cmp.
    ///
    /// Exit status: 0 if all rows are equal, 1 if not, 2 after an error.
    Diff(DiffArgs),
    /// Write `key,digest` lines, which `kv_store --canary` checks in a new file before serving it
    ///
    /// The digest is the XXH3-128 of the key's value, as 32 hexadecimal digits, or `absent` for a key
    /// that is not in the table.
    ///
    /// Exit status: 0 done, 2 after an error.
    Canary(CanaryArgs),
}

#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// Baked file
    pub(crate) file: PathBuf,
    /// Choose the output format
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    pub(crate) format: DumpFormat,
    /// Write to this file, which appears when it is complete; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Lines `key,value`, quoted where necessary
    Csv,
    /// As csv, with tabs instead of commas, for `baker --format tsv`
    Tsv,
    /// Lines `{"key":…,"value":"…"}`; only for tables that are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// Baked file
    pub(crate) a: PathBuf,
    /// Baked file to compare with it
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
    /// Text for people: keys and values that are bytes are quoted, with everything but printable ASCII escaped
    Text,
    /// One JSON object per line; only for tables that are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct CanaryArgs {
    /// Baked file
    pub(crate) file: PathBuf,
    /// Digest the values of these keys: unsigned 64-bit decimals, or bytes. Write `--` before the keys if one
    /// begins with `-`. A single `-` reads keys from standard input, one per line
    #[arg(required_unless_present = "sample", value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Digest the values of this many keys of the table, evenly spaced, or of all keys if it has fewer
    #[arg(long, value_name = "N", conflicts_with = "keys")]
    pub(crate) sample: Option<NonZeroUsize>,
}
