//! The command-line options of `baker`.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand, ValueEnum};
use zero_kv::bake::{
    BadRows, Cancel, Column, Duplicates, Format, Keys, Options, Overlaps, Quote, RangeEnds, Shards, TableLayout,
    TypedColumns, ValueSpec, parse_types,
};
use zero_kv::cli::args::{GenerationArgs, ReplaceArgs, parse_url};
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;
use zero_kv::cli::values::parse_size;
use zero_kv::format::key_type::PART_COUNT_MAX;
#[cfg(feature = "object-store")]
use zero_kv::replace::ReplaceRules;
use zero_kv::slots::SlotRange;
use zero_kv::typed::{ColumnType, SchemaError};
use zero_kv::{DEFAULT_FILE, KeyType, KeyTypeError, PartType};

const EXAMPLES: &[CommandExamples] = &[
    (
        "",
        &[
            ("Bake rows of key,value into ./storage.db", "baker rows.csv"),
            (
                "Read the key and the value from named columns",
                "baker --header --key id --value name -o names.db names.csv",
            ),
            (
                "Bake the output of another program, with keys of bytes",
                "sort -u users.csv | baker --keys bytes -o users.db -",
            ),
            ("Bake a typed table", "baker --header --key id --types 'price:f32,name:text?' -o items.db items.csv"),
            ("Bake a table of ranges from a list of blocks of addresses", "baker --cidr 1 -o countries.db blocks.csv"),
            ("Replace and add rows of an existing table", "baker --base storage.db delta.csv"),
            (
                "Skip at most 10 malformed rows, and list them in a file",
                "baker --bad-rows skip --max-bad-rows 10 --bad-rows-file bad.csv rows.csv",
            ),
            ("Bake a table, and publish it to an object store", "baker rows.csv -o users.db --to s3://tables/users"),
        ],
    ),
    (
        "merge",
        &[(
            "Merge two tables; if both have a key, the row of the second one is kept",
            "baker merge a.db b.db --duplicates last -o both.db",
        )],
    ),
];

const BAD_ROWS_MAX: u64 = 1000;

/// Compiles rows of `key,value` into an immutable file that kv_store serves
///
/// Keys are unsigned 64-bit decimals or of the type that --keys selects, such as bytes or ip. Values are any bytes. Rows may come in any
/// order. After any failure, the old file stays in place.
#[derive(Parser)]
#[command(
    name = "baker",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) rows: BakeArgs,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Merge tables whose keys have one type; to bake a file named `merge`, pass `./merge`
    Merge(MergeArgs),
}

#[derive(clap::Args)]
pub(crate) struct MergeArgs {
    /// Merge these baked files; with --duplicates first or last, their order decides which row is kept
    #[arg(required = true, value_name = "TABLE", help_heading = "Input")]
    pub(crate) tables: Vec<PathBuf>,
    /// Choose what happens to a key that several tables have
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "error",
        value_parser = one_of(DUPLICATES),
        help_heading = "Rows",
    )]
    duplicates: Duplicates,
    /// Choose the row of a key that ranges of several tables contain
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "error",
        value_parser = one_of(OVERLAPS),
        help_heading = "Rows",
    )]
    overlaps: Overlaps,
    #[command(flatten)]
    slots: SlotArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    resources: ResourceArgs,
}

