//! Looks up rows and columns of typed tables.
//!
//! In: keys, and the columns to read. Out: rows, column buffers, or matrices. The keys of a batch go through the stages
//! of [`Store::each_value`]; then the requested cells of each row are copied.

use std::fmt;

use thiserror::Error;

use super::{Lookup, LookupError, Store};
use crate::format::key::Key;
use crate::typed::{ColumnBuffers, ColumnError, FromRow, MatrixNumber, MatrixPlan, RowReader, TypedRow};

/// The reason why a lookup in a typed table fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypedLookupError {
    /// The lookup of a key fails.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A column does not exist or has another type, the columns cannot be selected, or a row is malformed.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The table has no schema.
    #[error("the table has values without columns, where a typed table was expected: bake its rows as a typed table")]
    NotTyped,
    /// The columns were selected for another schema, for example that of an earlier table.
    #[error(
        "the columns were selected for the schema {selected:016x}, where the table has the schema {found:016x}: select \
         them again for the schema of the table"
    )]
    SchemaChanged {
        /// The ID of the schema that the columns were selected for.
        selected: u64,
        /// The ID of the table's schema.
        found: u64,
    },
}

impl Store {
    /// Returns lookups of rows as structs. Compares the fields of the struct with the table's schema once, before any
    /// row is read.
    ///
    /// # Errors
    /// [`TypedLookupError::NotTyped`], and [`ColumnError`] if a column does not exist, is of another type, or can be
    /// null where the field cannot.
    ///
    /// # Example
    /// ```no_run
    /// zero_kv::row_struct! {
    ///     struct Product<'a> {
    ///         name: &'a str,
    ///         price: Option<f32>,
    ///     }
    /// }
    ///
    /// let table = zero_kv::Store::open("products.db")?;
    /// let products = table.rows_as::<Product>()?;
    /// if let Some(product) = products.get(7)? {
    ///     println!("{} {:?}", product.name, product.price);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rows_as<T: FromRow>(&self) -> Result<StructRows<'_, T>, TypedLookupError> {
        let schema = self.typed_schema()?;
        Ok(StructRows { store: self, reader: RowReader::new(schema)? })
    }
}

/// The rows of a typed table as structs: see [`Store::rows_as`].
pub struct StructRows<'s, T> {
    store: &'s Store,
    reader: RowReader<T>,
}

impl<'s, T: FromRow> StructRows<'s, T> {
    /// Returns the row of a key, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// The errors of [`Lookup::get_row`].
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<T::Of<'s>>, TypedLookupError> {
        let row = self.store.get_row(key)?;
        Ok(row.map(|row| self.reader.read(&row)).transpose()?)
    }
}

impl<T> fmt::Debug for StructRows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StructRows").field("schema", &self.store.schema_ref()).finish_non_exhaustive()
    }
}

/// The row whose value a lookup of a key reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOf {
    /// The row with the key.
    Key,
    /// The range that contains the key.
    Cover,
}

/// Visits the value of each key of a batch.
pub(crate) type VisitValues<'a> = &'a mut dyn FnMut(&mut dyn FnMut(Option<&[u8]>)) -> Result<(), LookupError>;

/// Looks rows up, one at a time. Calls `visit` with each row, until it fails.
fn each_row(
    store: &Store,
    selected: u64,
    values: VisitValues<'_>,
    visit: &mut dyn FnMut(Option<&TypedRow<'_>>) -> Result<(), ColumnError>,
) -> Result<(), TypedLookupError> {
    let schema = store.typed_schema()?;
    if schema.id() != selected {
        return Err(TypedLookupError::SchemaChanged { selected, found: schema.id() });
    }
    let mut outcome = Ok(());
    values(&mut |value| {
        if outcome.is_ok() {
            outcome = match value {
                Some(value) => TypedRow::new(schema, value).and_then(|row| visit(Some(&row))),
                None => visit(None),
            };
        }
    })?;
    Ok(outcome?)
}

/// Appends the columns of many rows to buffers: see [`Lookup::fill_columns`].
pub(crate) fn columns(
    store: &Store,
    buffers: &mut ColumnBuffers,
    values: VisitValues<'_>,
) -> Result<(), TypedLookupError> {
    let row_count = buffers.row_count();
    let filled = each_row(store, buffers.source_id(), values, &mut |row| match row {
        Some(row) => buffers.push(row),
        None => {
            buffers.push_missing();
            Ok(())
        }
    });
    filled.inspect_err(|_| buffers.truncate(row_count))
}

/// Copies columns of many rows into a matrix: see [`Lookup::get_matrix`].
pub(crate) fn matrix<T: MatrixNumber>(
    store: &Store,
    plan: &MatrixPlan<T>,
    matrix: &mut [T],
    values: VisitValues<'_>,
) -> Result<usize, TypedLookupError> {
    let (mut rows, mut found) = (matrix.chunks_exact_mut(plan.width()), 0);
    each_row(store, plan.source_id(), values, &mut |row| {
        let to = rows.next().expect("the caller has checked the length of the matrix");
        match row {
            Some(row) => {
                plan.copy(row, to);
                found += 1;
            }
            None => to.fill(plan.fill()),
        }
        Ok(())
    })?;
    Ok(found)
}
