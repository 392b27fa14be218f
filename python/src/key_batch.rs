//! Many keys of one kind.
//!
//! In: a list, another iterable, a NumPy array, or the buffers of an Arrow array. Out: slices of keys. The keys are
//! copied, or referenced if they are immutable objects, so that other Python threads cannot change them during a
//! lookup. [`PossibleKeys`] are the keys of a call, some of which no table can have.

use std::fmt::Display;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyString, PyTuple};
use zero_kv::Key;
use zero_kv::client::OwnedKey;
use zero_kv::format::key_type::FIXED_KEY_LEN_BYTES;

use crate::array_nulls::ArrayNulls;
use crate::convert::{any_key_from, checked_key, is_key_len, possible_key, type_name};
use crate::errors::KeyKind;

/// How many objects are converted before signals are checked.
pub(crate) const SIGNALS_EVERY_KEYS: usize = 1 << 16;

/// Many keys of one kind.
pub(crate) enum KeyBatch<'py> {
    Numbers(Vec<u64>),
    /// `bytes` and `str` objects.
    Objects(Vec<Bound<'py, PyAny>>),
    /// Concatenated keys, and the offsets of their boundaries. `bytes` begins at the first offset, which may be greater
    /// than 0.
    Packed {
        bytes: Vec<u8>,
        offsets: Vec<i64>,
    },
    /// Concatenated keys of [`FIXED_KEY_LEN_BYTES`].
    Fixed(Vec<u8>),
}

impl<'py> KeyBatch<'py> {
    /// Converts the keys of a table of `u64` or `bytes`.
    pub(crate) fn plain(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::from_any(keys)?.checked()
    }

    /// Raises `ValueError` if there are bytes of a length that no key can have.
    pub(crate) fn checked(self) -> PyResult<Self> {
        self.slices()?.into_iter().try_for_each(|key| checked_key(Key::Bytes(key)).map(drop))?;
        Ok(self)
    }

    /// Converts numbers, or bytes of any length.
    fn from_any(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = keys.cast::<PyList>() {
            return Self::from_objects(list.iter());
        }
        if let Ok(tuple) = keys.cast::<PyTuple>() {
            return Self::from_objects(tuple.iter());
        }
        if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyByteArray>()
        {
            let found = type_name(keys);
            return Err(PyTypeError::new_err(format!("keys are of type {found}, where many keys were expected")));
        }
        if let Ok(numbers) = PyBuffer::<u64>::get(keys)
            && is_native_endian(&numbers)
        {
            return Ok(KeyBatch::Numbers(copy_buffer(&numbers, keys)?));
        }
        let narrower =
            [numbers_from::<i64>, numbers_from::<u32>, numbers_from::<i32>, numbers_from::<u16>, numbers_from::<i16>];
        if let Some(numbers) = narrower.iter().find_map(|numbers_from| numbers_from(keys)) {
            return numbers.map(KeyBatch::Numbers);
        }
        Self::from_objects(objects_of(keys)?.into_iter())
    }

    pub(crate) fn from_objects(objects: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> PyResult<Self> {
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        let count = objects.len();
        for (position, object) in objects.enumerate() {
            if position % SIGNALS_EVERY_KEYS == SIGNALS_EVERY_KEYS - 1 {
                object.py().check_signals()?;
            }
            match any_key_from(&object)? {
                Key::U64(number) => {
                    numbers.reserve(count - position);
                    numbers.push(number);
                }
                Key::Bytes(_) => {
                    others.reserve(count - position);
                    others.push(object);
                }
            }
            if !numbers.is_empty() && !others.is_empty() {
                let message = format!(
                    "key {position} is of another kind than the keys before it: use numbers or bytes, not both"
                );
                return Err(KeyKind::new_err(message));
            }
        }
        Ok(if others.is_empty() { KeyBatch::Numbers(numbers) } else { KeyBatch::Objects(others) })
    }

    pub(crate) fn kind(&self) -> zero_kv::KeyKind {
        match self {
            KeyBatch::Numbers(_) => zero_kv::KeyKind::U64,
            _ => zero_kv::KeyKind::Bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            KeyBatch::Numbers(numbers) => numbers.len(),
            KeyBatch::Objects(objects) => objects.len(),
            KeyBatch::Packed { offsets, .. } => offsets.len().saturating_sub(1),
            KeyBatch::Fixed(bytes) => bytes.len() / FIXED_KEY_LEN_BYTES,
        }
    }

    /// Returns the keys if they are bytes, otherwise an empty list.
    pub(crate) fn slices(&self) -> PyResult<Vec<&[u8]>> {
        match self {
            KeyBatch::Numbers(_) => Ok(Vec::new()),
            KeyBatch::Objects(objects) => objects.iter().map(slice_from).collect(),
            KeyBatch::Packed { bytes, offsets } => {
                (0..offsets.len().saturating_sub(1)).map(|position| slice_at(bytes, offsets, position)).collect()
            }
            KeyBatch::Fixed(bytes) => Ok(bytes.chunks_exact(FIXED_KEY_LEN_BYTES).collect()),
        }
    }

    /// Returns the keys as the library's type.
    pub(crate) fn keys(&self) -> PyResult<Vec<Key<'_>>> {
        Ok(match self {
            KeyBatch::Numbers(numbers) => numbers.iter().copied().map(Key::U64).collect(),
            _ => self.slices()?.into_iter().map(Key::Bytes).collect(),
        })
    }