#[derive(clap::Args)]
pub(crate) struct BakeArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    slots: SlotArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    publish: PublishArgs,
    #[command(flatten)]
    resources: ResourceArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputArgs {
    /// Read these files as one table; `-` is standard input
    ///
    /// The files may be compressed (gzip, Zstandard). Quoted names may contain the wildcards `*`, `?`, `[…]`, and `**`.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Start from this table, whose rows the inputs replace or remove
    ///
    /// All other rows are kept. The output may replace this table.
    #[arg(long, value_name = "TABLE")]
    pub(crate) base: Option<PathBuf>,
    /// Choose the format of the inputs
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = one_of(FORMATS))]
    format: Format,
    /// Expect this byte between fields, such as `;` or `\t`
    ///
    /// `\t` is a tab. [default: a comma; in TSV, a tab]
    #[arg(short, long, value_name = "BYTE", value_parser = one_byte)]
    delimiter: Option<u8>,
    /// Read column names from the first row
    #[arg(long)]
    header: bool,
    /// Confirm that the first row is a row, even if it looks like a header
    #[arg(long, conflicts_with = "header")]
    pub(crate) no_header: bool,
    /// Expect quotes of this byte around fields, or none
    ///
    /// [default: `"`; none if tabs separate the fields]
    #[arg(long, value_name = "BYTE", value_parser = quote)]
    quote: Option<Quote>,
    /// Read a quote or a delimiter after this byte as text
    ///
    /// In quoted fields, the byte precedes a quote or itself. Without quotes, it precedes a delimiter, a line end, or
    /// itself, and `\n`, `\t`, and others are control characters.
    #[arg(long, value_name = "BYTE", value_parser = one_byte)]
    escape: Option<u8>,
    /// Take fields with this text, such as `\N` or NA, as null
    ///
    /// The option can be repeated. An empty text stands for empty fields. [default: empty fields of columns that can be
    /// null]
    #[arg(long, value_name = "TEXT")]
    null: Vec<OsString>,
    /// Skip lines that begin with this byte
    #[arg(long, value_name = "BYTE", value_parser = one_byte)]
    comment: Option<u8>,
    /// Skip this many lines at the beginning of each input
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    skip_lines: u64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Rows")]
struct RowArgs {
    /// Take the key from this column, or the parts of composite keys from these columns
    ///
    /// A column is a number counted from 1, or a name if --header is given or the input is Parquet; in JSON Lines, always
    /// a name.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    key: Vec<Column>,
    /// Bake a table of ranges, whose first and last keys are in these columns
    ///
    /// Columns of --key have the parts of the keys before them. A row belongs to all keys from its first to its last one.
    /// Adjacent ranges with equal values become one row.
    #[arg(long, value_name = "START,END", value_parser = two_columns, conflicts_with = "cidr")]
    ranges: Option<[Column; 2]>,
    /// Bake a table of ranges, whose blocks of addresses, such as 192.0.2.0/24, are in this column
    ///
    /// The type of the keys is ip by default.
    #[arg(long, value_name = "COLUMN")]
    cidr: Option<Column>,
    /// Choose the row of a key in several ranges [default: error; with --cidr, narrowest]
    #[arg(long, value_name = "POLICY", value_parser = one_of(OVERLAPS))]
    overlaps: Option<Overlaps>,
    /// Take the value from this column
    #[arg(long, value_name = "COLUMN", conflicts_with = "columns")]
    value: Option<Column>,
    /// Pack these columns, with their names, into a JSON object, which becomes the value; in a typed table, store these
    /// columns in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    columns: Vec<Column>,
    /// Bake a typed table: store columns with names and types. Without --types, Parquet files determine the types, and
    /// other types are inferred from the first input and printed
    #[arg(long, conflicts_with_all = ["value", "delete_marker"])]
    typed: bool,
    /// Bake a typed table with these columns, in this order; the key's type may be listed, too, and selects --keys
    ///
    /// Types: bool, i8 to i64, u8 to u64, f32, f64, text, bytes, date, timestamp, timestamp(ms), decimal(10,2),
    /// list(f32), list(f32,128), list(text); a `?` after a type allows null
    #[arg(long, value_name = "NAME:TYPE,…", value_parser = types, conflicts_with_all = ["value", "delete_marker"])]
    types: Option<Types>,
    /// Reject an input that lacks a column of the typed table, even if the column can be null
    #[arg(long)]
    require_columns: bool,
    /// Convert the values of the base's columns whose types have changed; a value that does not fit exactly is a bad
    /// row
    #[arg(long, requires = "base")]
    cast: bool,
    /// Choose the type of the keys [default: the type of the base's keys; without --base, auto if types are inferred,
    /// otherwise u64]
    ///
    /// u64, i64, ipv4, ip (IPv4 and IPv6), uuid, hex, date, timestamp, bytes, or auto: u64 if every key is a decimal
    /// without leading zeros, otherwise bytes. Keys of several parts have a type per part: bytes,date.
    #[arg(long, value_name = "TYPE", value_parser = KeysParser, hide_possible_values = true)]
    keys: Option<Keys>,
    /// Choose what happens to rows with the same key; the order of the inputs decides which row is first
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = one_of(DUPLICATES))]
    duplicates: Duplicates,
    /// Remove the key of each row that has this value
    #[arg(long, value_name = "TEXT")]
    delete_marker: Option<OsString>,
    /// Remove the key of each row in which this column is 1, true, t, yes, or y
    #[arg(long, value_name = "COLUMN")]
    delete_column: Option<Column>,
    /// Choose what happens to bad rows
    #[arg(long, value_name = "POLICY", default_value = "error")]
    bad_rows: BadRowsArg,
    /// Write each skipped row to this file, with its input, its line number, and the reason why it was skipped
    #[arg(long, value_name = "FILE")]
    bad_rows_file: Option<PathBuf>,
    /// Skip at most this many bad rows; the next bad row is an error [default: 1000]
    #[arg(long, value_name = "COUNT")]
    max_bad_rows: Option<u64>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Rows")]
