//! Many keys at once.
//!
//! In: keys in a list, in a NumPy array or in the buffers of an Arrow array, and who is
//! asked: a table, or a server's client. Out: a list of values, or memory that
//! `lib/zero_kv/_arrays.py` makes arrays of. Keys are copied or held first, so that nobody
//! changes them while other threads of Python run.

use std::fmt::Display;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};
use zero_kv::client::OwnedKey;
use zero_kv::{Key, LookupError, MappedStore};

use crate::client::Client;
use crate::errors::{KeyKind, of_lookup};
use crate::key::{key_of, type_name};
use crate::table::Table;
use crate::view::Memory;

/// From so many keys on, other threads of Python run meanwhile.
const DETACH_KEYS_MIN: usize = 64;

/// Keys of one kind.
pub(crate) enum Keys<'py> {
    Numbers(Vec<u64>),
    /// `bytes` and `str`.
    Objects(Vec<Bound<'py, PyAny>>),
    /// Bytes side by side, and where each begins and ends; the first offset is that of the first byte.
    Packed {
        bytes: Vec<u8>,
        offsets: Vec<i64>,
    },
}

impl<'py> Keys<'py> {
    pub(crate) fn of(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = keys.cast::<PyList>() {
            return Self::of_objects(list.iter());
        }
        if let Ok(tuple) = keys.cast::<PyTuple>() {
            return Self::of_objects(tuple.iter());
        }
        if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyByteArray>()
        {
            let found = type_name(keys);
            return Err(PyTypeError::new_err(format!("keys are of type {found}, where many keys were expected")));
        }
        if let Ok(numbers) = PyBuffer::<u64>::get(keys)
            && is_native(&numbers)
        {
            return Ok(Keys::Numbers(copied(&numbers, keys)?));
        }
        let narrower = [of_buffer::<i64>, of_buffer::<u32>, of_buffer::<i32>, of_buffer::<u16>, of_buffer::<i16>];
        if let Some(numbers) = narrower.iter().find_map(|of_buffer| of_buffer(keys)) {
            return numbers.map(Keys::Numbers);
        }
        let objects: Vec<Bound<'py, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        Self::of_objects(objects.into_iter())
    }

