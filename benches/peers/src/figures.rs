//! The figures of the documents: tables with their origin, in `docs/figures.json`.
//!
//! In: measured tables, or the output of a bench. Out: the data file, the tables of the documents, and the chart. A comment
//! `<!-- figures: NAME -->` marks the place of a table, in a document and in the output of a bench.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::chart;

const DATA_FILE: &str = "figures.json";
const CHART_FILE: &str = "peers.svg";
const MARKER: &str = "<!-- figures: ";

/// What was measured when, where, and by which command.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) command: String,
    pub(crate) machine: String,
    pub(crate) date: String,
}

/// A table of figures. Cells contain figures as the documents show them, and columns name their units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FigureTable {
    /// The rows that were looked up, and the clients.
    pub(crate) load: String,
    pub(crate) command: String,
    pub(crate) machine: String,
    pub(crate) date: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl FigureTable {
    pub(crate) fn new(load: String, origin: &Origin, columns: &[&str]) -> FigureTable {
        let Origin { command, machine, date } = origin.clone();
        FigureTable {
            load,
            command,
            machine,
            date,
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Returns the cells of a column.
    pub(crate) fn column(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        let at = self.columns.iter().position(|column| column == name)?;
        Some(self.rows.iter().map(move |row| &*row[at]))
    }

    /// Returns a line with the origin of the table.
    fn origin(&self) -> String {
        let command = format!("`{}`", self.command);
        let parts = [&*self.load, if self.command.is_empty() { "" } else { &command }, &self.machine, &self.date];
        format!("{ORIGIN}{}.", parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "))
    }

    /// Whether the cells of a column are numbers, which Markdown aligns at the right.
    fn is_numeric(&self, at: usize) -> bool {
        let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit()) || ["", "–"].contains(&cell);
        self.rows.iter().all(|row| is_number(&row[at]))
    }
}

/// The beginning of the line after a table in a document.
const ORIGIN: &str = "Measured: ";

/// Writes the table as Markdown, without a line end after its last line.
impl Display for FigureTable {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let alignments = (0..self.columns.len()).map(|at| if self.is_numeric(at) { "---:|" } else { "---|" });
        write!(out, "| {} |\n|{}", self.columns.join(" | "), alignments.collect::<String>())?;
        self.rows.iter().try_for_each(|row| write!(out, "\n| {} |", row.join(" | ")))
    }
}

/// Tables of figures by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures(BTreeMap<String, FigureTable>);

impl Figures {
    pub(crate) fn insert(&mut self, name: String, table: FigureTable) {
        self.0.insert(name, table);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&FigureTable> {
        self.0.get(name)
    }

    /// Returns the last table whose name begins with `prefix`.
    pub(crate) fn last(&self, prefix: &str) -> Option<&FigureTable> {
        self.0.iter().rfind(|(name, _)| name.starts_with(prefix)).map(|(_, table)| table)
    }

    /// Reads the data file in a folder. Without a file, there are no figures.
    fn read(folder: &Path) -> Result<Figures> {
        let path = folder.join(DATA_FILE);
        if !path.exists() {
            return Ok(Figures::default());
        }
        let parsed: BTreeMap<String, FigureTable> =
            serde_json::from_str(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
        for (name, table) in &parsed {
            let is_complete = table.rows.iter().all(|row| row.len() == table.columns.len());
            ensure!(is_complete, "{}: {name}: expected {} cells in each row", path.display(), table.columns.len());
        }
        Ok(Figures(parsed))
    }

    /// Writes the data file of a folder with these tables in addition to its others, and then its documents and chart.
    pub(crate) fn record(self, folder: &Path) -> Result<()> {
        let mut all = Figures::read(folder)?;
        for (name, mut table) in self.0 {
            // The output of a bench does not state the load.
            if let Some(old) = all.0.get(&name).filter(|_| table.load.is_empty()) {
                table.load = old.load.clone();
            }
            all.0.insert(name, table);
        }
        let path = folder.join(DATA_FILE);
        fs::write(&path, all.json()?).with_context(|| path.display().to_string())?;
        render(folder)
    }

    /// Returns the data file's text, with one line per row.
    fn json(&self) -> Result<String> {
        let mut tables = Vec::new();
        for (name, FigureTable { load, command, machine, date, columns, rows }) in &self.0 {
            let list = |cells: &Vec<String>| -> Result<String> {
                let cells = cells.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
                Ok(format!("[{}]", cells.join(", ")))
            };
            let rows = rows.iter().map(list).collect::<Result<Vec<_>>>()?;
            let fields = [
                ("load", serde_json::to_string(load)?),
                ("command", serde_json::to_string(command)?),
                ("machine", serde_json::to_string(machine)?),
                ("date", serde_json::to_string(date)?),
                ("columns", list(columns)?),
                ("rows", format!("[\n      {}\n    ]", rows.join(",\n      "))),
            ];
            let fields = fields.map(|(field, value)| format!("    \"{field}\": {value}"));
            tables.push(format!("  {}: {{\n{}\n  }}", serde_json::to_string(name)?, fields.join(",\n")));
        }
        Ok(format!("{{\n{}\n}}\n", tables.join(",\n")))
    }

    /// Returns the tables that a bench has printed.
    fn printed(output: &str, origin: &Origin) -> Result<Figures> {
        let mut figures = Figures::default();
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            let Some(name) = marked_name(line) else { continue };
            let table: Vec<Vec<String>> = lines
                .by_ref()
                .skip_while(|line| line.is_empty())
                .take_while(|line| line.starts_with('|'))
                .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
                .collect();
            let [columns, _alignments, rows @ ..] = &table[..] else { continue };
            let columns: Vec<&str> = columns.iter().map(|column| &**column).collect();
            let mut figure_table = FigureTable::new(String::new(), origin, &columns);
            figure_table.rows = rows.to_vec();
            let is_complete = rows.iter().all(|row| row.len() == columns.len());
            ensure!(is_complete, "{name}: expected {} cells in each row of {rows:?}", columns.len());
            figures.insert(name.to_owned(), figure_table);
        }
        Ok(figures)
    }

    /// Returns a document with the figures of its marked tables.
    fn document(&self, text: &str) -> Result<String> {
        let mut document = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            document.extend([line, "\n"]);
            if let Some(name) = marked_name(line) {
                let table = self.0.get(name).with_context(|| format!("found no figures of {name:?}, expected some"))?;
                let is_old = |line: &&str| line.is_empty() || line.starts_with('|') || line.starts_with(ORIGIN);
                while lines.next_if(is_old).is_some() {}
                document.push_str(&format!("\n{table}\n\n{}\n\n", table.origin()));
            }
        }
        Ok(document.trim_end().to_owned() + "\n")
    }
}

/// Returns the name in a line that marks the place of a table.
fn marked_name(line: &str) -> Option<&str> {
    line.strip_prefix(MARKER)?.strip_suffix(" -->")
}

/// Writes the tables of a folder's documents, and its chart, from its data file.
pub(crate) fn render(folder: &Path) -> Result<()> {
    let figures = Figures::read(folder)?;
    for path in documents(folder)? {
        let text = fs::read_to_string(&path)?;
        if text.lines().any(|line| marked_name(line).is_some()) {
            let document = figures.document(&text).with_context(|| path.display().to_string())?;
            fs::write(&path, document).with_context(|| path.display().to_string())?;
        }
    }
    let path = folder.join(CHART_FILE);
    fs::write(&path, chart::svg(&figures)).with_context(|| path.display().to_string())
}

/// Returns the Markdown files in a folder, and in all folders below it.
fn documents(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(documents(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Runs a bench of the main package, prints its output, and returns the tables in it.
pub(crate) fn of_bench(name: &str, arguments: &[String], mut origin: Origin) -> Result<Figures> {
    let mut command = Command::new("cargo");
    command.args(["bench", "--quiet", "--locked", "--bench", name]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    origin.command = format!("cargo bench --bench {name}");
    if !arguments.is_empty() {
        command.arg("--").args(arguments);
        origin.command += &format!(" -- {}", arguments.join(" "));
    }
    let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    ensure!(output.status.success(), "{}: ended with {}", origin.command, output.status);
    let figures = Figures::printed(&text, &origin)?;
    ensure!(!figures.0.is_empty(), "{}: found no table after a line that begins with {MARKER:?}", origin.command);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { command: "run".to_owned(), machine: "one".to_owned(), date: "2026-01-02".to_owned() }
    }

    fn table() -> FigureTable {
        let mut table = FigureTable::new("2 rows".to_owned(), &origin(), &["engine", "get, ns"]);
        table.rows = [["A", "1"], ["B", "–"]].map(|row| row.map(str::to_owned).to_vec()).to_vec();
        table
    }

    const MARKDOWN: &str = "| engine | get, ns |\n|---|---:|\n| A | 1 |\n| B | – |";

    #[test]
    fn a_document_gets_the_figures_of_its_marked_tables() {
        let figures = Figures([("a".to_owned(), table())].into());
        let origin = "Measured: 2 rows; `run`; one; 2026-01-02.";
        let filled = format!("# T\n\n<!-- figures: a -->\n\n{MARKDOWN}\n\n{origin}\n\nText.\n");
        for old in ["", "\n| engine |\n|---|\n| old |\n\nMeasured: old.\n"] {
            assert_eq!(figures.document(&format!("# T\n\n<!-- figures: a -->\n{old}\nText.\n")).unwrap(), filled);
        }
        assert_eq!(figures.document(&filled).unwrap(), filled);
        assert!(figures.document("<!-- figures: b -->\n").is_err());
    }

    #[test]
    fn the_tables_of_a_bench_are_read_from_its_output() {
        let output = format!("begins\n<!-- figures: a -->\n{MARKDOWN}\n\n{MARKDOWN}\n");
        let figures = Figures::printed(&output, &origin()).unwrap();
        let expected = FigureTable { load: String::new(), ..table() };
        assert_eq!(figures, Figures([("a".to_owned(), expected)].into()));
        assert!(Figures::printed("<!-- figures: a -->\n| a | b |\n|---|---|\n| 1 |\n", &origin()).is_err());
    }

    #[test]
    fn the_data_file_has_the_form_in_which_it_is_written() {
        let folder = Path::new(crate::DOCUMENTS);
        let text = fs::read_to_string(folder.join(DATA_FILE)).unwrap();
        assert_eq!(Figures::read(folder).unwrap().json().unwrap(), text);
    }

    #[test]
    fn recorded_figures_are_read_back_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let engine = |name: &str, table: FigureTable| Figures([(name.to_owned(), table)].into());
        engine("engines-1x1", table()).record(folder.path()).unwrap();
        engine("engines-2x1", table()).record(folder.path()).unwrap();
        let without_load = FigureTable { load: String::new(), ..table() };
        engine("engines-1x1", without_load).record(folder.path()).unwrap();
        let expected = ["engines-1x1", "engines-2x1"].map(|name| (name.to_owned(), table()));
        assert_eq!(Figures::read(folder.path()).unwrap(), Figures(expected.into()));
        assert!(fs::read_to_string(folder.path().join(CHART_FILE)).unwrap().contains("2 rows"));
    }
}
