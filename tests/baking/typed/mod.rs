//! Bakes of typed tables.

mod bases;
mod faults;
mod inputs;
mod model;

use zero_kv::typed::{Value, write_text};

use crate::helpers::baker_runs::{Ended, Folder};

impl Folder {
    /// Returns the rows of `storage.db` in key order, as text: the key, then `column=value` for each column.
    fn typed_rows(&self) -> Vec<String> {
        let store = self.open("storage.db");
        let schema = store.schema().expect("a typed table");
        let row = |key: zero_kv::Key<'_>| {
            let row = store.typed_row(key).unwrap().expect("a row for each key");
            row.check().unwrap();
            let cell = |(column, value): (&zero_kv::typed::Column, _)| format!("{}={}", column.name, text(&value));
            let cells = schema.columns().iter().zip(row.values().map(Result::unwrap)).map(cell);
            std::iter::once(key.to_string()).chain(cells).collect::<Vec<_>>().join(" ")
        };
        store.iter().map(Result::unwrap).map(|(key, _)| row(key)).collect()
    }

    /// Returns the schema of `storage.db`.
    fn schema(&self) -> String {
        self.open("storage.db").schema().expect("a typed table").to_string()
    }
}

fn text(value: &Value<'_>) -> String {
    let mut text = Vec::new();
    write_text(value, &mut text);
    if *value == Value::Null { "null".to_owned() } else { text.escape_ascii().to_string() }
}

impl Ended {
    /// Asserts that the run succeeded, and printed only these inferred types.
    #[track_caller]
    fn infers(&self, types: &str) {
        assert_eq!((self.status.code(), &*self.err), (Some(0), &*format!("types: --types {types}\n")), "{}", self.out);
    }
}