struct SlotArgs {
    /// Bake only the rows whose keys have these slots of Redis Cluster (0 to 16383): one shard of a larger table
    #[arg(long, value_name = "FIRST-LAST")]
    slots: Option<SlotRange>,
    /// Write this many tables, each with an equal share of the slots, into the folder that --output names
    #[arg(long, value_name = "COUNT", conflicts_with = "shard_size", requires = "output")]
    shards: Option<u16>,
    /// Write as few tables as possible, each of at most this size, into the folder that --output names
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "output")]
    shard_size: Option<u64>,
}

impl SlotArgs {
    fn shards(&self) -> Option<Shards> {
        self.shards.map(Shards::Count).or(self.shard_size.map(Shards::MaxLenBytes))
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write the table to this file, or the shards to this new or empty folder
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) output: PathBuf,
    /// Choose the layout
    ///
    /// The layout decides how the file stores rows.
    #[arg(long, value_name = "LAYOUT", default_value = "fast", value_parser = one_of(LAYOUTS))]
    layout: TableLayout,
    /// Choose the checks
    ///
    /// The file is checked before it is put in place.
    #[arg(long, value_name = "HOW", default_value = "sample", action = ArgAction::Set, value_parser = one_of(VERIFY))]
    verify: bool,
    #[command(flatten)]
    replace: ReplaceArgs,
    /// Write a JSON report to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The published table that the file becomes a generation of.
#[derive(clap::Args)]
#[command(next_help_heading = "Publishing")]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads them"))]
pub(crate) struct PublishArgs {
    /// Publish the file to the table at this URL: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or
    /// file:///PATH
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) generation: GenerationArgs,
    /// Publish although the table has at most half of the rows of the preceding generation
    #[arg(long, requires = "to")]
    pub(crate) allow_shrink: bool,
    /// Publish although the table has other columns than the preceding generation
    #[arg(long, requires = "to")]
    pub(crate) allow_schema_change: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Resources")]
struct ResourceArgs {
    /// Use at most this much memory, such as 512MiB or 2GB; rows that do not fit are sorted in temporary files
    /// [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Run this many threads [default: the number of processors]
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZero<usize>>,
    /// Write temporary files to this folder [default: the output's folder]
    #[arg(long, value_name = "FOLDER")]
    temp_dir: Option<PathBuf>,
}

/// The names that an option accepts. Each name has its help text and the value that it selects.
type Choices<T> = [(&'static str, &'static str, T)];

const FORMATS: &Choices<Format> = &[
    (
        "auto",
        "Detect Parquet by its first bytes, and other formats by the file's name: .jsonl, .ndjson, and .json are \
         JSON, .tsv is TSV, and all other names are CSV",
        Format::Auto,
    ),
    ("csv", "Delimited text, RFC 4180", Format::Delimited),
    ("tsv", "Text with tabs between fields", Format::Tsv),
    ("jsonl", "JSON objects: one per line, in a list, or one after the other", Format::JsonLines),
    ("parquet", "Apache Parquet", Format::Parquet),
];

const DUPLICATES: &Choices<Duplicates> = &[
    ("error", "Reject the input, naming both rows", Duplicates::Error),
    ("first", "Keep the first row", Duplicates::First),
    ("last", "Keep the last row", Duplicates::Last),
];

const OVERLAPS: &Choices<Overlaps> = &[
    ("error", "Reject the input, naming two of the rows", Overlaps::Error),
    ("first", "To the row that is first in the inputs", Overlaps::First),
    ("last", "To the row that is last in the inputs", Overlaps::Last),
    ("narrowest", "To the row with the narrowest range; for blocks, this is the longest prefix", Overlaps::Narrowest),
];

/// Whether every row is compared.
const LAYOUTS: &Choices<TableLayout> = &[
    ("fast", "For the fastest lookups", TableLayout::Fast),
    ("compact", "For the smallest file, with keys that are numbers", TableLayout::Compact),
];

const VERIFY: &Choices<bool> = &[
    ("sample", "Verify all checksums, and look up all keys, or a sample if the index does not fit into memory", false),
    ("full", "Like sample; also compare every row of the file with the sorted row that it was written from", true),
];

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum BadRowsArg {
    /// Reject the input, naming the row
    Error,
    /// Skip the rows, up to --max-bad-rows
    Skip,
}

impl Args {
    pub(crate) fn options(&self, cancel: &Cancel) -> Result<Options, clap::Error> {
        let mut options = Options::default();
        options.cancel = cancel.clone();
        match &self.command {
            None => self.rows.fill(&mut options)?,
            Some(Command::Merge(merge)) => {
                options.duplicates = merge.duplicates;
                options.overlaps = merge.overlaps;
                options.keys = Keys::Auto;
                options.slots = merge.slots.slots;
                merge.output.fill(&mut options);
                merge.resources.fill(&mut options);
            }
        }
        if options.slots.is_some_and(|slots| slots != SlotRange::ALL) && self.publishes() {
            return Err(usage_error(
                "--to cannot be used with --slots, because a published table has all slots: divide the table with \
                 --shards, or publish all shards together with zkv publish",
            ));
        }
        Ok(options)
    }

