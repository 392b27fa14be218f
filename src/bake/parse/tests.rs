//! A sink for the tests of the formats.

use super::*;

/// Rows as text: `line: key = value`, with `! delete` if the delete column says something,
/// and bad ones as `line: fault [text]`.
#[derive(Default)]
pub(super) struct Lines(pub(super) Vec<String>);

impl RowSink for Lines {
    fn row(&mut self, row: &RawRow<'_>) -> Result<(), BakeError> {
        let delete = row.delete.map(|delete| format!(" ! {}", delete.escape_ascii())).unwrap_or_default();
        let text = String::from_utf8_lossy(row.value);
        self.0.push(format!("{}: {} = {text}{delete}", row.line, row.key.escape_ascii()));
        Ok(())
    }

    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError> {
        self.0.push(format!("{line}: {fault} [{}]", String::from_utf8_lossy(text)));
        Ok(())
    }
}

pub(super) fn name(name: &str) -> Column {
    Column::Name(name.to_owned())
}

#[test]
fn a_delete_column_says_yes_or_no() {
    for yes in ["1", "true", "TRUE", "t", "Yes", "y"] {
        assert_eq!(is_deletion(yes.as_bytes()), Some(true), "{yes}");
    }
    for no in ["", "0", "False", "f", "no", "N"] {
        assert_eq!(is_deletion(no.as_bytes()), Some(false), "{no}");
    }
    for neither in ["2", " ", "tru", "null", "-"] {
        assert_eq!(is_deletion(neither.as_bytes()), None, "{neither}");
    }
}