    fn of_objects(objects: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> PyResult<Self> {
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        let count = objects.len();
        for (position, object) in objects.enumerate() {
            match key_of(&object)? {
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
                let message =
                    format!("key {position} is of another kind than those before: numbers or bytes, not both");
                return Err(KeyKind::new_err(message));
            }
        }
        Ok(if others.is_empty() { Keys::Numbers(numbers) } else { Keys::Objects(others) })
    }

    fn len(&self) -> usize {
        match self {
            Keys::Numbers(numbers) => numbers.len(),
            Keys::Objects(objects) => objects.len(),
            Keys::Packed { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// The keys, if they are bytes.
    fn slices(&self) -> PyResult<Vec<&[u8]>> {
        match self {
            Keys::Numbers(_) => Ok(Vec::new()),
            Keys::Objects(objects) => objects.iter().map(slice_of).collect(),
            Keys::Packed { bytes, offsets } => {
                let first = offsets.first().copied().unwrap_or_default();
                let place = |offset: i64| usize::try_from(offset.checked_sub(first)?).ok();
                let slice = |ends: &[i64]| match ends {
                    [start, end] => bytes.get(place(*start)?..place(*end)?),
                    _ => None,
                };
                let slices = offsets.windows(2).map(slice).collect::<Option<Vec<&[u8]>>>();
                slices.ok_or_else(|| PyValueError::new_err("the keys' offsets leave their data"))
            }
        }
    }

    /// The keys in memory of their own.
    pub(crate) fn owned(&self) -> PyResult<Vec<OwnedKey>> {
        Ok(match self {
            Keys::Numbers(numbers) => numbers.iter().copied().map(OwnedKey::U64).collect(),
            _ => self.slices()?.into_iter().map(|key| OwnedKey::Bytes(key.to_vec())).collect(),
        })
    }

    /// Looks all keys up, while other threads of Python run.
    fn look_up<'s>(&self, py: Python<'py>, table: &'s MappedStore) -> PyResult<Values<'s>> {
        let values = match self {
            // No key is of no kind.
            _ if self.len() == 0 => Ok(Values::Lent(Vec::new())),
            Keys::Numbers(numbers) => apart(py, numbers.len(), || find(table, numbers)),
            _ => {
                let slices = self.slices()?;
                apart(py, slices.len(), || find(table, &slices))
            }
        };
        values.map_err(of_lookup)
    }

    /// Asks a server for all keys, while other threads of Python run.
    fn fetch(&self, py: Python<'py>, client: &Client) -> PyResult<Fetched> {
        let mut fetched = Fetched { bytes: Vec::new(), places: Vec::with_capacity(self.len()) };
        let numbers = if let Keys::Numbers(numbers) = self { Some(&numbers[..]) } else { None };
        let slices = self.slices()?;
        client.call(py, |client| {
            // A call that is made once more begins anew.
            let visit = |position, value: Option<&[u8]>| fetched.put(position, value);
            match numbers {
                Some(numbers) => client.get_many_with(numbers, visit),
                None => client.get_many_with(&slices, visit),
            }
        })?;
        Ok(fetched)
    }
}

/// The values of some keys.
enum Values<'s> {
    /// In a table that nobody can change.
    Lent(Vec<Option<&'s [u8]>>),
    Copied(Fetched),
}

impl Values<'_> {
    fn slices(&self) -> Vec<Option<&[u8]>> {
        match self {
            Values::Lent(values) => values.clone(),
            Values::Copied(fetched) => fetched.values(),
        }
    }
}

/// Values that a server sent or that were copied out of a mapped file, side by side.
struct Fetched {
    bytes: Vec<u8>,
    /// Where each value begins and ends, if there is one.
    places: Vec<Option<(usize, usize)>>,
}

impl Fetched {
    fn put(&mut self, position: usize, value: Option<&[u8]>) {
        self.places.truncate(position);
        let place = value.map(|value| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(value);
            (start, self.bytes.len())
        });
        self.places.push(place);
    }

    fn values(&self) -> Vec<Option<&[u8]>> {
        self.places.iter().map(|place| place.map(|(start, end)| &self.bytes[start..end])).collect()
    }
}

/// Who is asked.
#[derive(FromPyObject)]
pub(crate) enum Source<'py> {
    Table(Bound<'py, Table>),
    Client(Bound<'py, Client>),
}

impl<'py> Source<'py> {
    fn object(&self) -> &Bound<'py, PyAny> {
        match self {
            Source::Table(table) => table.as_any(),
            Source::Client(client) => client.as_any(),
        }
    }

    /// Looks all keys up and makes something of the values, while other threads of Python run.
    fn look_up<T: Send>(
        &self,
        py: Python<'py>,
        keys: &Keys<'py>,
        make: impl FnOnce(Vec<Option<&[u8]>>) -> T + Send,
    ) -> PyResult<T> {
        let snapshot;
        let values = match self {
            Source::Table(table) => {
                snapshot = table.get().snapshot(py)?;
                keys.look_up(py, &snapshot)?
            }
            Source::Client(client) => Values::Copied(keys.fetch(py, client.get())?),
        };
        Ok(apart(py, keys.len(), || make(values.slices())))
    }
}

fn slice_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    Ok(key_of(object)?.as_bytes().unwrap_or_default())
}

/// Whether numbers are in the machine's order of bytes, which a type of the buffer does not tell.
fn is_native<T: Element>(buffer: &PyBuffer<T>) -> bool {
    !matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'))
}

/// The numbers of a buffer, if it is one of this type.
fn of_buffer<T>(keys: &Bound<'_, PyAny>) -> Option<PyResult<Vec<u64>>>
where
    T: Element + Display + TryInto<u64>,
{
    let numbers = PyBuffer::<T>::get(keys).ok().filter(is_native)?;
    Some(copied(&numbers, keys).and_then(|numbers| {
        let number = |(position, number): (usize, T)| {
            number.try_into().map_err(|_| {
                let expected = "0 to 18446744073709551615";
                PyOverflowError::new_err(format!("key {position} is {number}, where {expected} was expected"))
            })
        };
        numbers.into_iter().enumerate().map(number).collect()
    }))
}

fn copied<T: Element>(buffer: &PyBuffer<T>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    match buffer.dimensions() {
        1 => buffer.to_vec(keys.py()),
        found => Err(PyValueError::new_err(format!("keys have {found} dimensions, where 1 was expected"))),
    }
}

fn find<'s, 'k, K: Into<Key<'k>> + Copy>(table: &'s MappedStore, keys: &[K]) -> Result<Values<'s>, LookupError> {
    if let Some(private) = table.as_private() {
        let mut values = Vec::with_capacity(keys.len());
        private.get_many(keys, |_, value| values.push(value))?;
        return Ok(Values::Lent(values));
    }
    let mut copied = Fetched { bytes: Vec::new(), places: Vec::with_capacity(keys.len()) };
    table.get_many_with(keys, |position, value| copied.put(position, value))?;
    Ok(Values::Copied(copied))
}