    /// Returns how to divide the table into shards, if the options ask for this.
    pub(crate) fn shards(&self) -> Option<Shards> {
        match &self.command {
            None => self.rows.slots.shards(),
            Some(Command::Merge(merge)) => merge.slots.shards(),
        }
    }

    pub(crate) fn output(&self) -> &OutputArgs {
        match &self.command {
            None => &self.rows.output,
            Some(Command::Merge(merge)) => &merge.output,
        }
    }
}

#[cfg(feature = "object-store")]
impl Args {
    fn publishes(&self) -> bool {
        self.publish().to.is_some()
    }

    pub(crate) fn publish(&self) -> &PublishArgs {
        match &self.command {
            None => &self.rows.publish,
            Some(Command::Merge(merge)) => &merge.publish,
        }
    }

    pub(crate) fn replace_rules(&self) -> ReplaceRules {
        self.output().replace.rules()
    }
}

#[cfg(not(feature = "object-store"))]
impl Args {
    fn publishes(&self) -> bool {
        false
    }
}

fn usage_error(message: &str) -> clap::Error {
    command().error(ErrorKind::ArgumentConflict, message)
}

impl BakeArgs {
    fn fill(&self, options: &mut Options) -> Result<(), clap::Error> {
        let (input, rows) = (&self.input, &self.rows);
        if input.inputs[0] == Path::new("merge") {
            return Err(usage_error(
                "options of merge must follow it: baker merge TABLE… OPTIONS; to bake a file named merge, pass ./merge",
            ));
        }
        let columns = &rows.columns;
        if (1..columns.len()).any(|later| columns[..later].contains(&columns[later])) {
            return Err(usage_error("--columns names a column twice: name it once"));
        }
        options.format = input.format;
        options.delimiter = input.delimiter;
        options.header = input.header;
        options.quote = input.quote.unwrap_or_default();
        options.escape = input.escape;
        options.comment = input.comment;
        options.skip_lines = input.skip_lines;
        options.null_texts = input.null.iter().cloned().map(OsString::into_vec).collect();
        (options.ranges, options.overlaps) = rows.ranges()?;
        let mut key = rows.key_columns();
        options.key = key.next().cloned();
        options.more_key_columns = key.cloned().collect();
        options.typed = rows.typed()?;
        options.value = match &rows.value {
            _ if options.typed.is_some() => ValueSpec::Unnamed,
            Some(value) => ValueSpec::Column(value.clone()),
            None if rows.columns.is_empty() => ValueSpec::Unnamed,
            None => ValueSpec::Packed(rows.columns.clone()),
        };
        options.base = input.base.clone();
        options.keys = match (rows.keys, &input.base) {
            (Some(keys), _) if rows.contradicts(keys) => {
                return Err(usage_error("--keys contradicts the type of the key in --types: give only one of them"));
            }
            (Some(keys), _) => keys,
            (None, Some(_)) => Keys::Auto,
            (None, None) => rows.default_keys(self.slots.slots.is_some())?,
        };
        options.duplicates = rows.duplicates;
        options.delete_marker = rows.delete_marker.clone().map(OsString::into_vec);
        options.delete_column = rows.delete_column.clone();
        options.bad_rows = rows.bad_rows()?;
        options.slots = self.slots.slots;
        if options.slots.is_some() && rows.keys == Some(Keys::Auto) && input.base.is_none() {
            return Err(usage_error(
                "with --slots, give the type of the keys (--keys u64): the rows of these slots do not show the type of \
                 all keys",
            ));
        }
        self.output.fill(options);
        self.resources.fill(options);
        Ok(())
    }

