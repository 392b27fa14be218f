//! Rows that own their bytes.

use std::fmt;
use std::sync::Arc;

use super::row::{ColumnError, FromCell, TypedRow};
use super::schema::Schema;

/// A row of a typed table that owns its bytes.
#[derive(Clone)]
pub struct OwnedRow {
    schema: Arc<Schema>,
    bytes: Vec<u8>,
}

impl OwnedRow {
    /// Wraps the bytes of a row.
    ///
    /// # Errors
    /// The errors of [`TypedRow::new`].
    pub fn new(schema: Arc<Schema>, bytes: Vec<u8>) -> Result<OwnedRow, ColumnError> {
        TypedRow::new(&schema, &bytes)?;
        Ok(OwnedRow { schema, bytes })
    }

    /// The columns.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Borrows the row.
    pub fn as_row(&self) -> TypedRow<'_> {
        TypedRow::new(&self.schema, &self.bytes).expect("the length was checked by OwnedRow::new")
    }

    /// The value of a column: see [`TypedRow::get`].
    ///
    /// # Errors
    /// The errors of [`TypedRow::get`].
    pub fn get<'a, T: FromCell<'a>>(&'a self, name: &str) -> Result<T, ColumnError> {
        self.as_row().get(name)
    }
}

impl fmt::Debug for OwnedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_row().values()).finish()
    }
}
