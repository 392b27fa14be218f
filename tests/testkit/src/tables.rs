//! A baked table with numeric keys, and its expected responses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use zero_kv::bake::Keys;

use super::frames::answer;
use super::rows::{bake_text, csv_row};
use super::servers::{Server, kv_store};

/// The rows of a table.
pub type Model = BTreeMap<u64, Vec<u8>>;

/// A temporary folder with a baked table.
pub struct Table {
    pub folder: TempDir,
    pub model: Model,
}

impl Table {
    pub fn new(rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Table {
        let table = Table { folder: tempfile::tempdir().unwrap(), model: rows.into_iter().collect() };
        bake(&table.model, &table.db());
        table
    }

    /// Returns a table with keys 1 to `rows`, whose values name their keys.
    pub fn of_rows(rows: u64) -> Table {
        Table::new((1..=rows).map(|key| (key, format!("value_content_at_key_{key}").into_bytes())))
    }

    pub fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    /// Starts a `kv_store` that serves this table, and waits until the server is ready.
    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// Returns the command that serves this table with these options.
    pub fn command(&self, options: &[&str]) -> Command {
        let mut command = kv_store(&self.db(), &self.socket());
        command.args(options);
        command
    }

    /// Starts a `kv_store` with these options, and waits until the server is ready.
    pub fn serve_with(&self, options: &[&str]) -> Server {
        Server::of(self.command(options), &self.socket())
    }
}

/// Bakes the rows of a model into a file.
pub fn bake(model: &Model, output: &Path) {
    let text: Vec<u8> = model.iter().flat_map(|(key, value)| csv_row(key, value)).collect();
    bake_text(output, Keys::U64, text);
}

/// Returns the expected response to a Get request.
pub fn answer_to_get(model: &Model, key: u64) -> Vec<u8> {
    model.get(&key).map_or_else(|| answer(1, b""), |value| answer(0, value))
}

/// Returns the expected responses to Get requests in order.
pub fn answers_to_gets(model: &Model, keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(|key| answer_to_get(model, key)).collect()
}
