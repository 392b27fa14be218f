//! The report of a bake: one line of text for people, or a JSON object for programs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use zero_kv::bake::{OtherLayout, Report, ShardReport, TableFacts};
use zero_kv::counted::counted;

pub(crate) enum Baked {
    Table(Box<Report>),
    /// The shards of a table, at least one.
    Shards(Vec<ShardReport>),
}

impl Baked {
    fn first(&self) -> &Report {
        match self {
            Baked::Table(report) => report,
            Baked::Shards(shards) => &shards[0].report,
        }
    }

    fn sum(&self, fact: impl Fn(&Report) -> u64) -> u64 {
        match self {
            Baked::Table(report) => fact(report),
            Baked::Shards(shards) => shards.iter().map(|shard| fact(&shard.report)).sum(),
        }
    }

    /// Returns the length that all files would have with the other layout.
    fn other_layout(&self) -> Option<OtherLayout> {
        match self {
            Baked::Table(report) => report.other_layout,
            Baked::Shards(shards) => {
                let others = shards.iter().map(|shard| shard.report.other_layout);
                others.reduce(|all, other| all.zip(other).map(|(all, other)| all.plus(other)))?
            }
        }
    }

    /// Returns the length of the files without keys and values, per row.
    fn overhead_bytes_per_row(&self) -> f64 {
        let rows = self.sum(|report| report.rows);
        let overhead = |report: &Report| report.overhead_bytes_per_row() * report.rows as f64;
        match self {
            Baked::Table(report) => report.overhead_bytes_per_row(),
            Baked::Shards(shards) => {
                shards.iter().map(|shard| overhead(&shard.report)).sum::<f64>() / rows.max(1) as f64
            }
        }
    }
}

pub(crate) fn summary(output: &Path, baked: &Baked, took: Duration) -> String {
    let (report, seconds) = (baked.first(), took.as_secs_f64());
    let counts = [
        (report.duplicates_dropped, "duplicates dropped"),
        (report.bad_rows, "bad rows skipped"),
        (report.base_replaced, "replaced"),
        (report.base_removed, "removed"),
        (report.absent_removed, "removals of absent keys"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
    let why = match &report.first_text_key {
        Some((input, line)) => format!(", because the key on {input}:{line} is not a number"),
        None => String::new(),
    };
    let files = match baked {
        Baked::Table(_) => String::new(),
        Baked::Shards(shards) => format!("{}, ", counted(shards.len(), "shard")),
    };
    let rows = baked.sum(|report| report.rows);
    let other = match baked.other_layout() {
        Some(OtherLayout { layout, len_bytes, is_exact, .. }) => {
            let about = if is_exact { "" } else { "about " };
            format!(" (--layout {layout}: {about}{len_bytes})")
        }
        None => String::new(),
    };
    format!(
        "{}: {files}{}{counts}, {} bytes{other} in {seconds:.2} s, {:.0} rows/s, {:.1} bytes of overhead per row; keys are \
         {}{why}",
        output.display(),
        counted(rows, "row"),
        baked.sum(|report| report.file_len_bytes),
        rows as f64 / seconds,
        baked.overhead_bytes_per_row(),
        report.key_type,
    )
}

/// Returns the report as JSON, with the fields that docs/operations/bake.md describes.
pub(crate) fn json(output: &Path, baked: &Baked, took: Duration) -> Value {
    let report = baked.first();
    let inputs = report.inputs.iter().map(|input| {
        json!({
            "name": input.name,
            "len_bytes": input.len_bytes,
            "xxh3_128": hex(input.digest),
            "compression": input.compression.to_string(),
        })
    });
    let table = |table: &TableFacts| {
        json!({
            "name": table.path.to_string_lossy(),
            "len_bytes": table.len_bytes,
            "rows": table.rows,
            "digest": hex(table.digest),
        })
    };
    let stages = report.stages.iter().map(|facts| {
        json!({
            "stage": facts.stage.name(),
            "seconds": facts.took.as_secs_f64(),
            "rows": facts.rows,
            "len_bytes": facts.len_bytes,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "inputs": inputs.collect::<Vec<_>>(),
        "base": report.base.as_ref().map(table),
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
        "output": match baked {
            Baked::Table(report) => json_of_file(output, report),
            Baked::Shards(shards) => json_of_shards(output, shards, baked),
        },
        "rows": {
            "read": report.rows_read,
            "baked": baked.sum(|report| report.rows),
            "bad": report.bad_rows,
            "duplicates_dropped": report.duplicates_dropped,
            "base_replaced": report.base_replaced,
            "base_removed": report.base_removed,
            "absent_removed": report.absent_removed,
        },
        "stages": stages.collect::<Vec<_>>(),
        "seconds": took.as_secs_f64(),
        "runs_spilled": report.runs,
        "keys_looked_up": baked.sum(|report| report.keys_looked_up),
        "memory_limit_bytes": report.memory_limit_bytes,
        "memory_peak_bytes": peak_bytes(),
        "threads": report.threads,
    })
}

fn json_of_file(path: &Path, report: &Report) -> Value {
    let sections = report.sections.iter();
    let sections: Map<_, _> =
        sections.map(|(kind, len_bytes)| (kind.to_string().replace(' ', "_"), json!(len_bytes))).collect();
    json!({
        "name": path.to_string_lossy(),
        "len_bytes": report.file_len_bytes,
        "other_layout": json_of_layout(report.other_layout),
        "digest": hex(report.digest),
        "keys": report.key_type.to_string(),
        "sections_len_bytes": sections,
        "value_len_bytes": value_len_bytes(report),
        "overhead_bytes_per_row": report.overhead_bytes_per_row(),
    })
}

fn json_of_shards(folder: &Path, shards: &[ShardReport], baked: &Baked) -> Value {
    let of_shard = |shard: &ShardReport| {
        let mut json = json_of_file(&shard.path, &shard.report);
        json["first_slot"] = shard.slots.first_slot.into();
        json["last_slot"] = shard.slots.last_slot.into();
        json["rows"] = shard.report.rows.into();
        json
    };
    json!({
        "name": folder.to_string_lossy(),
        "len_bytes": baked.sum(|report| report.file_len_bytes),
        "other_layout": json_of_layout(baked.other_layout()),
        "keys": baked.first().key_type.to_string(),
        "overhead_bytes_per_row": baked.overhead_bytes_per_row(),
        "shards": shards.iter().map(of_shard).collect::<Vec<_>>(),
    })
}

fn json_of_layout(other: Option<OtherLayout>) -> Option<Value> {
    other.map(
        |other| json!({ "layout": other.layout.to_string(), "len_bytes": other.len_bytes, "is_exact": other.is_exact }),
    )
}

fn value_len_bytes(report: &Report) -> Value {
    let lens = &report.value_lens;
    json!({
        "min": lens.min,
        "p50": lens.p50,
        "p90": lens.p90,
        "p99": lens.p99,
        "p99.9": lens.p99_9,
        "max": lens.max,
        "mean": report.values_len_bytes as f64 / report.rows.max(1) as f64,
        "total": report.values_len_bytes,
    })
}

/// Formats the digest as one hexadecimal number, as `zkv inspect` does. The file stores the digest's bytes in
/// little-endian order.
fn hex(digest: u128) -> String {
    format!("{digest:032x}")
}

fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok().map(|kib| kib << 10)
}
