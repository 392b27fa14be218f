//! What all tables can do.
//!
//! In: keys and ranges. Out: values and rows, borrowed from a [`Store`](super::Store) or copied from a mapped file.

use std::sync::Arc;

use super::mapped::owned;
use super::typed::{self, TypedLookupError};
use super::{LookupError, MappedRows, MappedStore, Rows, Side, Store};
use crate::format::key::{Key, KeyKind};
use crate::format::{KeyBounds, OwnedKey, Row};
use crate::typed::{ColumnBuffers, MatrixNumber, MatrixPlan, OwnedRow, Projection, Schema, TypedRow};

/// A key and its value, as a table `T` returns them.
pub type RowOf<'t, T> = (<T as Lookup>::Key<'t>, <T as Lookup>::Value<'t>);

/// The lookups of a table: of a [`Store`](super::Store), a [`MappedStore`](super::MappedStore), a
/// [`Direct`](crate::client::Direct), a snapshot, or a pointer to one of them. Clients have the same methods, apart from columns: they return
/// projected rows.
///
/// A `Store` lends keys and values. The other tables return copies, because another process may change their file.
///
/// A lookup fails with [`LookupError::KeyKind`] if its key is a number but the table's keys are bytes, or vice versa, and
/// with [`LookupError::Damaged`] if it would read a damaged block, or if the file was changed. A call for many keys or
/// ranges uses one generation of the table, and is several times faster than a call for each, because memory accesses
/// overlap.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// // Each key is the first address of a range, and each value is the range's owner.
/// # bake::bake_csv("100,first\n150,\n200,third\n".as_bytes(), &path, &Options::default())?;
/// use zero_kv::{Lookup, MappedStore, Store};
///
/// let table = Store::open(&path)?;
/// assert_eq!(table.get(100)?, Some(&b"first"[..]));
/// assert_eq!(table.get(150)?, Some(&b""[..]));
/// assert_eq!(table.get_many(&[200, 7])?, [Some(&b"third"[..]), None]);
/// assert_eq!(table.floor(199)?, Some((150.into(), &b""[..])));
/// assert_eq!(table.ceiling(151)?, Some((200.into(), &b"third"[..])));
/// assert_eq!(table.count_many(&[0..100, 100..200, 200..300])?, [0, 2, 1]);
/// assert!(table.contains(150)? && !table.contains(151)?);
///
/// // The same lookups in a mapped file.
/// fn owner_of(table: &impl Lookup, address: u64) -> Result<Vec<u8>, zero_kv::LookupError> {
///     Ok(table.floor(address)?.map(|(_, owner)| owner.as_ref().to_vec()).unwrap_or_default())
/// }
/// assert_eq!(owner_of(&MappedStore::open(&path)?, 250)?, b"third");
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Lookup {
    /// A key of a row: [`Key`] or [`OwnedKey`](crate::OwnedKey).
    type Key<'t>
    where
        Self: 't;
    /// A value: `&[u8]` or `Vec<u8>`.
    type Value<'t>: AsRef<[u8]>
    where
        Self: 't;
    /// Rows in key order. After an error, the iterator ends.
    type Rows<'t>: DoubleEndedIterator<Item = Result<RowOf<'t, Self>, LookupError>>
    where
        Self: 't;
    /// A row of a typed table: [`TypedRow`] or [`OwnedRow`](crate::typed::OwnedRow).
    type Row<'t>
    where
        Self: 't;

    /// The kind of the keys.
    fn key_kind(&self) -> KeyKind;

    /// The columns of a typed table. The next generation can have other columns.
    fn schema(&self) -> Option<Arc<Schema>>;

    /// The number of rows.
    fn len(&self) -> usize;

    /// Whether the table has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, or `None` if the table does not have the key.
    fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Self::Value<'_>>, LookupError>;

    /// Passes the value of a key to `visit`, unless the lookup fails. Allocates no memory for most values.
    fn get_with<'k, T>(
        &self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, LookupError>;

    /// The values of many keys, in the order of the keys.
    fn get_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<Self::Value<'_>>>, LookupError>;

    /// Passes the values of many keys to `visit`, in the order of the keys, each with the position of its key. If a key is
    /// of the wrong kind, `visit` is never called. After another error, the values that were already passed are right.
    fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), LookupError>;

    /// Whether the table has a key.
    fn contains<'k>(&self, key: impl Into<Key<'k>>) -> Result<bool, LookupError> {
        self.get_with(key, |value| value.is_some())
    }

    /// Whether the table has each of many keys.
    fn contains_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<bool>, LookupError> {
        let mut found = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| found.push(value.is_some()))?;
        Ok(found)
    }

    /// The row with the largest key less than or equal to `key`.
    fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RowOf<'_, Self>>, LookupError>;

    /// The floor of each of many keys.
    fn floor_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<RowOf<'_, Self>>>, LookupError>;

    /// Passes the floors of many keys to `visit`, as [`Lookup::get_many_with`] does.
    fn floor_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError>;

    /// The row with the smallest key greater than or equal to `key`.
    fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RowOf<'_, Self>>, LookupError>;

    /// The ceiling of each of many keys.
    fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<RowOf<'_, Self>>>, LookupError>;

    /// Passes the ceilings of many keys to `visit`, as [`Lookup::get_many_with`] does.
    fn ceiling_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError>;

    /// The row with a number, counted from 0 in key order, or `None` if the table has no such row.
    fn row(&self, number: usize) -> Result<Option<RowOf<'_, Self>>, LookupError>;

    /// The row with the smallest key.
    fn first(&self) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        self.row(0)
    }

    /// The row with the largest key.
    fn last(&self) -> Result<Option<RowOf<'_, Self>>, LookupError>;

    /// All rows, from either end.
    fn iter(&self) -> Self::Rows<'_>;

    /// The rows whose keys are in a range, from either end. A range that ends before it begins has no rows.
    fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<Self::Rows<'_>, LookupError>;

    /// The rows of each of many ranges.
    fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<Self::Rows<'_>>, LookupError>;

    /// The rows whose keys begin with `prefix`, from either end.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Self::Rows<'_>, LookupError>;

    /// The number of keys in a range. Reads at most the rows near its ends.
    fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError>;

    /// The number of keys in each of many ranges.
    fn count_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<usize>, LookupError>;

    /// The number of keys that begin with `prefix`.
    fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<usize, LookupError>;

    /// The row of a key in a typed table.
    ///
    /// # Errors
    /// Those of [`Lookup::get`], [`TypedLookupError::NotTyped`], and
    /// [`ColumnError::Malformed`](crate::typed::ColumnError) if the row is not a row of the schema.
    fn get_row<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Self::Row<'_>>, TypedLookupError>;

    /// Passes the row of a key in a typed table to `visit`.
    ///
    /// # Errors
    /// Those of [`Lookup::get_row`].
    fn get_row_with<'k, T>(
        &self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&TypedRow<'_>>) -> T,
    ) -> Result<T, TypedLookupError>;

    /// Some columns of the rows of many keys, in the order of the keys. A missing key has no value in any column.
    ///
    /// # Errors
    /// Those of [`Lookup::fill_columns`], and [`TypedLookupError::Column`] if a column does not exist.
    fn get_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        columns: &[impl AsRef<str>],
    ) -> Result<ColumnBuffers, TypedLookupError> {
        let schema = self.schema().ok_or(TypedLookupError::NotTyped)?;
        let mut buffers = ColumnBuffers::new(&schema, &Projection::new(&schema, columns)?);
        self.fill_columns(keys, &mut buffers)?;
        Ok(buffers)
    }

    /// Appends the columns of many rows to `buffers`, which can be used again for the next keys.
    ///
    /// # Errors
    /// Those of [`Lookup::get_row`], and [`TypedLookupError::SchemaChanged`] if `buffers` was created for another schema.
    /// After an error, `buffers` is unchanged.
    fn fill_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        buffers: &mut ColumnBuffers,
    ) -> Result<(), TypedLookupError>;

    /// Copies columns of many rows into `matrix`, one row per key, as NumPy stores a matrix in C order. Null cells and the
    /// rows of missing keys become [`MatrixPlan::fill`]. Returns the number of keys that the table has.
    ///
    /// # Errors
    /// Those of [`Lookup::fill_columns`]. After an error, the content of `matrix` is arbitrary.
    ///
    /// # Panics
    /// If the length of `matrix` is not the number of keys times [`MatrixPlan::width`].
    fn get_matrix<'k, K: Into<Key<'k>> + Copy, T: MatrixNumber>(
        &self,
        keys: &[K],
        plan: &MatrixPlan<T>,
        matrix: &mut [T],
    ) -> Result<usize, TypedLookupError>;
}

