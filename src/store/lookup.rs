//! The lookups of all tables.
//!
//! In: keys and ranges. Out: values and rows, borrowed from a [`Store`](super::Store) or copied from a mapped file.

use std::sync::Arc;

use super::mapped::{owned, owned_range};
use super::typed::{self, TypedLookupError, ValueOf, VisitValues};
use super::{LookupError, MappedRows, MappedStore, Rows, Side, Store};
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::{KeyTextError, KeyType, KeyValue};
use crate::format::{KeyBounds, OwnedKey, RangeRow, Row};
use crate::typed::{ColumnBuffers, MatrixNumber, MatrixPlan, OwnedRow, Projection, Schema, TypedRow};

/// A row that a store lends.
pub(crate) type LentRow<'s> = Result<Option<(Key<'s>, &'s [u8])>, LookupError>;
/// Rows that a store lends.
pub(crate) type LentRows<'s> = Result<Rows<'s>, LookupError>;
/// A key and its value, as a table `T` returns them.
type RowOf<'t, T> = (<T as Lookup>::Key<'t>, <T as Lookup>::Value<'t>);
/// The first and the last key of a range and its value, as tables `T` return them.
type RangeOf<'t, T> = (<T as Lookup>::Key<'t>, <T as Lookup>::Key<'t>, <T as Lookup>::Value<'t>);

