//! The index of a pandas DataFrame in the metadata of the Parquet file to which it was written.
//!
//! In: the key-value metadata of a file. Out: the columns that the index has become. pandas writes a named index after
//! all other columns, so its place does not tell that it identifies the rows. Other metadata, and damaged metadata,
//! tells nothing: the file can be read without it.

use ::parquet::file::metadata::KeyValue;
use serde_json::Value;

use crate::bake::columns::ColumnsFault;
use crate::bake::error::Remedy;

/// The key of pandas' description of the columns in the metadata.
const METADATA_KEY: &str = "pandas";

/// The levels of the index of a DataFrame.
pub(super) struct PandasIndex(Vec<Level>);

enum Level {
    /// The name of the column that the level has become.
    Column(String),
    /// The name of a level whose values are a range of numbers, which pandas does not write as a column.
    Range(String),
}

impl PandasIndex {
    /// Reads the index in the metadata of a file, if there is one. `is_column` returns whether the file has a column:
    /// programs that select columns may keep the metadata.
    pub(super) fn new(metadata: Option<&Vec<KeyValue>>, is_column: impl Fn(&str) -> bool) -> PandasIndex {
        let values = metadata.into_iter().flatten().filter(|entry| entry.key == METADATA_KEY);
        let json = values.filter_map(|entry| serde_json::from_str::<Value>(entry.value.as_ref()?).ok()).next();
        let levels = json.as_ref().and_then(|json| json.get("index_columns")?.as_array());
        let level = |level: &Value| match level {
            Value::String(name) => is_column(name).then(|| Level::Column(name.clone())),
            // An object describes a range. If it has no name, it is not meant as a key.
            level => Some(Level::Range(level.get("name")?.as_str()?.to_owned())),
        };
        PandasIndex(levels.into_iter().flatten().filter_map(level).collect())
    }

    /// Returns the name of the column with the keys, if no other column is chosen. Returns `None` if there is no index.
    ///
    /// # Errors
    /// [`ColumnsFault`] if the index may have the keys, but is not one column with a name.
    pub(super) fn key(&self) -> Result<Option<&str>, ColumnsFault> {
        let message = match &self.0[..] {
            [] => return Ok(None),
            [Level::Column(name)] if !is_unnamed(name) => return Ok(Some(name)),
            [Level::Column(name)] => format!(
                "the column {name:?} is a pandas index without a name, which may have the keys: choose the key column, or \
                 name the index, as in df.rename_axis(\"id\"), before you write the file"
            ),
            [Level::Range(name)] => format!(
                "the pandas index {name:?} is a range of numbers, which is not in the file: choose the key column, or \
                 write the file with df.to_parquet(path, index=True)"
            ),
            levels => format!(
                "the file has a pandas index of {} levels, where a key is one value: choose the key column, or make a \
                 column with the key of each row before you write the file",
                levels.len()
            ),
        };
        Err(ColumnsFault::new(message, &[Remedy::ChooseKey]))
    }
}

/// Returns whether pandas made the name of a level because it had none.
fn is_unnamed(name: &str) -> bool {
    let number = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the key column of a file with the columns `a` and `b`, or the beginning of a message.
    fn key_of(pandas: &str) -> String {
        let entry = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: Some(value.to_owned()) };
        let metadata = vec![entry("ARROW:schema", "{}"), entry(METADATA_KEY, pandas)];
        let index = PandasIndex::new(Some(&metadata), |name| ["a", "b", "__index_level_0__"].contains(&name));
        match index.key() {
            Ok(key) => key.unwrap_or("none").to_owned(),
            Err(fault) => format!("{:?}", fault.in_input("t")),
        }
    }

    #[test]
    fn one_level_with_a_name_is_the_key() {
        for (pandas, expected) in [
            (r#"{"index_columns":["b"],"columns":[]}"#, "b"),
            (r#"{"index_columns":[]}"#, "none"),
            (r#"{"index_columns":["other"]}"#, "none"),
            (r#"{"index_columns":[{"kind":"range","name":null,"start":0,"stop":3,"step":1}]}"#, "none"),
        ] {
            assert_eq!(key_of(pandas), expected, "{pandas}");
        }
        for (pandas, expected) in [
            (r#"{"index_columns":["a","b"]}"#, "a pandas index of 2 levels"),
            (r#"{"index_columns":["__index_level_0__"]}"#, "is a pandas index without a name"),
            (
                r#"{"index_columns":[{"kind":"range","name":"id","start":0,"stop":3,"step":1}]}"#,
                "is a range of numbers",
            ),
        ] {
            assert!(key_of(pandas).contains(expected), "{pandas}: {}", key_of(pandas));
        }
    }

    #[test]
    fn damaged_metadata_tells_nothing() {
        let nested = "[".repeat(100_000);
        for pandas in
            ["", "{", "[]", "7", r#"{"index_columns":7}"#, r#"{"index_columns":[7,null,["a","b"],{}]}"#, &nested]
        {
            assert_eq!(key_of(pandas), "none", "{pandas:.40}");
        }
    }
}
