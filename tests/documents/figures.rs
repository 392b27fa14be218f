//! Figures in the documents are those of `docs/figures.json`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{documents, prose, read, repository};

/// Sentences that quote figures, and their documents. `{TABLE|ROW|COLUMN}` is the number in a cell: a row is named by its
/// first cells, joined by commas. `{TABLE|FIELD}` is the command, the machine, or the date of a table. ` / ` and ` - `
/// between two cells make a rounded quotient or difference.
const QUOTATIONS: &[(&str, &str)] = &[
    (
        "README.md",
        "The charts show lookups in {engines-1000000x26|load}, measured by `{engines-1000000x26|command}` on \
         {engines-1000000x26|date}",
    ),
    (
        "docs/FAQ.md",
        "With 100 clients on a Unix socket and 256 requests in flight per client, kv_store answered \
         {servers-1000000x26|Zero-KV (kv_store)|256 in flight} M gets/s, and Redis answered \
         {servers-1000000x26|Redis|256 in flight} M.",
    ),
    (
        "docs/FAQ.md",
        "kv_store answered {servers-1000000x26|Zero-KV (kv_store)|1 in flight} M gets/s, and Redis answered \
         {servers-1000000x26|Redis|1 in flight} M.",
    ),
    (
        "docs/FAQ.md",
        "with one request in flight, `redis-benchmark` reached {redis-protocol-1000000x26|redis-benchmark, 1|kv_store} M \
         gets/s with kv_store, and {redis-protocol-1000000x26|redis-benchmark, 1|Redis} M with Redis.",
    ),
    (
        "docs/FAQ.md",
        "kv_store had {servers-1000000x26|Zero-KV (kv_store)|resident, MB} MB of resident memory, including the mapped \
         table, and Redis had {servers-1000000x26|Redis|resident, MB} MB.",
    ),
    (
        "docs/FAQ.md",
        "a lookup that copies the value into a reused buffer takes \
         {alone|direct mode, 100,000 rows, one key, value copied into a reused buffer|figure} at 100,000 rows",
    ),
    (
        "docs/FAQ.md",
        "At a million rows of 26 bytes, a random get took {engines-1000000x26|Zero-KV|get, ns} ns with Zero-KV \
         ({engines-1000000x26|Zero-KV|get in batches, ns} ns per key in batches) and {engines-1000000x26|LMDB|get, ns} ns \
         with LMDB.",
    ),
    (
        "docs/FAQ.md",
        "At ten million rows of 100 bytes, a random get took {engines-10000000x100|Zero-KV|get, ns} ns with Zero-KV \
         ({engines-10000000x100|Zero-KV|get in batches, ns} ns in batches) and {engines-10000000x100|LMDB|get, ns} ns with \
         LMDB.",
    ),
    (
        "docs/FAQ.md",
        "LMDB builds files faster: {engines-1000000x26|LMDB|build, s} s instead of {engines-1000000x26|Zero-KV|build, s} s \
         for a million rows of 26 bytes, and {mixed-load|LMDB|build, s} s instead of {mixed-load|Zero-KV|build, s} s for \
         {mixed-load|load}.",
    ),
    (
        "docs/FAQ.md",
        "it returned the first value after {engines-1000000x26|LMDB|cold open, ms} ms, and Zero-KV after \
         {engines-1000000x26|Zero-KV|cold open, ms} ms.",
    ),
    (
        "docs/FAQ.md",
        "At 100,000 rows, a Rust `HashMap` with `rustc-hash` took {engines-100000x26|HashMap (rustc-hash)|get, ns} ns per \
         get, and Zero-KV took {engines-100000x26|Zero-KV|get, ns} ns.",
    ),
    (
        "docs/FAQ.md",
        "`HashMap` took {engines-10000000x100|HashMap (rustc-hash)|get, ns} ns with `rustc-hash` and \
         {engines-10000000x100|HashMap|get, ns} ns with the standard hasher, and Zero-KV took \
         {engines-10000000x100|Zero-KV|get, ns} ns. In batches, Zero-KV took \
         {engines-100000x26|Zero-KV|get in batches, ns} ns and {engines-10000000x100|Zero-KV|get in batches, ns} ns per \
         key.",
    ),
    (
        "docs/FAQ.md",
        "Eight Python processes with a million rows needed \
         {python-dictionaries|a `dict` in each process|PSS in total, MiB - \
         python-dictionaries|none (Python alone)|PSS in total, MiB} MiB for dictionaries, and \
         {python-dictionaries|`zero_kv.open(…, verify=\"touch\")`|PSS in total, MiB - \
         python-dictionaries|none (Python alone)|PSS in total, MiB} MiB for one Zero-KV table",
    ),
    (
        "docs/cookbook/python-dictionary.md",
        "the table takes {python-dictionaries|`zero_kv.open(…, verify=\"touch\")`|PSS in total, MiB - \
         python-dictionaries|none (Python alone)|PSS in total, MiB} MiB for all eight processes, whereas dictionaries take \
         {python-dictionaries|a `dict` in each process|PSS in total, MiB - \
         python-dictionaries|none (Python alone)|PSS in total, MiB} MiB, or \
         {python-dictionaries|a `dict` created before the fork|PSS in total, MiB - \
         python-dictionaries|none (Python alone)|PSS in total, MiB} MiB after a fork.",
    ),
    ("docs/FAQ.md", "At a million rows of 26 bytes, a get took {engines-1000000x26|cdb|get, ns} ns with cdb."),
    (
        "docs/FAQ.md",
        "a single get took {engines-1000000x26|RocksDB|get, ns / engines-1000000x26|Zero-KV|get, ns} times as long with \
         RocksDB as with Zero-KV at a million rows of 26 bytes, and \
         {engines-10000000x100|RocksDB|get, ns / engines-10000000x100|Zero-KV|get, ns} times as long at ten million rows of \
         100 bytes.",
    ),
    (
        "docs/FAQ.md",
        "merging 10,000 rows into 10 million took \
         {alone|merging 10,000 rows into 10,000,000 rows of 100 bytes|figure}.",
    ),
    (
        "docs/FAQ.md",
        "which takes {alone|opening and verifying a whole file of 10,000,000 rows of 100 bytes, empty page cache|figure} \
         for ten million rows of 100 bytes",
    ),
    ("docs/SCALE.md", "265 MB in {publish|beside the client: sync and verification|median}"),
    (
        "docs/SCALE.md",
        "1.3 GB, in {alone|merging 10,000 rows into 10,000,000 rows of 100 bytes|figure} on two processors",
    ),
];