impl Lookup for Store {
    type Key<'t> = Key<'t>;
    type Value<'t> = &'t [u8];
    type Rows<'t> = Rows<'t>;
    type Row<'t> = TypedRow<'t>;

    #[inline]
    fn key_kind(&self) -> KeyKind {
        self.layout.dimensions.key_kind
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        self.schema.clone()
    }

    #[inline]
    fn len(&self) -> usize {
        self.layout.dimensions.row_count as usize
    }

    #[inline]
    fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<&[u8]>, LookupError> {
        self.value_of(key.into())
    }

    #[inline]
    fn get_with<'k, T>(
        &self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, LookupError> {
        self.get(key).map(visit)
    }

    fn get_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<&[u8]>>, LookupError> {
        let mut values = Vec::with_capacity(keys.len());
        self.each_value(keys, |_, value| values.push(value))?;
        Ok(values)
    }

    fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), LookupError> {
        self.each_value(keys, visit)
    }

    fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.neighbor_row(key.into(), Side::After)
    }

    fn floor_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<(Key<'_>, &[u8])>>, LookupError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.neighbor_many(keys, Side::After, |_, row| rows.push(row))?;
        Ok(rows)
    }

    fn floor_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.neighbor_many(keys, Side::After, visit)
    }

    fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.neighbor_row(key.into(), Side::Before)
    }

    fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<(Key<'_>, &[u8])>>, LookupError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.neighbor_many(keys, Side::Before, |_, row| rows.push(row))?;
        Ok(rows)
    }

    fn ceiling_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.neighbor_many(keys, Side::Before, visit)
    }

    fn row(&self, number: usize) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.row_with_number(number)
    }

    fn last(&self) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.len().checked_sub(1).map_or(Ok(None), |last| self.row(last))
    }

    fn iter(&self) -> Rows<'_> {
        Rows::all(self)
    }

    fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<Rows<'_>, LookupError> {
        self.rows_in(&range)
    }

    fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<Rows<'_>>, LookupError> {
        let mut found = Vec::with_capacity(ranges.len());
        self.each_range(ranges, |rows| found.push(rows))?;
        Ok(found)
    }

    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Rows<'_>, LookupError> {
        self.rows_with_prefix(prefix.as_ref())
    }

    fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError> {
        self.count_in(&range)
    }

    fn count_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<usize>, LookupError> {
        let mut counts = Vec::with_capacity(ranges.len());
        self.each_count(ranges, |count| counts.push(count))?;
        Ok(counts)
    }

    fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<usize, LookupError> {
        self.prefix(prefix).map(|rows| rows.len())
    }

    fn get_row<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<TypedRow<'_>>, TypedLookupError> {
        let schema = self.typed_schema()?;
        Ok(self.get(key)?.map(|value| TypedRow::new(schema, value)).transpose()?)
    }

    fn get_row_with<'k, T>(
        &self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&TypedRow<'_>>) -> T,
    ) -> Result<T, TypedLookupError> {
        Ok(visit(self.get_row(key)?.as_ref()))
    }

    fn fill_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        buffers: &mut ColumnBuffers,
    ) -> Result<(), TypedLookupError> {
        typed::columns(self, buffers, |visit| self.each_value(keys, |_, value| visit(value)))
    }

    fn get_matrix<'k, K: Into<Key<'k>> + Copy, T: MatrixNumber>(
        &self,
        keys: &[K],
        plan: &MatrixPlan<T>,
        matrix: &mut [T],
    ) -> Result<usize, TypedLookupError> {
        assert_eq!(matrix.len(), keys.len() * plan.width(), "the length of the matrix");
        typed::matrix(self, plan, matrix, |visit| self.each_value(keys, |_, value| visit(value)))
    }
}