/// Does something while other threads of Python run, unless it is done before they would begin.
fn apart<T: Send>(py: Python<'_>, key_count: usize, work: impl FnOnce() -> T + Send) -> T {
    if key_count < DETACH_KEYS_MIN { work() } else { py.detach(work) }
}

pub(crate) fn get_many<'py>(
    source: &Source<'py>,
    keys: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keys.py();
    if dtype.is_some() || is_of_arrow(keys)? {
        return py.import("zero_kv._arrays")?.getattr("get_many")?.call1((source.object(), keys, dtype));
    }
    let keys = Keys::of(keys)?;
    match source {
        Source::Table(table) => list(py, keys.look_up(py, &*table.get().snapshot(py)?)?.slices()),
        Source::Client(client) => list(py, keys.fetch(py, client.get())?.values()),
    }
}

fn list<'py>(py: Python<'py>, values: Vec<Option<&[u8]>>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, values.into_iter().map(|value| value.map(|value| PyBytes::new(py, value))))?.into_any())
}

/// Whether an object is an array of pyarrow or Polars.
fn is_of_arrow(keys: &Bound<'_, PyAny>) -> PyResult<bool> {
    if keys.is_instance_of::<PyList>() {
        return Ok(false);
    }
    let module = keys.get_type().module()?;
    let package = module.to_str()?.split('.').next().unwrap_or_default();
    Ok(package == "pyarrow" || package == "polars")
}

/// Values of one length side by side, and which of them were found, one byte each.
#[pyfunction]
pub(crate) fn fill_fixed<'py>(
    py: Python<'py>,
    source: Source<'py>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
) -> PyResult<(Memory, Memory)> {
    let keys = Keys::of(keys)?;
    let filled = source.look_up(py, &keys, |values| {
        let mut filled = Vec::new();
        // A dtype may be long, and there may be less memory than for so many values of it.
        let room = values.len().checked_mul(len_bytes).filter(|room| filled.try_reserve_exact(*room).is_ok());
        if room.is_none() {
            return Err(Unfilled::Memory(values.len()));
        }
        for (position, value) in values.iter().enumerate() {
            match value {
                Some(value) if value.len() == len_bytes => filled.extend_from_slice(value),
                Some(value) => return Err(Unfilled::Value(position, value.len())),
                None => filled.resize(filled.len() + len_bytes, 0),
            }
        }
        Ok((filled, values.iter().map(|value| value.is_some().into()).collect()))
    })?;
    match filled {
        Ok((filled, found)) => Ok((Memory::of_bytes(filled), Memory::of_bytes(found))),
        Err(Unfilled::Memory(count)) => {
            Err(PyMemoryError::new_err(format!("no memory for {count} values of {len_bytes} bytes")))
        }
        Err(Unfilled::Value(position, found_bytes)) => Err(PyValueError::new_err(format!(
            "the value of key {position} has {found_bytes} bytes, where the dtype has {len_bytes}"
        ))),
    }
}