    /// Returns whether the type of the keys comes from a file that states it.
    #[cfg(feature = "parquet")]
    pub(crate) fn leaves_keys_to_file(&self) -> bool {
        let rows = &self.rows;
        rows.keys.is_none() && rows.types.is_none() && rows.cidr.is_none() && self.input.base.is_none()
    }

    pub(crate) fn bad_rows_file(&self) -> Option<&PathBuf> {
        self.rows.bad_rows_file.as_ref()
    }
}

impl RowArgs {
    /// Returns the columns of a typed table, if the options ask for one.
    fn typed(&self) -> Result<Option<TypedColumns>, clap::Error> {
        if !self.typed && self.types.is_none() {
            return match self.cast {
                true => Err(usage_error("--cast requires --typed or --types: pass one of them")),
                false if self.require_columns => {
                    Err(usage_error("--require-columns requires --typed or --types: pass one of them"))
                }
                false => Ok(None),
            };
        }
        let mut typed = TypedColumns::default();
        typed.types = self.types.clone().map_or_else(Vec::new, |types| types.0);
        typed.columns = self.columns.clone();
        typed.require_columns = self.require_columns;
        typed.cast = self.cast;
        Ok(Some(typed))
    }

    /// Returns the columns of the parts of keys. In a table of ranges, the last one has the starts or the blocks.
    fn key_columns(&self) -> impl Iterator<Item = &Column> {
        let start = self.ranges.as_ref().map(|[start, _]| start);
        self.key.iter().chain(start).chain(&self.cidr)
    }

    /// Returns the type of the keys, unless an option or a base decides it.
    fn default_keys(&self, has_slots: bool) -> Result<Keys, clap::Error> {
        let last = match (&self.ranges, &self.cidr) {
            (Some(_), _) => PartType::U64,
            (None, Some(_)) => PartType::Ip,
            // The types of all columns are inferred, and so is the kind of the keys.
            (None, None) if self.key.len() < 2 && self.types.is_none() && self.typed && !has_slots => {
                return Ok(Keys::Auto);
            }
            (None, None) if self.key.len() < 2 => PartType::U64,
            (None, None) => PartType::Bytes,
        };
        key_type_of_parts(self.key_columns().count().max(1), last).map(Keys::Type)
    }

    fn ranges(&self) -> Result<(Option<RangeEnds>, Overlaps), clap::Error> {
        let (ends, default) = match (&self.ranges, &self.cidr) {
            (Some([_, end]), _) => (RangeEnds::Column(end.clone()), Overlaps::Error),
            (None, Some(_)) => (RangeEnds::Blocks, Overlaps::Narrowest),
            (None, None) if self.overlaps.is_some() => {
                return Err(usage_error("--overlaps requires --ranges or --cidr: pass one of them"));
            }
            (None, None) => return Ok((None, Overlaps::Error)),
        };
        Ok((Some(ends), self.overlaps.unwrap_or(default)))
    }

    /// Returns whether the type of the key column selects other keys than `keys`.
    fn contradicts(&self, keys: Keys) -> bool {
        let mut columns = self.key_columns();
        let (Some(key), None) = (columns.next(), columns.next()) else { return false };
        let key = key.name();
        let types = self.types.iter().flat_map(|types| &types.0);
        let mut of_key = types.filter(|column| Some(column.name.as_str()) == key);
        // Text and bytes can be the written form of keys of any type, apart from the default.
        let expected = |column_type| match column_type {
            ColumnType::U64 => Some(Keys::U64),
            ColumnType::I64 => Some(Keys::Type(KeyType::of(PartType::I64))),
            ColumnType::Date => Some(Keys::Type(KeyType::of(PartType::Date))),
            ColumnType::Timestamp(_) => Some(Keys::Type(KeyType::of(PartType::Timestamp))),
            _ => None,
        };
        of_key.any(|column| match expected(column.column_type) {
            Some(expected) => expected != keys,
            None => keys == Keys::U64,
        })
    }