/// What to do about a table or a chart with other figures.
const RENDER: &str = "run `cargo run --manifest-path benches/peers/Cargo.toml -- --render`";

/// Documents whose prose contains no other figure with a unit.
const COMPLETE: [&str; 2] = ["README.md", "docs/FAQ.md"];
const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "M", "k", "MB", "MiB", "times"];

/// A table of figures.
struct Table {
    fields: BTreeMap<String, String>,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The tables of the data file, by name.
struct Figures(BTreeMap<String, Table>);

impl Figures {
    fn read() -> Figures {
        let data: Value = serde_json::from_str(&read(&repository().join("docs/figures.json"))).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let cells = |value: &Value| value.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
        let table = |table: &Value| Table {
            fields: ["load", "command", "machine", "date"].map(|name| (name.to_owned(), text(&table[name]))).into(),
            columns: cells(&table["columns"]),
            rows: table["rows"].as_array().unwrap().iter().map(cells).collect(),
        };
        Figures(data.as_object().unwrap().iter().map(|(name, value)| (name.clone(), table(value))).collect())
    }

    /// Returns the figure that is named by `TABLE|FIELD` or `TABLE|ROW|COLUMN`.
    fn figure(&self, name: &str) -> &str {
        let parts: Vec<&str> = name.split('|').collect();
        let table = self.0.get(parts[0]).unwrap_or_else(|| panic!("no table of {name}"));
        let &[_, row, column] = &parts[..] else { return &table.fields[parts[1]] };
        let column = table.columns.iter().position(|found| found == column);
        let column = column.unwrap_or_else(|| panic!("no column of {name}"));
        let is_named = |cells: &Vec<String>| (1..=cells.len()).any(|count| cells[..count].join(", ") == row);
        let rows: Vec<_> = table.rows.iter().filter(|cells| is_named(cells)).collect();
        let [cells] = rows[..] else { panic!("{} rows of {name}, expected one", rows.len()) };
        cells[column].split(" (").next().unwrap()
    }