/// The lookups of a table: of a [`Store`](super::Store), a [`MappedStore`](super::MappedStore), a
/// [`Direct`](crate::client::Direct), or a snapshot. Clients have the same methods, apart from columns: they return
/// projected rows.
///
/// A `Store` lends keys and values. The other tables return copies, because another process may change their file.
///
/// A lookup fails with [`LookupError::KeyKind`] if its key is a number but the table's keys are bytes, or vice versa,
/// and with [`LookupError::Damaged`] if it would read a damaged block, or if the file was changed. A call for many keys
/// or ranges uses one generation of the table, and is several times faster than a call for each, because memory
/// accesses overlap.
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

    /// The kind of the stored keys.
    fn key_kind(&self) -> KeyKind {
        self.key_type().kind()
    }

    /// The type of the keys. Lookups take stored keys: [`Lookup::key`] and [`KeyType::parse`] return them.
    fn key_type(&self) -> KeyType;

    /// The columns of a typed table. The next generation can have other columns.
    fn schema(&self) -> Option<Arc<Schema>>;

    /// The stored key with this value, for lookups.
    ///
    /// # Errors
    /// [`KeyTextError`] if the value has another type than the keys, or if keys have several parts: see
    /// [`KeyType::key`].
    fn key<'v>(&self, value: impl Into<KeyValue<'v>>) -> Result<OwnedKey, KeyTextError> {
        self.key_type().key([value.into()])
    }

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

    /// Passes the values of many keys to `visit`, in the order of the keys, each with the position of its key. If a key
    /// is of the wrong kind, `visit` is never called. After another error, the values that were already passed are
    /// right.
    fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), LookupError>;

    /// Whether the table has a key.
    #[inline]
    fn contains<'k>(&self, key: impl Into<Key<'k>>) -> Result<bool, LookupError> {
        let key = key.into();
        self.read(|store| Ok(store.value_of(key)?.is_some()))
    }

    /// Whether the table has each of many keys.
    fn contains_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<bool>, LookupError> {
        let mut found = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| found.push(value.is_some()))?;
        Ok(found)
    }

    /// The row with the largest key less than or equal to `key`.
    fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        let key = key.into();
        self.read_row(|store| store.neighbor_row(key, Side::After))
    }

    /// The floor of each of many keys.
    fn floor_many<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<Vec<Option<RowOf<'_, Self>>>, LookupError> {
        self.nearest_many(keys, Side::After)
    }

    /// Passes the floors of many keys to `visit`, as [`Lookup::get_many_with`] does.
    fn floor_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.nearest_many_with(keys, Side::After, visit)
    }

    /// The row with the smallest key greater than or equal to `key`.
    fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        let key = key.into();
        self.read_row(|store| store.neighbor_row(key, Side::Before))
    }

    /// The ceiling of each of many keys.
    fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<RowOf<'_, Self>>>, LookupError> {
        self.nearest_many(keys, Side::Before)
    }

    /// Passes the ceilings of many keys to `visit`, as [`Lookup::get_many_with`] does.
    fn ceiling_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.nearest_many_with(keys, Side::Before, visit)
    }

    /// Whether the rows are ranges, which [`Lookup::cover`] looks up.
    fn has_ranges(&self) -> bool;

    /// The range that contains `key`, in a table of ranges: its first key, its last key, and its value. `None` if no
    /// range contains the key.
    ///
    /// # Errors
    /// [`LookupError::NoRanges`] if the rows are no ranges.
    fn cover<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RangeOf<'_, Self>>, LookupError>;

    /// The range that contains each of many keys, in a table of ranges.
    ///
    /// # Errors
    /// Those of [`Lookup::cover`].
    fn cover_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<RangeOf<'_, Self>>>, LookupError>;

    /// Passes the ranges that contain many keys to `visit`, as [`Lookup::get_many_with`] does.
    ///
    /// # Errors
    /// Those of [`Lookup::cover`].
    fn cover_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError>;

    /// The row with a number, counted from 0 in key order, or `None` if the table has no such row.
    fn row(&self, number: usize) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        self.read_row(|store| store.row_with_number(number))
    }

    /// The row with the smallest key.
    fn first(&self) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        self.row(0)
    }

    /// The row with the largest key.
    fn last(&self) -> Result<Option<RowOf<'_, Self>>, LookupError> {
        // The number of rows and the row come from one generation.
        self.read_row(|store| store.len().checked_sub(1).map_or(Ok(None), |last| store.row_with_number(last)))
    }

    /// All rows, from either end.
    fn iter(&self) -> Self::Rows<'_>;

    /// The rows whose keys are in a range, from either end. A range that ends before it begins has no rows.
    fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<Self::Rows<'_>, LookupError> {
        self.read_rows(|store| store.rows_in(&range))
    }

    /// The rows of each of many ranges.
    fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<Self::Rows<'_>>, LookupError>;

    /// The rows whose keys begin with `prefix`, from either end.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Self::Rows<'_>, LookupError> {
        self.read_rows(|store| store.rows_with_prefix(prefix.as_ref()))
    }

    /// The number of keys in a range. Reads at most the rows near its ends.
    fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError> {
        self.read(|store| store.count_in(&range))
    }

    /// The number of keys in each of many ranges.
    fn count_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<usize>, LookupError> {
        self.read(|store| {
            let mut counts = Vec::with_capacity(ranges.len());
            store.each_count(ranges, |count| counts.push(count))?;
            Ok(counts)
        })
    }

    /// The number of keys that begin with `prefix`.
    fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<usize, LookupError> {
        self.read(|store| Ok(store.rows_with_prefix(prefix.as_ref())?.len()))
    }

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
        self.columns_of(keys, ValueOf::Key, columns)
    }

    /// Some columns of the ranges that contain many keys, as [`Lookup::get_columns`] returns the columns of rows.
    ///
    /// # Errors
    /// Those of [`Lookup::get_columns`] and [`Lookup::cover`].
    fn cover_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        columns: &[impl AsRef<str>],
    ) -> Result<ColumnBuffers, TypedLookupError> {
        self.columns_of(keys, ValueOf::Cover, columns)
    }

    /// Appends columns of the ranges that contain many keys to `buffers`, as [`Lookup::fill_columns`] appends the
    /// columns of rows.
    ///
    /// # Errors
    /// Those of [`Lookup::fill_columns`] and [`Lookup::cover`].
    fn cover_fill_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        buffers: &mut ColumnBuffers,
    ) -> Result<(), TypedLookupError> {
        self.read_values(keys, ValueOf::Cover, |store, values| typed::columns(store, buffers, values))
    }

    /// Appends the columns of many rows to `buffers`, which can be used again for the next keys.
    ///
    /// # Errors
    /// Those of [`Lookup::get_row`], and [`TypedLookupError::SchemaChanged`] if `buffers` was created for another
    /// schema. After an error, `buffers` is unchanged.
    fn fill_columns<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        buffers: &mut ColumnBuffers,
    ) -> Result<(), TypedLookupError> {
        self.read_values(keys, ValueOf::Key, |store, values| typed::columns(store, buffers, values))
    }

    /// Copies columns of many rows into `matrix`, one row per key, as NumPy stores a matrix in C order. Null cells and
    /// the rows of missing keys become [`MatrixPlan::fill`]. Returns the number of keys that the table has.
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
    ) -> Result<usize, TypedLookupError> {
        assert_eq!(matrix.len(), keys.len() * plan.width(), "the length of the matrix");
        self.read_values(keys, ValueOf::Key, |store, values| typed::matrix(store, plan, matrix, values))
    }

    /// Copies columns of the ranges that contain many keys into `matrix`, as [`Lookup::get_matrix`] copies the columns
    /// of rows. Returns the number of keys that a range contains.
    ///
    /// # Errors
    /// Those of [`Lookup::get_matrix`] and [`Lookup::cover`].
    ///
    /// # Panics
    /// If the length of `matrix` is not the number of keys times [`MatrixPlan::width`].
    fn cover_matrix<'k, K: Into<Key<'k>> + Copy, T: MatrixNumber>(
        &self,
        keys: &[K],
        plan: &MatrixPlan<T>,
        matrix: &mut [T],
    ) -> Result<usize, TypedLookupError> {
        assert_eq!(matrix.len(), keys.len() * plan.width(), "the length of the matrix");
        self.read_values(keys, ValueOf::Cover, |store, values| typed::matrix(store, plan, matrix, values))
    }

    #[doc(hidden)]
    fn columns_of<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        of: ValueOf,
        columns: &[impl AsRef<str>],
    ) -> Result<ColumnBuffers, TypedLookupError> {
        let schema = self.schema().ok_or(TypedLookupError::NotTyped)?;
        let mut buffers = ColumnBuffers::new(&schema, &Projection::new(&schema, columns)?);
        self.read_values(keys, of, |store, values| typed::columns(store, &mut buffers, values))?;
        Ok(buffers)
    }

    /// Reads something that does not borrow from the table. A table that returns copies verifies what was read, and may
    /// call `read` several times.
    #[doc(hidden)]
    fn read<T>(&self, read: impl FnMut(&Store) -> Result<T, LookupError>) -> Result<T, LookupError>;

    #[doc(hidden)]
    fn read_row(&self, read: impl FnMut(&Store) -> LentRow<'_>) -> Result<Option<RowOf<'_, Self>>, LookupError>;

    #[doc(hidden)]
    fn read_rows(&self, read: impl FnMut(&Store) -> LentRows<'_>) -> Result<Self::Rows<'_>, LookupError>;

    #[doc(hidden)]
    fn nearest_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        side: Side,
    ) -> Result<Vec<Option<RowOf<'_, Self>>>, LookupError>;

    #[doc(hidden)]
    fn nearest_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        side: Side,
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError>;

    /// Calls `read` with the table and a function that visits the value of the row of each key.
    #[doc(hidden)]
    fn read_values<'k, K: Into<Key<'k>> + Copy, T>(
        &self,
        keys: &[K],
        of: ValueOf,
        read: impl FnOnce(&Store, VisitValues<'_>) -> Result<T, TypedLookupError>,
    ) -> Result<T, TypedLookupError>;
}

impl Lookup for Store {
    type Key<'t> = Key<'t>;
    type Value<'t> = &'t [u8];
    type Rows<'t> = Rows<'t>;
    type Row<'t> = TypedRow<'t>;

    #[inline]
    fn key_type(&self) -> KeyType {
        self.layout.dimensions.key_type
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

    fn read<T>(&self, mut read: impl FnMut(&Store) -> Result<T, LookupError>) -> Result<T, LookupError> {
        read(self)
    }

    fn read_row(&self, mut read: impl FnMut(&Store) -> LentRow<'_>) -> LentRow<'_> {
        read(self)
    }

    fn read_rows(&self, mut read: impl FnMut(&Store) -> LentRows<'_>) -> LentRows<'_> {
        read(self)
    }

    fn nearest_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        side: Side,
    ) -> Result<Vec<Option<(Key<'_>, &[u8])>>, LookupError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.neighbor_many(keys, side, |_, row| rows.push(row))?;
        Ok(rows)
    }

    fn nearest_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        side: Side,
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.neighbor_many(keys, side, visit)
    }

    fn has_ranges(&self) -> bool {
        self.layout.dimensions.has_ranges
    }

    fn cover<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(Key<'_>, Key<'_>, &[u8])>, LookupError> {
        self.range_of(key.into())
    }

    fn cover_many<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<(Key<'_>, Key<'_>, &[u8])>>, LookupError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.range_of_many(keys, |_, row| rows.push(row))?;
        Ok(rows)
    }

    fn cover_many_with<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        visit: impl for<'v> FnMut(usize, Option<(Key<'v>, Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError> {
        self.range_of_many(keys, visit)
    }

    fn iter(&self) -> Rows<'_> {
        Rows::all(self)
    }

    fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<Rows<'_>>, LookupError> {
        let mut found = Vec::with_capacity(ranges.len());
        self.each_range(ranges, |rows| found.push(rows))?;
        Ok(found)
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

    fn read_values<'k, K: Into<Key<'k>> + Copy, T>(
        &self,
        keys: &[K],
        of: ValueOf,
        read: impl FnOnce(&Store, VisitValues<'_>) -> Result<T, TypedLookupError>,
    ) -> Result<T, TypedLookupError> {
        read(self, &mut |visit| match of {
            ValueOf::Key => self.each_value(keys, |_, value| visit(value)),
            ValueOf::Cover => self.range_of_many(keys, |_, range| visit(range.map(|(.., value)| value))),
        })
    }
}

/// Implements [`Lookup`] for a table that returns verified copies: for a type with a method `with_table`, which passes
/// a `&MappedStore` to a function, and a method `handle`, which returns a pointer to a `MappedStore` for an iterator.
macro_rules! impl_lookup_by_copies {
    ($Type:ty, $Handle:ty) => {
        impl Lookup for $Type {
            type Key<'t> = OwnedKey;
            type Value<'t> = Vec<u8>;
            type Rows<'t> = MappedRows<$Handle>;
            type Row<'t> = OwnedRow;

            #[inline]
            fn key_type(&self) -> KeyType {
                self.handle().unverified().key_type()
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
            fn read<T>(&self, mut read: impl FnMut(&Store) -> Result<T, LookupError>) -> Result<T, LookupError> {
                self.with_table(|table| table.copied(&mut read))
            }

            fn read_row(&self, mut read: impl FnMut(&Store) -> LentRow<'_>) -> Result<Option<Row>, LookupError> {
                self.with_table(|table| table.copied(|store| Ok(read(store)?.map(owned))))
            }

            fn read_rows(&self, mut read: impl FnMut(&Store) -> LentRows<'_>) -> Result<Self::Rows<'_>, LookupError> {
                let table = self.handle();
                let span = table.copied(|store| Ok(read(store)?.span()))?;
                Ok(MappedRows::new(table, span))
            }

            fn nearest_many<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                side: Side,
            ) -> Result<Vec<Option<Row>>, LookupError> {
                let mut rows = Vec::with_capacity(keys.len());
                self.nearest_many_with(keys, side, |_, row| rows.push(row.map(owned)))?;
                Ok(rows)
            }

            fn nearest_many_with<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                side: Side,
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError> {
                self.with_table(|table| table.visit_neighbors(keys, side, visit))
            }

            fn has_ranges(&self) -> bool {
                self.handle().unverified().has_ranges()
            }

            fn cover<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<RangeRow>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.range_of(key)?.map(owned_range))))
            }

            fn cover_many<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
            ) -> Result<Vec<Option<RangeRow>>, LookupError> {
                let mut rows = Vec::with_capacity(keys.len());
                self.cover_many_with(keys, |_, row| rows.push(row.map(owned_range)))?;
                Ok(rows)
            }

            fn cover_many_with<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError> {
                self.with_table(|table| table.visit_ranges(keys, visit))
            }

            fn iter(&self) -> Self::Rows<'_> {
                let table = self.handle();
                let span = table.unverified().iter().span();
                MappedRows::new(table, span)
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

            fn read_values<'k, K: Into<Key<'k>> + Copy, T>(
                &self,
                keys: &[K],
                of: ValueOf,
                read: impl FnOnce(&Store, VisitValues<'_>) -> Result<T, TypedLookupError>,
            ) -> Result<T, TypedLookupError> {
                self.with_table(|table| {
                    let mut values = |visit: &mut dyn FnMut(Option<&[u8]>)| match of {
                        ValueOf::Key => table.visit_values(keys, |_, value| visit(value)),
                        ValueOf::Cover => table.visit_ranges(keys, |_, range| visit(range.map(|(.., value)| value))),
                    };
                    read(table.unverified(), &mut values)
                })
            }
        }
    };
}

pub(crate) use impl_lookup_by_copies;

impl_lookup_by_copies!(MappedStore, &'t MappedStore);
