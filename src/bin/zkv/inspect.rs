//! What a file holds.
//!
//! In: a baked file, whole or damaged. Out: what its header says, where its
//! sections are, and, if it is whole, what its rows are like.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use zero_kv::client::OwnedKey;
use zero_kv::format::checksum::BLOCK_LEN_BYTES;
use zero_kv::format::header::{HEADER_LEN_BYTES, Layout, SectionKind, VERSION};
use zero_kv::format::record::VALUE_LEN_MAX_BYTES;
use zero_kv::store::Unchecked;
use zero_kv::{KeyKind, MappedStore};

use crate::output::{Shown, settle_stdout, tell_damage, write_json};

/// Percentiles are told to so many digits.
const PERCENTILE_DIGITS: u8 = 3;
/// The longest bar of the histogram.
const BAR_LEN: u128 = 40;

/// Whether the file is whole.
pub(crate) fn inspect(path: &Path, json: bool) -> anyhow::Result<bool> {
    let file = match Unchecked::open(path) {
        Ok(file) => file,
        Err(error) => return tell_damage(error),
    };
    let (layout, damaged) = (file.layout().clone(), file.damaged_sections());
    let checked = file.check();
    let mut report = Report::new(path, &layout, &damaged);
    match &checked {
        Ok(store) => report.table = Some(Table::of(store)?),
        Err(error) => report.damage = Some(error.to_string()),
    }
    let mut output = io::stdout().lock();
    let written = if json { write_json(&mut output, &report) } else { write!(output, "{report}") };
    settle_stdout(written.and_then(|()| output.flush()))?;
    checked.map_or_else(tell_damage, |_| Ok(true))
}

#[derive(Serialize)]
struct Report {
    file: String,
    len_bytes: u64,
    digest: String,
    format_version: u32,
    keys: &'static str,
    rows: u64,
    hash_seed: u64,
    record_align_bytes: usize,
    block_len_bytes: usize,
    parts: u64,
    pilots_per_part: u64,
    slots_per_part: u64,
    header_len_bytes: usize,
    sections: Vec<Section>,
    /// Of a damaged file, nothing is told of its rows.
    table: Option<Table>,
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
            format_version: VERSION,
            // As `baker --keys` calls them.
            keys: match dimensions.key_kind {
                KeyKind::U64 => "u64",
                KeyKind::Bytes => "bytes",
            },
            rows: dimensions.row_count,
            hash_seed: dimensions.hash_seed,
            record_align_bytes: dimensions.record_align_bytes,
            block_len_bytes: BLOCK_LEN_BYTES,
            parts: parts.count,
            pilots_per_part: parts.pilots,
            slots_per_part: parts.slots,
            header_len_bytes: HEADER_LEN_BYTES,
            sections: sections.collect(),
            table: None,
            damage: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file          {}", self.file)?;
        writeln!(f, "length        {} bytes", self.len_bytes)?;
        writeln!(f, "digest        {}", self.digest)?;
        writeln!(f, "format        version {}", self.format_version)?;
        writeln!(f, "keys          {}", self.keys)?;
        writeln!(f, "rows          {}", self.rows)?;
        writeln!(f, "hash seed     {}", self.hash_seed)?;
        let Report { parts, pilots_per_part, slots_per_part, .. } = self;
        writeln!(f, "parts         {parts}, each of {pilots_per_part} pilots and {slots_per_part} slots")?;
        writeln!(f, "aligned to    {} bytes", self.record_align_bytes)?;
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
        self.table.as_ref().map_or(Ok(()), |table| table.fmt(f))
    }
}

#[derive(Serialize)]
struct Table {
    first_key: Option<JsonText>,
    last_key: Option<JsonText>,
    /// What all keys begin with. Numbers have none.
    common_prefix: Option<JsonText>,
    /// Bytes of the file that are not bytes of a value.
    overhead_bytes_per_row: f64,
    value_len_bytes: ValueLen,
}

/// A key in JSON: a number, or text with what is no UTF-8 replaced.
struct JsonText(OwnedKey);

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            OwnedKey::U64(key) => serializer.serialize_u64(*key),
            OwnedKey::Bytes(key) => serializer.serialize_str(&String::from_utf8_lossy(key)),
        }
    }
}

impl Table {
    fn of(store: &MappedStore) -> anyhow::Result<Self> {
        let [first, last] = [store.first()?, store.last()?].map(|row| row.map(|(key, _)| key));
        let common_prefix = first.as_ref().zip(last.as_ref()).and_then(|(first, last)| {
            let (first, last) = (first.as_key(), last.as_key());
            let common = &first.as_bytes()?[..first.common_len_bytes(&last)];
            Some(OwnedKey::Bytes(common.to_vec()))
        });
        let value_len_bytes = ValueLen::of(store)?;
        let overhead_bytes = store.file_len_bytes() - value_len_bytes.sum;
        Ok(Table {
            first_key: first.map(JsonText),
            last_key: last.map(JsonText),
            common_prefix: common_prefix.map(JsonText),
            overhead_bytes_per_row: overhead_bytes as f64 / store.len().max(1) as f64,
            value_len_bytes,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without rows there is nothing to tell of them.
        let (Some(first), Some(last)) = (&self.first_key, &self.last_key) else { return Ok(()) };
        writeln!(f, "\nfirst key     {}\nlast key      {}", Shown(first.0.as_key()), Shown(last.0.as_key()))?;
        if let Some(JsonText(prefix)) = &self.common_prefix {
            writeln!(f, "prefix of all {}", Shown(prefix.as_key()))?;
        }
        writeln!(f, "overhead      {:.1} bytes a row", self.overhead_bytes_per_row)?;
        let ValueLen { sum, mean, p0, p50, p90, p99, p100, histogram } = &self.value_len_bytes;
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

/// How long values are, in bytes.
#[derive(Serialize)]
struct ValueLen {
    sum: u64,
    mean: f64,
    p0: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p100: u64,
    /// By powers of two, from the shortest value to the longest.
    histogram: Vec<Bin>,
}

#[derive(Serialize)]
struct Bin {
    least: u64,
    most: u64,
    rows: u64,
}

impl ValueLen {
    fn of(store: &MappedStore) -> anyhow::Result<Self> {
        let mut lens = Histogram::<u64>::new_with_max(VALUE_LEN_MAX_BYTES as u64, PERCENTILE_DIGITS)?;
        // By the number of bits that a length has.
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
        Ok(ValueLen {
            sum,
            mean: sum as f64 / store.len().max(1) as f64,
            p0: min.min(max),
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p100: max,
            histogram: histogram
                .filter(|bin| (min..=max).contains(&bin.least) || (min..=max).contains(&bin.most))
                .collect(),
        })
    }
}
