//! The command line of lookups on a server or in a file.

use std::ffi::OsString;

use clap::{Subcommand, ValueEnum};

#[derive(Subcommand)]
pub(crate) enum Lookup {
    /// Write the value of a key to standard output, unchanged, and with a line end only on a terminal
    ///
    /// In a typed table, write one line `name: value` per column instead.
    ///
    /// For several keys, or keys from standard input, write the rows of the keys that are in the table,
    /// in the order in which the keys are given. If the first argument is a baked file, keys are looked
    /// up in this file: `zkv get FILE KEY…`
    ///
    /// Exit status: 0 if all keys are in the table, 1 if some are not, 2 after an error.
    Get {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check whether keys are in the table; without --print, report the result only by the exit status
    ///
    /// Exit status: 0 if all keys are in the table, 1 if some are not, 2 after an error.
    Exists {
        #[command(flatten)]
        keys: KeysArgs,
        /// Write the keys that are in the table, or the keys that are absent, one per line, unchanged
        #[arg(long, value_name = "WHICH")]
        print: Option<Presence>,
        /// Terminate keys with NUL instead of line ends, in standard input and output
        #[arg(short = 'z', long)]
        null: bool,
    },
    /// Write the row with the largest key that is less than or equal to KEY
    ///
    /// For several keys, or keys from standard input, each row is preceded by the key that was looked up.
    ///
    /// Exit status: 0 if every key has such a row, 1 if some keys have none, 2 after an error.
    Floor {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the smallest key that is greater than or equal to KEY
    ///
    /// For several keys, or keys from standard input, each row is preceded by the key that was looked up.
    ///
    /// Exit status: 0 if every key has such a row, 1 if some keys have none, 2 after an error.
    Ceiling {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the smallest key
    First {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the largest key
    Last {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the rows of a range in key order; without bounds, all rows
    Range {
        #[command(flatten)]
        range: RangeArgs,
        /// Write the rows in descending key order
        #[arg(long)]
        reverse: bool,
        /// Write at most this many rows
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the rows whose keys begin with PREFIX, in key order; without PREFIX, all rows
    Scan {
        /// Write only rows whose keys begin with these bytes
        prefix: Option<OsString>,
        /// Write at most this many rows
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the number of keys in a range; without bounds, the number of all keys
    Count {
        #[command(flatten)]
        range: RangeArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct KeysArgs {
    /// Look up these keys: unsigned 64-bit decimals, or bytes. Pass `--` before the keys if one begins with
    /// `-`. A single `-` reads keys from standard input, one per line
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Decode escapes in keys, such as `\n`, `\x00`, and `\\`; --format escaped writes the same escapes
    #[arg(short, long)]
    pub(crate) escapes: bool,
}

#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// Choose the output format [default: csv, but raw for `get` with one key]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Write only keys, or only values
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<Part>,
    /// Write only these columns of a typed table, in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Terminate keys and rows with NUL instead of line ends, in standard input and in all formats except csv
    /// and json
    #[arg(short = 'z', long)]
    pub(crate) null: bool,
}

impl OutputArgs {
    /// Returns the options that write only keys, unchanged.
    pub(crate) fn for_keys(null: bool) -> OutputArgs {
        OutputArgs { format: Some(Format::Raw), only: Some(Part::Keys), columns: Vec::new(), null }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// Lines `key,value`, or in a typed table, with one field per column; quoted where necessary
    Csv,
    /// Unchanged bytes, with a tab between key and value
    Raw,
    /// Like raw, but bytes that are not printable ASCII are written as escapes, such as `\n` and `\xff`
    Escaped,
    /// Like raw, with bytes as hexadecimal digits; keys that are numbers stay decimal
    Hex,
    /// Lines `{"key":…,"value":"…"}`, or in a typed table, with one field per column; bytes that are not UTF-8 are
    /// written as `key_hex` or `value_hex`
    Json,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Part {
    Keys,
    Values,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Presence {
    Present,
    Absent,
}

#[derive(clap::Args, Default)]
pub(crate) struct RangeArgs {
    /// Begin at this key, inclusive
    #[arg(long, value_name = "KEY", conflicts_with = "after")]
    pub(crate) from: Option<OsString>,
    /// Begin after this key
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<OsString>,
    /// End at this key, inclusive
    #[arg(long, value_name = "KEY", conflicts_with = "before")]
    pub(crate) to: Option<OsString>,
    /// End before this key
    #[arg(long, value_name = "KEY")]
    pub(crate) before: Option<OsString>,
    /// Include only keys that begin with these bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["from", "after", "to", "before"])]
    pub(crate) prefix: Option<OsString>,
}