/// Implements [`Lookup`] for a table that returns verified copies: for a type with a method `with_table`, which passes a
/// `&MappedStore` to a function, and a method `handle`, which returns a pointer to a `MappedStore` for an iterator.
macro_rules! impl_lookup_by_copies {
    ($Type:ty, $Handle:ty) => {
        impl Lookup for $Type {
            type Key<'t> = OwnedKey;
            type Value<'t> = Vec<u8>;
            type Rows<'t> = MappedRows<$Handle>;
            type Row<'t> = OwnedRow;

            #[inline]
            fn key_kind(&self) -> KeyKind {
                self.handle().unverified().key_kind()
            }

            fn schema(&self) -> Option<Arc<Schema>> {
                self.handle().unverified().schema()
            }

            fn len(&self) -> usize {
                self.handle().unverified().len()
            }

            #[inline]
            fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.get(key)?.map(<[u8]>::to_vec))))
            }

            #[inline]
            fn get_with<'k, T>(
                &self,
                key: impl Into<Key<'k>>,
                visit: impl FnOnce(Option<&[u8]>) -> T,
            ) -> Result<T, LookupError> {
                let key = key.into();
                self.with_table(|table| table.visit_value(key, visit))
            }

            fn get_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LookupError> {
                let mut values = Vec::with_capacity(keys.len());
                self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
                Ok(values)
            }

            fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), LookupError> {
                self.with_table(|table| table.visit_values(keys, visit))
            }

            #[inline]
            fn contains<'k>(&self, key: impl Into<Key<'k>>) -> Result<bool, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| store.contains(key)))
            }

            fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.floor(key)?.map(owned))))
            }

            fn floor_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<Row>>, LookupError> {
                let mut rows = Vec::with_capacity(keys.len());
                self.floor_many_with(keys, |_, row| rows.push(row.map(owned)))?;
                Ok(rows)
            }

            fn floor_many_with<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError> {
                self.with_table(|table| table.visit_neighbors(keys, Side::After, visit))
            }

            fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.ceiling(key)?.map(owned))))
            }

            fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<Row>>, LookupError> {
                let mut rows = Vec::with_capacity(keys.len());
                self.ceiling_many_with(keys, |_, row| rows.push(row.map(owned)))?;
                Ok(rows)
            }

            fn ceiling_many_with<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError> {
                self.with_table(|table| table.visit_neighbors(keys, Side::Before, visit))
            }

            fn row(&self, number: usize) -> Result<Option<Row>, LookupError> {
                self.with_table(|table| table.copied(|store| Ok(store.row(number)?.map(owned))))
            }

            fn last(&self) -> Result<Option<Row>, LookupError> {
                self.with_table(|table| table.copied(|store| Ok(store.last()?.map(owned))))
            }

            fn iter(&self) -> Self::Rows<'_> {
                let table = self.handle();
                let span = table.unverified().iter().span();
                MappedRows::new(table, span)
            }

            fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<Self::Rows<'_>, LookupError> {
                let table = self.handle();
                let span = table.copied(|store| Ok(store.rows_in(&range)?.span()))?;
                Ok(MappedRows::new(table, span))
            }

            fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<Self::Rows<'_>>, LookupError> {
                let table = self.handle();
                let spans = table.copied(|store| {
                    let mut spans = Vec::with_capacity(ranges.len());
                    store.each_range(ranges, |rows| spans.push(rows.span()))?;
                    Ok(spans)
                })?;
                Ok(spans.into_iter().map(|span| MappedRows::new(table.clone(), span)).collect())
            }

            fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Self::Rows<'_>, LookupError> {
                let table = self.handle();
                let span = table.copied(|store| Ok(store.rows_with_prefix(prefix.as_ref())?.span()))?;
                Ok(MappedRows::new(table, span))
            }

            fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError> {
                self.with_table(|table| table.copied(|store| store.count_in(&range)))
            }

            fn count_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<usize>, LookupError> {
                self.with_table(|table| table.copied(|store| store.count_many(ranges)))
            }

            fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<usize, LookupError> {
                self.with_table(|table| table.copied(|store| store.count_prefix(&prefix)))
            }

            fn get_row<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<OwnedRow>, TypedLookupError> {
                let key = key.into();
                self.with_table(|table| {
                    let schema = table.unverified().schema().ok_or(TypedLookupError::NotTyped)?;
                    let value = table.copied(|store| Ok(store.get(key)?.map(<[u8]>::to_vec)))?;
                    Ok(value.map(|bytes| OwnedRow::new(schema, bytes)).transpose()?)
                })
            }

            fn get_row_with<'k, T>(
                &self,
                key: impl Into<Key<'k>>,
                visit: impl FnOnce(Option<&TypedRow<'_>>) -> T,
            ) -> Result<T, TypedLookupError> {
                let key = key.into();
                self.with_table(|table| {
                    let schema = table.unverified().typed_schema()?;
                    table.visit_value(key, |value| {
                        let row = value.map(|value| TypedRow::new(schema, value)).transpose()?;
                        Ok(visit(row.as_ref()))
                    })?
                })
            }

            fn fill_columns<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                buffers: &mut ColumnBuffers,
            ) -> Result<(), TypedLookupError> {
                self.with_table(|table| {
                    typed::columns(table.unverified(), buffers, |visit| {
                        table.visit_values(keys, |_, value| visit(value))
                    })
                })
            }

            fn get_matrix<'k, K: Into<Key<'k>> + Copy, T: MatrixNumber>(
                &self,
                keys: &[K],
                plan: &MatrixPlan<T>,
                matrix: &mut [T],
            ) -> Result<usize, TypedLookupError> {
                assert_eq!(matrix.len(), keys.len() * plan.width(), "the length of the matrix");
                self.with_table(|table| {
                    typed::matrix(table.unverified(), plan, matrix, |visit| {
                        table.visit_values(keys, |_, value| visit(value))
                    })
                })
            }
        }
    };
}

pub(crate) use impl_lookup_by_copies;

impl_lookup_by_copies!(MappedStore, &'t MappedStore);