/// Why there is no array of values of one length.
enum Unfilled {
    /// There is no room for so many.
    Memory(usize),
    /// The value of the key at this position has another length, which is this.
    Value(usize, usize),
}

/// What `fill_arrow` gives: the bits of validity, the offsets, the data, how many are null, and whether offsets have 64
/// bits.
type ArrowParts = (Memory, Memory, Memory, usize, bool);

/// The buffers of an Arrow array of values. Keys are the buffer of an array of numbers, or
/// offsets and data of one of bytes, without nulls; `valid` has a byte for each value, which is
/// zero where there is no key and the value is null.
#[pyfunction]
#[pyo3(signature = (source, numbers, offsets, data, valid))]
pub(crate) fn fill_arrow<'py>(
    py: Python<'py>,
    source: Source<'py>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    valid: Option<Bound<'py, PyAny>>,
) -> PyResult<ArrowParts> {
    let keys = match (numbers, offsets, data) {
        (Some(numbers), None, None) => Keys::Numbers(PyBuffer::get(&numbers)?.to_vec(py)?),
        (None, Some(offsets), Some(data)) => {
            Keys::Packed { offsets: PyBuffer::get(&offsets)?.to_vec(py)?, bytes: PyBuffer::get(&data)?.to_vec(py)? }
        }
        _ => return Err(PyTypeError::new_err("numbers, or offsets and data, were expected")),
    };
    let valid: Option<Vec<u8>> = valid.map(|valid| PyBuffer::get(&valid)?.to_vec(py)).transpose()?;
    if valid.as_ref().is_some_and(|valid| valid.iter().filter(|valid| **valid != 0).count() != keys.len()) {
        return Err(PyValueError::new_err("as many marks of validity as keys were expected"));
    }
    let parts = source.look_up(py, &keys, |values| match valid {
        None => arrow_parts(&values),
        Some(valid) => {
            let mut values = values.into_iter();
            let value = |valid: u8| if valid == 0 { None } else { values.next().flatten() };
            arrow_parts(&valid.into_iter().map(value).collect::<Vec<_>>())
        }
    })?;
    let (bits, offsets, data, null_count, is_large) = parts;
    let [bits, offsets, data] = [bits, offsets, data].map(Memory::of_bytes);
    Ok((bits, offsets, data, null_count, is_large))
}

fn arrow_parts(values: &[Option<&[u8]>]) -> (Vec<u8>, Vec<u8>, Vec<u8>, usize, bool) {
    let len_bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
    let is_large = i32::try_from(len_bytes).is_err();
    let mut bits = vec![0; values.len().div_ceil(8)];
    let mut data = Vec::with_capacity(len_bytes);
    let mut offsets = Vec::with_capacity((values.len() + 1) * if is_large { 8 } else { 4 });
    let mut null_count = 0;
    let mut push_offset = |end: usize| match is_large {
        true => offsets.extend_from_slice(&(end as i64).to_ne_bytes()),
        false => offsets.extend_from_slice(&(end as i32).to_ne_bytes()),
    };
    push_offset(0);
    for (position, value) in values.iter().enumerate() {
        match value {
            Some(value) => {
                bits[position / 8] |= 1 << (position % 8);
                data.extend_from_slice(value);
            }
            None => null_count += 1,
        }
        push_offset(data.len());
    }
    (bits, offsets, data, null_count, is_large)
}