    /// Returns copies of the keys.
    pub(crate) fn owned(&self) -> PyResult<Vec<OwnedKey>> {
        Ok(self.keys()?.into_iter().map(OwnedKey::from).collect())
    }
}

/// Returns the element at a position of concatenated elements. `bytes` begins at the first offset.
pub(crate) fn slice_at<'b>(bytes: &'b [u8], offsets: &[i64], position: usize) -> PyResult<&'b [u8]> {
    let first = offsets.first().copied().unwrap_or_default();
    let index = |position: usize| usize::try_from(offsets.get(position)?.checked_sub(first)?).ok();
    let slice = || bytes.get(index(position)?..index(position + 1)?);
    slice().ok_or_else(|| PyValueError::new_err("the keys' offsets are beyond the end of their data"))
}

/// Returns the keys of an array of Arrow or of a masked array that are not null, and, if some are null, which ones are
/// not.
pub(crate) fn present_keys<'py>(keys: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Option<Vec<bool>>)> {
    keys.py().import("zero_kv._arrays")?.getattr("present_keys")?.call1((keys,))?.extract()
}

/// Returns the items of an iterable.
fn objects_of<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if PyBuffer::<f64>::get(keys).is_ok() || PyBuffer::<f32>::get(keys).is_ok() {
        let message = "the keys are an array of floats, which may have been rounded: convert it, as in \
                       keys.astype(\"uint64\")";
        return Err(PyTypeError::new_err(message));
    }
    let mut objects = Vec::new();
    for object in keys.try_iter()? {
        objects.push(object?);
        if objects.len() % SIGNALS_EVERY_KEYS == 0 {
            keys.py().check_signals()?;
        }
    }
    Ok(objects)
}

fn slice_from<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    Ok(any_key_from(object)?.as_bytes().unwrap_or_default())
}

/// Returns whether the numbers of a buffer have the machine's byte order. The element type `T` does not imply the byte
/// order.
fn is_native_endian<T: Element>(buffer: &PyBuffer<T>) -> bool {
    !matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'))
}

/// Returns the numbers of a buffer with elements of type `T`, and `None` for other objects.
fn numbers_from<T>(keys: &Bound<'_, PyAny>) -> Option<PyResult<Vec<u64>>>
where
    T: Copy + Element + Display + TryInto<u64>,
{
    let numbers = PyBuffer::<T>::get(keys).ok().filter(is_native_endian)?;
    Some(copy_buffer(&numbers, keys).and_then(unsigned))
}

/// Converts numbers, none of which may be negative.
pub(crate) fn unsigned<T: Copy + Display + TryInto<u64>>(numbers: Vec<T>) -> PyResult<Vec<u64>> {
    let number = |(position, number): (usize, T)| {
        number.try_into().map_err(|_| {
            let expected = "0 to 18446744073709551615";
            PyOverflowError::new_err(format!("key {position} is {number}, where {expected} was expected"))
        })
    };
    numbers.into_iter().enumerate().map(number).collect()
}

fn copy_buffer<T: Element>(buffer: &PyBuffer<T>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    match buffer.dimensions() {
        1 => buffer.to_vec(keys.py()),
        found => Err(PyValueError::new_err(format!("keys have {found} dimensions, where 1 was expected"))),
    }
}

/// The keys of a call that a table can have, and the positions of the other keys.
pub(crate) struct PossibleKeys<'py> {
    pub(crate) batch: KeyBatch<'py>,
    /// For each key of the call, whether it is in `batch`. `None` if all keys are.
    is_possible: Option<Vec<bool>>,
}

impl<'py> PossibleKeys<'py> {
    pub(crate) fn new(batch: KeyBatch<'py>, is_possible: Option<Vec<bool>>) -> Self {
        PossibleKeys { batch, is_possible }
    }

    /// Converts keys that `is_valid` is true for, and adds the null keys.
    pub(crate) fn with_nulls(self, is_valid: Vec<bool>) -> Self {
        let mut is_possible = self.is_possible.into_iter().flatten();
        let is_kept = |is_valid: bool| is_valid && is_possible.next().unwrap_or(true);
        PossibleKeys { batch: self.batch, is_possible: Some(is_valid.into_iter().map(is_kept).collect()) }
    }

