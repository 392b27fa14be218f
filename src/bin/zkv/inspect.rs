//! `zkv inspect` and `zkv verify`: describe and verify a file.
//!
//! In: a baked file, intact or damaged. Out: its header and sections. For an intact file, also statistics of its rows.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use zero_kv::client::OwnedKey;
use zero_kv::counted::counted;
use zero_kv::format::checksum::BLOCK_LEN_BYTES;
use zero_kv::format::header::{HEADER_LEN_BYTES, Layout, SectionKind};
use zero_kv::format::record::VALUE_LEN_MAX_BYTES;
use zero_kv::printable::Printable;
use zero_kv::store::Unchecked;
use zero_kv::typed::{ColumnType, Schema};
use zero_kv::{KeyType, Lookup, MappedStore};

use crate::output::{DisplayKey, print, print_report, report_damage, written};
use crate::table::open_whole;
use crate::text_table::{Align, lines};

const PERCENTILE_DIGITS: u8 = 3;
const BAR_LEN: u128 = 40;

pub(crate) fn inspect(path: &Path, json: bool) -> anyhow::Result<bool> {
    let file = match Unchecked::open(path) {
        Ok(file) => file,
        Err(error) => return report_damage(error),
    };
    let (layout, damaged) = (file.layout().clone(), file.damaged_sections());
    let checked = file.check();
    let mut report = Report::new(path, &layout, &damaged);
    match &checked {
        Ok(store) => {
            report.schema = store.schema().map(|schema| SchemaReport::new(&schema));
            report.table = Some(RowStatistics::new(store)?);
        }
        Err(error) => report.damage = Some(error.to_string()),
    }
    print_report(&report, json)?;
    checked.map_or_else(report_damage, |_| Ok(true))
}

#[derive(Serialize)]
struct Report {
    file: String,
    len_bytes: u64,
    digest: String,
    format_version: u32,
    keys: String,
    layout: String,
    rows: u64,
    hash_seed: u64,
    record_align_bytes: usize,
    block_len_bytes: usize,
    parts: u64,
    pilots_per_part: u64,
    slots_per_part: u64,
    header_len_bytes: usize,
    sections: Vec<Section>,
    /// The schema. `None` for a table without a schema, and for a damaged file.
    schema: Option<SchemaReport>,
    /// Statistics of the rows. `None` for a damaged file.
    table: Option<RowStatistics>,
    damage: Option<String>,
}

#[derive(Serialize)]
struct Section {
    name: String,
    offset_bytes: u64,
    len_bytes: u64,
    checksum: String,
    is_damaged: bool,
}

impl Report {
    fn new(path: &Path, layout: &Layout, damaged: &[SectionKind]) -> Self {
        let (dimensions, parts) = (&layout.dimensions, layout.dimensions.parts());
        let sections = layout.sections().into_iter().map(|(kind, section)| Section {
            name: kind.to_string(),
            offset_bytes: section.offset_bytes,
            len_bytes: section.len_bytes,
            checksum: format!("{:016x}", section.checksum),
            is_damaged: damaged.contains(&kind),
        });
        Report {
            file: path.display().to_string(),
            len_bytes: layout.file_len_bytes(),
            digest: format!("{:032x}", layout.digest()),
            format_version: layout.version,
            keys: dimensions.key_type.to_string(),
            layout: dimensions.table_layout.to_string(),
            rows: dimensions.row_count,
            hash_seed: dimensions.hash_seed,
            record_align_bytes: dimensions.record_align_bytes,
            block_len_bytes: BLOCK_LEN_BYTES,
            parts: parts.count,
            pilots_per_part: parts.pilots,
            slots_per_part: parts.slots,
            header_len_bytes: HEADER_LEN_BYTES,
            sections: sections.collect(),
            schema: None,
            table: None,
            damage: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file          {}", Printable(&self.file))?;
        writeln!(f, "length        {} bytes", self.len_bytes)?;
        writeln!(f, "digest        {}", self.digest)?;
        writeln!(f, "format        version {}", self.format_version)?;
        writeln!(f, "keys          {}", self.keys)?;
        writeln!(f, "rows          {}", self.rows)?;
        writeln!(f, "layout        {}", self.layout)?;
        if self.pilots_per_part > 0 {
            writeln!(f, "hash seed     {}", self.hash_seed)?;
            let Report { parts, pilots_per_part, slots_per_part, .. } = self;
            writeln!(f, "parts         {parts}, each of {pilots_per_part} pilots and {slots_per_part} slots")?;
            writeln!(f, "aligned to    {} bytes", self.record_align_bytes)?;
        }
        writeln!(f, "blocks of     {} bytes", self.block_len_bytes)?;
        writeln!(f, "\n{:<12} {:>16} {:>16} {:>7}  checksum", "section", "offset", "length", "share")?;
        let share = |len_bytes: u64| 100.0 * len_bytes as f64 / self.len_bytes as f64;
        let header_len_bytes = self.header_len_bytes as u64;
        writeln!(f, "{:<12} {:>16} {header_len_bytes:>16} {:>5.1} %", "header", 0, share(header_len_bytes))?;
        for Section { name, offset_bytes, len_bytes, checksum, is_damaged } in &self.sections {
            let damaged = if *is_damaged { "  damaged" } else { "" };
            let share = share(*len_bytes);
            writeln!(f, "{name:<12} {offset_bytes:>16} {len_bytes:>16} {share:>5.1} %  {checksum}{damaged}")?;
        }
        self.schema.as_ref().map_or(Ok(()), |schema| schema.fmt(f))?;
        self.table.as_ref().map_or(Ok(()), |table| table.fmt(f))
    }
}

#[derive(Serialize)]
struct RowStatistics {
    first_key: Option<LossyJsonKey>,
    last_key: Option<LossyJsonKey>,
    /// The longest prefix that all keys share. `None` if keys are not bytes.
    common_prefix: Option<LossyJsonKey>,
    /// The file's length without the values, divided by the number of rows.
    overhead_bytes_per_row: f64,
    value_len_bytes: ValueLenStatistics,
}

/// A key in JSON: a number, or text in which U+FFFD replaces bytes that are not UTF-8.
struct LossyJsonKey(OwnedKey);

impl Serialize for LossyJsonKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            OwnedKey::U64(key) => serializer.serialize_u64(*key),
            OwnedKey::Bytes(key) => serializer.serialize_str(&String::from_utf8_lossy(key)),
        }
    }
}

