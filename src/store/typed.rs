//! Looks up rows and columns of typed tables.
//!
//! In: keys, and the columns to read. Out: rows, column buffers, or matrices. The keys of a batch go through the stages of
//! [`Store::get_many`]; then the requested cells of each row are copied.

use std::fmt;

use thiserror::Error;

use super::{LookupError, Store};
use crate::format::key::Key;
use crate::typed::{ColumnBuffers, ColumnError, FromRow, MatrixNumber, MatrixPlan, RowReader, TypedRow};

/// The reason why a lookup in a typed table fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypedLookupError {
    /// The lookup of a key fails.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A column does not exist or has another type, or a row is malformed.
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
    /// Returns the row of a key, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// The errors of [`Store::get`], [`TypedLookupError::NotTyped`], and [`ColumnError::Malformed`] if the row is not a
    /// row of the table's schema.
    pub fn typed_row<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<TypedRow<'_>>, TypedLookupError> {
        let schema = self.schema().ok_or(TypedLookupError::NotTyped)?;
        self.get(key)?.map(|value| TypedRow::new(schema, value)).transpose().map_err(TypedLookupError::from)
    }

    /// Returns lookups of rows as structs. Compares the fields of the struct with the table's schema once, before any row
    /// is read.
    ///
    /// # Errors
    /// [`TypedLookupError::NotTyped`], and [`ColumnError`] if a column does not exist, is of another type, or can be null
    /// where the field cannot.
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
        let schema = self.schema().ok_or(TypedLookupError::NotTyped)?;
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
    /// The errors of [`Store::typed_row`].
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<T::Of<'s>>, TypedLookupError> {
        let row = self.store.typed_row(key)?;
        Ok(row.map(|row| self.reader.read(&row)).transpose()?)
    }
}

impl<T> fmt::Debug for StructRows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StructRows").field("schema", &self.store.schema()).finish_non_exhaustive()
    }
}

/// Looks up rows, one after the other, with a function that calls its argument with the position and the value of each
/// key. Calls `visit` with each row, until it fails.
fn each_row(
    store: &Store,
    selected: u64,
    look_up: impl FnOnce(&mut dyn FnMut(Option<&[u8]>)) -> Result<(), LookupError>,
    visit: &mut dyn FnMut(Option<&TypedRow<'_>>) -> Result<(), ColumnError>,
) -> Result<(), TypedLookupError> {
    let schema = store.schema().ok_or(TypedLookupError::NotTyped)?;
    if schema.id() != selected {
        return Err(TypedLookupError::SchemaChanged { selected, found: schema.id() });
    }
    let mut outcome = Ok(());
    look_up(&mut |value| {
        if outcome.is_ok() {
            outcome = match value {
                Some(value) => TypedRow::new(schema, value).and_then(|row| visit(Some(&row))),
                None => visit(None),
            };
        }
    })?;
    Ok(outcome?)
}

/// Appends the columns of many rows to buffers: see the methods `get_columns`.
pub(crate) fn columns(
    store: &Store,
    buffers: &mut ColumnBuffers,
    look_up: impl FnOnce(&mut dyn FnMut(Option<&[u8]>)) -> Result<(), LookupError>,
) -> Result<(), TypedLookupError> {
    let row_count = buffers.row_count();
    let filled = each_row(store, buffers.source_id(), look_up, &mut |row| match row {
        Some(row) => buffers.push(row),
        None => {
            buffers.push_missing();
            Ok(())
        }
    });
    filled.inspect_err(|_| buffers.truncate(row_count))
}

/// Copies columns of many rows into a matrix: see the methods `get_matrix`.
pub(crate) fn matrix<T: MatrixNumber>(
    store: &Store,
    plan: &MatrixPlan<T>,
    matrix: &mut [T],
    look_up: impl FnOnce(&mut dyn FnMut(Option<&[u8]>)) -> Result<(), LookupError>,
) -> Result<usize, TypedLookupError> {
    let (mut rows, mut found) = (matrix.chunks_exact_mut(plan.width()), 0);
    each_row(store, plan.source_id(), look_up, &mut |row| {
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

/// Implements the lookups of columns for a type with a method `with_typed`, which passes a `&Store` or a `&MappedStore`
/// to a function.
macro_rules! impl_typed_lookups {
    ($Type:ident) => {
        /// Lookups in typed tables.
        impl $Type {
            /// Calls `visit` with the row of a key, or with `None` if the table does not have the key. Returns the
            /// result of `visit`.
            ///
            /// # Errors
            /// The errors of [`Self::get`], [`TypedLookupError::NotTyped`], and
            /// [`ColumnError::Malformed`](crate::typed::ColumnError) if the row is not a row of the table's schema.
            pub fn get_row_with<'k, T>(
                &self,
                key: impl Into<Key<'k>>,
                visit: impl FnOnce(Option<&TypedRow<'_>>) -> T,
            ) -> Result<T, TypedLookupError> {
                let key = key.into();
                self.with_typed(|table| {
                    let schema = table.typed_store().schema().ok_or(TypedLookupError::NotTyped)?;
                    let row = |value: Option<&[u8]>| {
                        let row = value.map(|value| TypedRow::new(schema, value)).transpose()?;
                        Ok(visit(row.as_ref()))
                    };
                    table.one_value(key, row)?
                })
            }

            /// Appends the columns of many rows to `buffers`, one row per key, in the order of the keys. A key that the
            /// table does not have gets a row without values.
            ///
            /// # Errors
            /// The errors of [`Self::get_many`], [`TypedLookupError::NotTyped`], [`TypedLookupError::SchemaChanged`] if
            /// `buffers` was created for another schema, and
            /// [`ColumnError::MalformedCell`](crate::typed::ColumnError) or
            /// [`ColumnError::Malformed`](crate::typed::ColumnError) for a row that is not a row of the schema. After an error, `buffers` is unchanged.
            pub fn get_columns<'k, K>(&self, keys: &[K], buffers: &mut ColumnBuffers) -> Result<(), TypedLookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                self.with_typed(|table| {
                    typed::columns(table.typed_store(), buffers, |visit| {
                        table.each_value(keys, |_, value| visit(value))
                    })
                })
            }

            /// Copies columns of many rows into `matrix`, one row per key, in the order of the keys, as NumPy stores a
            /// matrix in C order. Null cells and the rows of keys that the table does not have become
            /// [`MatrixPlan::fill`]. Returns the number of keys that the table has.
            ///
            /// # Errors
            /// The errors of [`Self::get_columns`]. After an error, the content of `matrix` is arbitrary.
            ///
            /// # Panics
            /// If the length of `matrix` is not the number of keys times [`MatrixPlan::width`].
            pub fn get_matrix<'k, K, T>(
                &self,
                keys: &[K],
                plan: &MatrixPlan<T>,
                matrix: &mut [T],
            ) -> Result<usize, TypedLookupError>
            where
                K: Into<Key<'k>> + Copy,
                T: MatrixNumber,
            {
                assert_eq!(matrix.len(), keys.len() * plan.width(), "the length of the matrix");
                self.with_typed(|table| {
                    typed::matrix(table.typed_store(), plan, matrix, |visit| {
                        table.each_value(keys, |_, value| visit(value))
                    })
                })
            }
        }
    };
}

pub(crate) use impl_typed_lookups;
