//! Ranges of keys.
//!
//! In: a range of values that convert to a [`Key`]. Out: the start and end of the range as keys. This module does not
//! check that the keys have the table's kind.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::key::Key;

/// A range of keys. The trait is implemented for the range types of [`std::ops`], and for pairs of [`Bound`]s. The
/// bounds must be values that convert to a [`Key`].
///
/// Methods use this trait instead of [`RangeBounds`], because a range of references implements `RangeBounds` twice: for
/// the references and for their targets. With `RangeBounds`, a call with a range of references would be ambiguous.
/// `KeyBounds` cannot be implemented outside this crate. To use another range type, convert the range to a pair of
/// bounds.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Keys, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # let mut options = Options::default();
/// # options.keys = Keys::Bytes;
/// # bake::bake_csv("ant,1\nbee,2\ncat,3\n".as_bytes(), &path, &options)?;
/// use std::ops::Bound;
///
/// use zero_kv::Lookup;
///
/// let store = zero_kv::Store::open(&path)?;
/// assert_eq!(store.count(..)?, 3);
/// assert_eq!(store.count("ant".."cat")?, 2);
/// assert_eq!(store.count(b"ant"..=b"cat")?, 3);
///
/// let (from, to) = (String::from("b"), vec![b'c']);
/// assert_eq!(store.count(&from..)?, 2);
/// assert_eq!(store.count(..&to)?, 2);
/// assert_eq!(store.count(..=&to[..])?, 2);
/// assert_eq!(store.count((Bound::Excluded("bee"), Bound::Unbounded))?, 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyBounds<'k>: sealed::Sealed {
    /// Returns the start and the end of the range.
    fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! impl_key_bounds {
    ($($range:ty),*) => {$(
        impl<K> sealed::Sealed for $range {}

        impl<'k, K: Into<Key<'k>> + Clone> KeyBounds<'k> for $range {
            fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>) {
                let [start, end] = [RangeBounds::<K>::start_bound(self), RangeBounds::<K>::end_bound(self)];
                (start.cloned().map(Into::into), end.cloned().map(Into::into))
            }
        }
    )*};
}

impl_key_bounds!(Range<K>, RangeFrom<K>, RangeTo<K>, RangeInclusive<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

impl sealed::Sealed for RangeFull {}

impl<'k> KeyBounds<'k> for RangeFull {
    fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}