impl RowStatistics {
    fn new(store: &MappedStore) -> anyhow::Result<Self> {
        let key_type = store.key_type();
        let [first, last] = [store.first()?, store.last()?]
            .map(|row| row.map(|(key, _)| OwnedKey::from(written(key_type, key.as_key(), &mut Vec::new()))));
        let is_bytes = key_type == KeyType::BYTES;
        let common_prefix = first.as_ref().zip(last.as_ref()).filter(|_| is_bytes).and_then(|(first, last)| {
            let (first, last) = (first.as_key(), last.as_key());
            let common = &first.as_bytes()?[..first.common_len_bytes(&last)];
            Some(OwnedKey::Bytes(common.to_vec()))
        });
        let value_len_bytes = ValueLenStatistics::new(store)?;
        let overhead_bytes = store.file_len_bytes() - value_len_bytes.sum;
        Ok(RowStatistics {
            first_key: first.map(LossyJsonKey),
            last_key: last.map(LossyJsonKey),
            common_prefix: common_prefix.map(LossyJsonKey),
            overhead_bytes_per_row: overhead_bytes as f64 / store.len().max(1) as f64,
            value_len_bytes,
        })
    }
}

impl fmt::Display for RowStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (&self.first_key, &self.last_key) else { return Ok(()) };
        writeln!(f, "\nfirst key     {}\nlast key      {}", DisplayKey(first.0.as_key()), DisplayKey(last.0.as_key()))?;
        if let Some(LossyJsonKey(prefix)) = &self.common_prefix {
            writeln!(f, "prefix of all {}", DisplayKey(prefix.as_key()))?;
        }
        writeln!(f, "overhead      {:.1} bytes per row", self.overhead_bytes_per_row)?;
        let ValueLenStatistics { sum, mean, p0, p50, p90, p99, p100, histogram } = &self.value_len_bytes;
        writeln!(f, "values        {sum} bytes, {mean:.1} on average")?;
        writeln!(f, "percentiles   p0 {p0}, p50 {p50}, p90 {p90}, p99 {p99}, p100 {p100}")?;
        writeln!(f, "\n{:>23} {:>12}", "bytes of a value", "rows")?;
        let rows_max = histogram.iter().map(|bin| bin.rows).max().unwrap_or(1);
        for Bin { least, most, rows } in histogram {
            let bar = "#".repeat((u128::from(*rows) * BAR_LEN / u128::from(rows_max)) as usize);
            let line = format!("{least:>10} to {most:>9} {rows:>12} {bar}");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Statistics of the lengths of values, in bytes.
#[derive(Serialize)]
struct ValueLenStatistics {
    sum: u64,
    mean: f64,
    p0: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p100: u64,
    /// The number of rows by length of the value. The first bin is for empty values, and each other bin begins at a
    /// power of two.
    histogram: Vec<Bin>,
}

#[derive(Serialize)]
pub(crate) struct Bin {
    least: u64,
    most: u64,
    rows: u64,
}

impl ValueLenStatistics {
    fn new(store: &MappedStore) -> anyhow::Result<Self> {
        let mut lens = Histogram::<u64>::new_with_max(VALUE_LEN_MAX_BYTES as u64, PERCENTILE_DIGITS)?;
        // The index of a bin is the number of significant bits of a length: lengths from 4 to 7 have 3 bits.
        let mut bins = [0; VALUE_LEN_MAX_BYTES.ilog2() as usize + 2];
        let (mut sum, mut min, mut max) = (0, u64::MAX, 0);
        for row in store.iter() {
            let len = row?.1.len() as u64;
            lens.record(len)?;
            bins[(u64::BITS - len.leading_zeros()) as usize] += 1;
            (sum, min, max) = (sum + len, min.min(len), max.max(len));
        }
        let percentile = |percent: f64| lens.value_at_percentile(percent).clamp(min.min(max), max);
        let histogram = bins.iter().enumerate().map(|(bits, rows)| Bin {
            least: (1 << bits) >> 1,
            most: (1 << bits) - 1,
            rows: *rows,
        });
        Ok(ValueLenStatistics {
            sum,
            mean: sum as f64 / store.len().max(1) as f64,
            p0: min.min(max),
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p100: max,
            histogram: histogram.filter(|bin| bin.least <= max && min <= bin.most).collect(),
        })
    }
}

#[derive(Serialize)]
struct SchemaReport {
    /// The schema's ID, as 16 hexadecimal digits.
    id: String,
    key_name: Option<String>,
    /// The length of the part that every row has.
    fixed_len_bytes: usize,
    columns: Vec<ColumnReport>,
}

#[derive(Serialize)]
struct ColumnReport {
    name: String,
    #[serde(rename = "type")]
    column_type: String,
    is_nullable: bool,
    /// The number of bytes that a value takes in every row. `None` if values have different lengths, and for a Boolean,
    /// which takes one bit.
    width_bytes: Option<usize>,
    #[serde(skip)]
    is_bit: bool,
}

impl SchemaReport {
    pub(crate) fn new(schema: &Schema) -> SchemaReport {
        let columns = schema.columns().iter().map(|column| ColumnReport {
            name: column.name.clone(),
            column_type: column.column_type.to_string(),
            is_nullable: column.is_nullable,
            width_bytes: column.column_type.fixed_len_bytes(),
            is_bit: column.column_type == ColumnType::Bool,
        });
        SchemaReport {
            id: format!("{:016x}", schema.id()),
            key_name: schema.key_name().map(str::to_owned),
            fixed_len_bytes: schema.fixed_len_bytes(),
            columns: columns.collect(),
        }
    }
}

impl fmt::Display for SchemaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nschema        {}", self.id)?;
        if let Some(name) = &self.key_name {
            writeln!(f, "key column    {}", Printable(name))?;
        }
        writeln!(f, "fixed part    {} bytes per row\n", self.fixed_len_bytes)?;
        let mut rows = vec![["column", "type", "nullable", "bytes"].map(str::to_owned)];
        for ColumnReport { name, column_type, is_nullable, width_bytes, is_bit } in &self.columns {
            let width = match width_bytes {
                Some(bytes) => bytes.to_string(),
                None if *is_bit => "1 bit".to_owned(),
                None => "varies".to_owned(),
            };
            let nullable = if *is_nullable { "yes" } else { "no" }.to_owned();
            rows.push([name.clone(), column_type.clone(), nullable, width]);
        }
        f.write_str(&lines([Align::Left, Align::Left, Align::Right, Align::Right], &rows))
    }
}

pub(crate) fn verify(path: &Path) -> anyhow::Result<bool> {
    let started = Instant::now();
    let store = match open_whole(path) {
        Ok(store) => store,
        Err(error) => return report_damage(error),
    };
    let (seconds, len_bytes) = (started.elapsed().as_secs_f64(), store.file_len_bytes());
    let rate = len_bytes as f64 / seconds / 1e9;
    let (name, rows) = (Printable(path.display()), counted(store.len(), "row"));
    print(|stdout| writeln!(stdout, "{name}: intact: {rows}, {len_bytes} bytes in {seconds:.2} s, {rate:.2} GB/s"))?;
    Ok(true)
}