    /// Returns a sentence with its figures.
    fn sentence(&self, template: &str) -> String {
        let mut sentence = String::new();
        for (at, part) in template.split(['{', '}']).enumerate() {
            let number = |name: &str| self.figure(name).parse::<f64>().unwrap();
            if at % 2 == 0 {
                sentence += part;
            } else if let Some((dividend, divisor)) = part.split_once(" / ") {
                sentence += &format!("{:.0}", number(dividend) / number(divisor));
            } else if let Some((minuend, subtrahend)) = part.split_once(" - ") {
                sentence += &format!("{:.0}", number(minuend) - number(subtrahend));
            } else {
                sentence += self.figure(part);
            }
        }
        sentence
    }
}

/// Returns the prose of a document without tables, in one line.
fn sentences(document: &str) -> String {
    let text = read(&repository().join(document));
    let lines: Vec<&str> = prose(&text).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split(" | ").map(str::trim).collect()
}

#[test]
fn marked_tables_have_the_figures_of_the_data_file() {
    let figures = Figures::read();
    let mut shown = 0;
    for document in documents() {
        let text = read(&document);
        for (at, part) in text.split("\n<!-- figures: ").enumerate().skip(1) {
            let (name, rest) = part.split_once(" -->\n\n").unwrap();
            let place = format!("{}, mark {at}: {RENDER}", document.display());
            let table = figures.0.get(name).unwrap_or_else(|| panic!("{place}: no figures of {name}"));
            let mut lines = rest.lines().take_while(|line| line.starts_with('|')).map(cells);
            assert_eq!(lines.next().unwrap(), table.columns, "{place}");
            assert_eq!(lines.skip(1).collect::<Vec<_>>(), table.rows, "{place}");
            let origin = rest.lines().find(|line| line.starts_with("Measured: ")).unwrap_or_default();
            assert!(table.fields.values().all(|field| origin.contains(&**field)), "{place}: {origin}");
            shown += 1;
        }
    }
    assert!(shown >= 20, "{shown} tables");
    let benchmarks = read(&repository().join("docs/BENCHMARKS.md"));
    let titles = benchmarks.lines().filter(|line| line.starts_with("|---"));
    // The last one lists documents.
    assert_eq!(
        titles.count() - 1,
        benchmarks.matches("\n<!-- figures: ").count(),
        "a table of BENCHMARKS.md has no mark"
    );
}

#[test]
fn the_chart_shows_the_figures_of_the_data_file() {
    let figures = Figures::read();
    let chart = read(&repository().join("docs/peers.svg"));
    let texts: Vec<&str> = chart.split("</text>").filter_map(|text| Some(text.rsplit_once('>')?.1)).collect();
    let columns = [
        ("engines-1000000x26", "get, ns", "", "ns"),
        ("engines-1000000x26", "get in batches, ns", ", batches of 256", "ns"),
        ("servers-1000000x26", "256 in flight", "", "M/s"),
    ];
    let mut bars = 0;
    for (name, column, suffix, unit) in columns {
        for row in &figures.0[name].rows {
            let figure = figures.figure(&format!("{name}|{}|{column}", row[0]));
            if figure != "–" {
                let bar = [format!("{}{suffix}", row[0]), format!("{figure} {unit}")];
                assert!(texts.windows(2).any(|pair| pair == bar), "no bar {bar:?}: {RENDER}");
                bars += 1;
            }
        }
    }
    assert_eq!(chart.matches("<rect").count(), bars);
}

#[test]
fn sentences_quote_the_figures_of_the_data_file() {
    let figures = Figures::read();
    for (document, template) in QUOTATIONS {
        let expected = figures.sentence(template);
        assert!(sentences(document).contains(&expected), "{document}: expected {expected:?}");
    }
}

/// Returns the figures with a unit in a text, apart from those in code.
fn figures_with_unit(text: &str) -> Vec<String> {
    let text: String = text.split('`').step_by(2).collect();
    let words: Vec<&str> = text.split([' ', '(', ')']).collect();
    let is_number = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':']));
    let pairs = words.windows(2).filter(|pair| is_number(pair[0]) && is_unit(pair[1].split('/').next().unwrap()));
    pairs.map(|pair| pair.join(" ")).collect()
}

#[test]
fn the_readme_and_the_faq_contain_no_figure_without_a_source() {
    let figures = Figures::read();
    for document in COMPLETE {
        let mut text = read(&repository().join(document));
        // Tables list limits and messages.
        text = prose(&text).filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join(" ");
        text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (_, template) in QUOTATIONS.iter().filter(|(name, _)| *name == document) {
            text = text.replace(&figures.sentence(template), "");
        }
        assert_eq!(figures_with_unit(&text), [""; 0], "{document}: add the sentence to {}", file!());
    }
    let found = figures_with_unit("It took 39–56 ns, (12 ms) or 1.27 M gets/s; 4 KiB `5 s` of 3 rows, 17 times.");
    assert_eq!(found, ["39–56 ns,", "12 ms", "1.27 M", "17 times."]);
}
