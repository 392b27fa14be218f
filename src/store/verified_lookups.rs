//! Defines the lookups that [`MappedStore`](super::MappedStore) and [`Direct`](crate::client::Direct) have in common.
//! These lookups return verified copies of values.

/// Implements the lookups for a type with a method `with_table`, which passes a `&MappedStore` to a function.
macro_rules! impl_verified_lookups {
    ($Type:ident) => {
        /// Lookups that return verified copies of values.
        impl $Type {
            /// Returns the value of a key, or `None` if the table does not have the key.
            ///
            /// # Errors
            /// [`LookupError::KeyKind`] if the key is a number but the table's keys are bytes, or vice versa;
            /// [`LookupError::Damaged`] if the value's block is damaged or the file was changed.
            #[inline]
            pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.get(key)?.map(<[u8]>::to_vec))))
            }

            /// Calls `visit` with the value of a key, or with `None` if the table does not have the key. Returns the
            /// result of `visit`. Unlike [`Self::get`], allocates no memory for most values.
            ///
            /// # Errors
            /// The errors of [`Self::get`]. If the lookup fails, `visit` is not called.
            #[inline]
            pub fn get_with<'k, T>(
                &self,
                key: impl Into<Key<'k>>,
                visit: impl FnOnce(Option<&[u8]>) -> T,
            ) -> Result<T, LookupError> {
                let key = key.into();
                self.with_table(|table| table.visit_value(key, visit))
            }

            /// Returns the values of many keys, in the order of the keys. All values come from the same file, even if
            /// another file replaces it meanwhile. One call is several times faster than calling [`Self::get`] for each
            /// key.
            ///
            /// # Errors
            /// The errors of [`Self::get`].
            pub fn get_many<'k, K>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                let mut values = Vec::with_capacity(keys.len());
                self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
                Ok(values)
            }

            /// Looks up many keys in one table. Calls `visit` for each key, in order, with the key's position in `keys`
            /// and its value.
            ///
            /// # Errors
            /// The errors of [`Self::get`]. Every value that was passed to `visit` before the error is correct.
            pub fn get_many_with<'k, K>(
                &self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                self.with_table(|table| table.visit_values(keys, visit))
            }

            /// Returns the row with the largest key less than or equal to `key`.
            ///
            /// # Errors
            /// The errors of [`Self::get`].
            pub fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.floor(key)?.map(owned))))
            }

            /// Returns the result of [`Self::floor`] for each of many keys, in the order of the keys, from one table. One
            /// call is several times faster than calling [`Self::floor`] for each key.
            ///
            /// # Errors
            /// The errors of [`Self::get`].
            pub fn floor_many<'k, K>(&self, keys: &[K]) -> Result<Vec<Option<Row>>, LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                let mut rows = Vec::with_capacity(keys.len());
                self.floor_many_with(keys, |_, row| rows.push(row.map(owned)))?;
                Ok(rows)
            }

            /// Looks up the rows of [`Self::floor`] for many keys in one table. Calls `visit` for each key, in order,
            /// with the key's position in `keys` and the row.
            ///
            /// # Errors
            /// The errors of [`Self::get`]. Every row that was passed to `visit` before the error is correct.
            pub fn floor_many_with<'k, K>(
                &self,
                keys: &[K],
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                self.with_table(|table| table.visit_neighbors(keys, Side::After, visit))
            }

            /// Returns the row with the smallest key greater than or equal to `key`.
            ///
            /// # Errors
            /// The errors of [`Self::get`].
            pub fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
                let key = key.into();
                self.with_table(|table| table.copied(|store| Ok(store.ceiling(key)?.map(owned))))
            }

            /// Returns the result of [`Self::ceiling`] for each of many keys, as [`Self::floor_many`] does.
            ///
            /// # Errors
            /// The errors of [`Self::get`].
            pub fn ceiling_many<'k, K>(&self, keys: &[K]) -> Result<Vec<Option<Row>>, LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                let mut rows = Vec::with_capacity(keys.len());
                self.ceiling_many_with(keys, |_, row| rows.push(row.map(owned)))?;
                Ok(rows)
            }

            /// Looks up the rows of [`Self::ceiling`] for many keys in one table, as [`Self::floor_many_with`] does.
            ///
            /// # Errors
            /// The errors of [`Self::floor_many_with`].
            pub fn ceiling_many_with<'k, K>(
                &self,
                keys: &[K],
                visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
            ) -> Result<(), LookupError>
            where
                K: Into<Key<'k>> + Copy,
            {
                self.with_table(|table| table.visit_neighbors(keys, Side::Before, visit))
            }
        }
    };
}

pub(crate) use impl_verified_lookups;