    /// Converts the keys of a call in a table of `u64` or `bytes`. With `is_strict`, a key that no table can have is an
    /// error.
    pub(crate) fn plain(keys: &Bound<'py, PyAny>, table_kind: zero_kv::KeyKind, is_strict: bool) -> PyResult<Self> {
        if ArrayNulls::of(keys)? != ArrayNulls::None {
            let (present, is_valid) = present_keys(keys)?;
            let found = Self::plain(&present, table_kind, is_strict)?;
            return Ok(match is_valid {
                Some(is_valid) => found.with_nulls(is_valid),
                None => found,
            });
        }
        // The items of an iterator can be read only once.
        let is_iterator = !is_strict && keys.cast::<PyIterator>().is_ok();
        let listed = if is_iterator { PyList::new(keys.py(), objects_of(keys)?)?.into_any() } else { keys.clone() };
        let py = keys.py();
        match KeyBatch::from_any(&listed) {
            Ok(batch) if is_strict => batch.checked().map(Self::from),
            Ok(batch) => Self::from_batch(batch),
            Err(error) if is_strict => Err(error),
            Err(error) => {
                let is_of_key = error.is_instance_of::<PyTypeError>(py)
                    || error.is_instance_of::<PyOverflowError>(py)
                    || error.is_instance_of::<PyUnicodeError>(py);
                let is_many = !listed.is_instance_of::<PyBytes>()
                    && !listed.is_instance_of::<PyString>()
                    && !listed.is_instance_of::<PyByteArray>();
                match is_of_key && is_many && listed.try_iter().is_ok() {
                    true => Self::from_mixed(objects_of(&listed)?, table_kind),
                    false => Err(error),
                }
            }
        }
    }

    /// Keeps the keys of one kind. If there are keys of both kinds, it is the kind of the table's keys.
    fn from_mixed(objects: Vec<Bound<'py, PyAny>>, table_kind: zero_kv::KeyKind) -> PyResult<Self> {
        let mut kinds = Vec::with_capacity(objects.len());
        for object in &objects {
            kinds.push(possible_key(object)?.map(|key| key.kind()));
        }
        let has = |kind| kinds.contains(&Some(kind));
        let kind = match (has(zero_kv::KeyKind::U64), has(zero_kv::KeyKind::Bytes)) {
            (true, true) => table_kind,
            (_, false) => zero_kv::KeyKind::U64,
            (false, true) => zero_kv::KeyKind::Bytes,
        };
        let is_possible: Vec<bool> = kinds.iter().map(|found| *found == Some(kind)).collect();
        let kept = objects.into_iter().zip(&is_possible).filter_map(|(object, kept)| kept.then_some(object));
        let batch = match kind {
            zero_kv::KeyKind::Bytes => KeyBatch::Objects(kept.collect()),
            zero_kv::KeyKind::U64 => {
                let number = |object: Bound<'py, PyAny>| Ok(possible_key(&object)?.and_then(|key| key.as_u64()));
                KeyBatch::Numbers(kept.filter_map(|object| number(object).transpose()).collect::<PyResult<_>>()?)
            }
        };
        Ok(PossibleKeys { batch, is_possible: Some(is_possible) })
    }

    /// Drops keys of bytes whose length no key can have.
    pub(crate) fn from_batch(batch: KeyBatch<'py>) -> PyResult<Self> {
        let is_possible: Vec<bool> = batch.slices()?.iter().map(|key| is_key_len(key.len())).collect();
        if is_possible.iter().all(|is_possible| *is_possible) {
            return Ok(batch.into());
        }
        let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
        for key in batch.slices()?.into_iter().filter(|key| is_key_len(key.len())) {
            bytes.extend_from_slice(key);
            offsets.push(bytes.len() as i64);
        }
        Ok(PossibleKeys { batch: KeyBatch::Packed { bytes, offsets }, is_possible: Some(is_possible) })
    }

    /// Returns the number of keys of the call.
    pub(crate) fn len(&self) -> usize {
        self.is_possible.as_ref().map_or(self.batch.len(), Vec::len)
    }

    /// Returns for each key of the call whether it is in the batch, or `None` if all keys are.
    pub(crate) fn is_possible(&self) -> Option<&[bool]> {
        self.is_possible.as_deref()
    }
}

impl<'py> From<KeyBatch<'py>> for PossibleKeys<'py> {
    fn from(batch: KeyBatch<'py>) -> Self {
        PossibleKeys { batch, is_possible: None }
    }
}

/// Returns the results for all keys of a call from the results for the possible keys. Other keys have no result.
pub(crate) fn with_impossible<T>(found: Vec<Option<T>>, is_possible: Option<&[bool]>) -> Vec<Option<T>> {
    let Some(is_possible) = is_possible else { return found };
    let mut found = found.into_iter();
    is_possible.iter().map(|is_possible| if *is_possible { found.next().flatten() } else { None }).collect()
}