    fn bad_rows(&self) -> Result<BadRows, clap::Error> {
        let (file, max) = (self.bad_rows_file.clone(), self.max_bad_rows);
        match self.bad_rows {
            BadRowsArg::Skip => Ok(BadRows::Skip { file, max: max.unwrap_or(BAD_ROWS_MAX) }),
            BadRowsArg::Error if file.is_some() => {
                Err(usage_error("--bad-rows-file requires --bad-rows skip: pass both"))
            }
            BadRowsArg::Error if max.is_some() => {
                Err(usage_error("--max-bad-rows requires --bad-rows skip: pass both"))
            }
            BadRowsArg::Error => Ok(BadRows::Refuse),
        }
    }
}

impl OutputArgs {
    fn fill(&self, options: &mut Options) {
        options.layout = self.layout;
        options.compare_rows = self.verify;
        options.replace = self.replace.rules();
    }
}

impl ResourceArgs {
    fn fill(&self, options: &mut Options) {
        options.memory_bytes = self.memory;
        options.threads = self.threads;
        options.temp_dir = self.temp_dir.clone();
    }
}

/// Returns the parser of an option that accepts these names.
fn one_of<T: Copy + Send + Sync + 'static>(choices: &'static Choices<T>) -> ValueParser {
    let names = choices.iter().map(|(name, help, _)| PossibleValue::new(name).help(help));
    let chosen = |name: String| choices.iter().find(|(other, ..)| *other == name).map(|(.., value)| *value);
    PossibleValuesParser::new(names).map(move |name| chosen(name).expect("clap accepts only these names")).into()
}

/// Returns the type of composite keys whose parts are bytes.
fn key_type_of_parts(part_count: usize, last: PartType) -> Result<KeyType, clap::Error> {
    let mut parts = vec![PartType::Bytes; part_count];
    parts[part_count - 1] = last;
    KeyType::of_parts(&parts).ok_or_else(|| {
        usage_error(&format!("--key has {part_count} columns, and a key has at most {PART_COUNT_MAX} parts"))
    })
}

/// Parses the type of the keys. The types of single parts are offered as completions.
#[derive(Clone)]
struct KeysParser;

impl TypedValueParser for KeysParser {
    type Value = Keys;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<Keys, clap::Error> {
        let parse = |text: &str| match text {
            "auto" => Ok(Keys::Auto),
            _ => text.parse().map(Keys::Type).map_err(|error: KeyTypeError| format!("{error}, or auto")),
        };
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = PartType::ALL.into_iter().map(PartType::name).chain(["auto"]);
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

fn two_columns(text: &str) -> Result<[Column; 2], String> {
    let column = |text: &str| text.parse().unwrap_or_else(|never: Infallible| match never {});
    match text.split_once(',') {
        Some((start, end)) if !start.is_empty() && !end.is_empty() && !end.contains(',') => {
            Ok([start, end].map(column))
        }
        _ => Err("two columns with a comma between them were expected, such as start,end".to_owned()),
    }
}

fn one_byte(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] => Ok(*byte),
        _ => Err("one byte was expected, such as `;`, `\\`, or `\\t` (a tab)".to_owned()),
    }
}

fn quote(text: &str) -> Result<Quote, String> {
    match text {
        "none" => Ok(Quote::None),
        _ => one_byte(text).map(Quote::Byte).map_err(|_| "one byte or `none` was expected".to_owned()),
    }
}

#[derive(Clone)]
struct Types(Vec<zero_kv::typed::Column>);

fn types(text: &str) -> Result<Types, SchemaError> {
    parse_types(text).map(Types)
}

pub(crate) fn command() -> clap::Command {
    add_examples(generate::with_option(Args::command()), EXAMPLES)
}

// Some examples of the help need optional features.
#[cfg(all(test, feature = "full"))]
mod tests {
    use clap::FromArgMatches;
    use zero_kv::bake::Cancel;
    use zero_kv::cli::examples::check_examples;
    use zero_kv::cli::values::check_spellings;

    use super::*;

    #[test]
    fn all_sizes_accept_the_same_spellings() {
        check_spellings(&command());
    }

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, |args| {
            let args = command().try_get_matches_from(args).and_then(|matches| Args::from_arg_matches(&matches));
            args.and_then(|args| args.options(&Cancel::default())).map(drop).map_err(|error| error.to_string())
        });
    }
}
