//! Many keys as columns of memory.
//!
//! In: what `lib/zero_kv/_keys.py` makes of arrays of NumPy, pandas, Polars, and pyarrow: buffers of numbers, of times,
//! or of text, or a list of objects. Out: stored keys. A key in a buffer is not a Python object at any time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use zero_kv::format::key_type::FIXED_KEY_LEN_BYTES;
use zero_kv::{Key, KeyKind, KeyTextError, KeyType, KeyValue, PartType};

use crate::convert::is_key_len;
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, slice_at};
use crate::typed_key::{Taken, text_exception, time_value, typed_key, value_from, written_value};

/// Keys, or parts of composite keys.
#[derive(Clone)]
pub(crate) enum KeyColumn<'py> {
    Objects(Vec<Bound<'py, PyAny>>),
    Unsigned(Vec<u64>),
    /// Numbers of 32 bits, which are IPv4 addresses in tables of addresses.
    Short(Vec<u32>),
    Signed(Vec<i64>),
    /// Numbers of units since 1970.
    Times {
        counts: Vec<i64>,
        nanos_per_unit: i128,
    },
    Texts {
        data: Vec<u8>,
        offsets: Vec<i64>,
        /// Whether the elements are bytes, which are the value itself where text is its written form.
        is_bytes: bool,
    },
    /// The bytes of UUIDs. In tables of `bytes`, a UUID is its text, as in bakes.
    Uuids(Vec<u8>),
    /// Concatenated elements of one length.
    Fixed {
        data: Vec<u8>,
        len_bytes: usize,
        /// Whether the elements are text that is followed by zeros, and not the bytes of values.
        is_padded: bool,
    },
    /// A column for each part, and the number of keys.
    Parts(Vec<KeyColumn<'py>>, usize),
}

impl<'py> FromPyObject<'_, 'py> for KeyColumn<'py> {
    type Error = PyErr;

    /// Copies a column of `_keys.py`: a name, and what it has.
    fn extract(column: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = column.py();
        let items = column.cast::<PyTuple>()?;
        let item = |position: usize| items.get_item(position);
        let name: String = item(0)?.extract()?;
        Ok(match &*name {
            "objects" => KeyColumn::Objects(item(1)?.cast::<PyList>()?.iter().collect()),
            "unsigned" => KeyColumn::Unsigned(PyBuffer::get(&item(1)?)?.to_vec(py)?),
            "short" => KeyColumn::Short(PyBuffer::get(&item(1)?)?.to_vec(py)?),
            "signed" => KeyColumn::Signed(PyBuffer::get(&item(1)?)?.to_vec(py)?),
            "times" => KeyColumn::Times {
                counts: PyBuffer::get(&item(1)?)?.to_vec(py)?,
                nanos_per_unit: item(2)?.extract::<i64>()?.into(),
            },
            "text" | "bytes" => {
                let offsets = match PyBuffer::<i32>::get(&item(1)?) {
                    Ok(offsets) => offsets.to_vec(py)?.into_iter().map(i64::from).collect(),
                    Err(_) => PyBuffer::get(&item(1)?)?.to_vec(py)?,
                };
                KeyColumn::Texts { data: PyBuffer::get(&item(2)?)?.to_vec(py)?, offsets, is_bytes: name == "bytes" }
            }
            "uuids" => KeyColumn::Uuids(PyBuffer::get(&item(1)?)?.to_vec(py)?),
            "fixed" | "padded" => KeyColumn::Fixed {
                data: PyBuffer::get(&item(1)?)?.to_vec(py)?,
                len_bytes: item(2)?.extract()?,
                is_padded: name == "padded",
            },
            "characters" => match KeyColumn::of_characters(&PyBuffer::get(&item(1)?)?.to_vec(py)?, item(2)?.extract()?)
            {
                Some(column) => column,
                None => KeyColumn::Objects(item(3)?.call_method0("tolist")?.cast::<PyList>()?.iter().collect()),
            },
            "parts" => KeyColumn::Parts(item(1)?.extract()?, item(2)?.extract()?),
            _ => return Err(PyValueError::new_err(format!("the column of keys is {name:?}, which does not exist"))),
        })
    }
}

/// Keys without null, as a column of `_keys.py`: an argument of the methods of tables that look many keys up.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Keys(Py<PyAny>);

#[pymethods]
impl Keys {
    #[new]
    fn new(column: Py<PyAny>) -> Keys {
        Keys(column)
    }
}

/// The keys of a call that are not null, and, if some are null, which ones are not.
type PresentColumn<'py> = (KeyColumn<'py>, Option<Vec<bool>>);

/// Returns the keys of an array, or of another object with many keys.
fn column_of<'py>(keys: &Bound<'py, PyAny>) -> PyResult<PresentColumn<'py>> {
    if let Ok(keys) = keys.cast::<Keys>() {
        return Ok((keys.get().0.bind(keys.py()).extract()?, None));
    }
    keys.py().import("zero_kv._keys")?.getattr("key_column")?.call1((keys,))?.extract()
}

/// Converts the keys of a call. With `is_strict`, a key that the table cannot have is an error.
pub(crate) fn possible_keys<'py>(
    keys: &Bound<'py, PyAny>,
    key_type: KeyType,
    is_strict: bool,
) -> PyResult<PossibleKeys<'py>> {
    match key_type.is_plain() {
        true if keys.cast::<Keys>().is_ok() => column_of(keys)?.0.plain(is_strict),
        true => PossibleKeys::plain(keys, key_type.kind(), is_strict),
        false => typed_keys(keys, key_type, is_strict, Taken::Keys),
    }
}

/// Converts keys, or leading parts of composite keys.
pub(crate) fn bound_keys<'py>(keys: &Bound<'py, PyAny>, key_type: KeyType) -> PyResult<KeyBatch<'py>> {
    if key_type.is_plain() {
        return match keys.cast::<Keys>() {
            Ok(_) => Ok(column_of(keys)?.0.plain(true)?.batch),
            Err(_) => KeyBatch::plain(keys),
        };
    }
    let found = typed_keys(keys, key_type, true, Taken::Bounds)?;
    match found.is_possible().and_then(|is_possible| is_possible.iter().position(|is_possible| !is_possible)) {
        Some(position) => Err(PyValueError::new_err(format!("key {position} is null, where each key needs a value"))),
        None => Ok(found.batch),
    }
}

/// Returns the keys of a call in a table whose keys are neither `u64` nor `bytes`.
fn typed_keys<'py>(
    keys: &Bound<'py, PyAny>,
    key_type: KeyType,
    is_strict: bool,
    taken: Taken,
) -> PyResult<PossibleKeys<'py>> {
    let (column, is_valid) = column_of(keys)?;
    let found = column.typed(keys.py(), key_type, is_strict, taken)?;
    Ok(match is_valid {
        Some(is_valid) => found.with_nulls(is_valid),
        None => found,
    })
}

impl<'py> KeyColumn<'py> {
    /// Returns the elements of an array of NumPy with the type `U`, each of which is followed by zeros. Returns `None`
    /// if a character is none of Unicode.
    fn of_characters(padded: &[u32], char_count: usize) -> Option<KeyColumn<'py>> {
        let (mut text, mut offsets) = (String::with_capacity(padded.len()), vec![0]);
        for element in padded.chunks_exact(char_count) {
            for character in without_zeros(element) {
                text.push(char::from_u32(*character)?);
            }
            offsets.push(text.len() as i64);
        }
        Some(KeyColumn::Texts { data: text.into_bytes(), offsets, is_bytes: false })
    }

    fn len(&self) -> usize {
        match self {
            KeyColumn::Objects(objects) => objects.len(),
            KeyColumn::Unsigned(numbers) => numbers.len(),
            KeyColumn::Short(numbers) => numbers.len(),
            KeyColumn::Signed(numbers) => numbers.len(),
            KeyColumn::Times { counts, .. } => counts.len(),
            KeyColumn::Texts { offsets, .. } => offsets.len().saturating_sub(1),
            KeyColumn::Uuids(data) => data.len() / FIXED_KEY_LEN_BYTES,
            KeyColumn::Fixed { data, len_bytes, .. } => data.len() / len_bytes,
            KeyColumn::Parts(_, count) => *count,
        }
    }

    /// Returns what the elements are, for messages.
    fn name(&self) -> &'static str {
        match self {
            KeyColumn::Objects(_) => "objects",
            KeyColumn::Short(_) => "numbers of 32 bits",
            KeyColumn::Unsigned(_) | KeyColumn::Signed(_) => "numbers",
            KeyColumn::Times { .. } => "dates or times",
            KeyColumn::Texts { is_bytes: true, .. } | KeyColumn::Fixed { .. } => "bytes",
            KeyColumn::Texts { .. } => "text",
            KeyColumn::Uuids(_) => "UUIDs",
            KeyColumn::Parts(..) => "several parts",
        }
    }

    /// Returns the stored keys.
    pub(crate) fn keys(self, py: Python<'_>, key_type: KeyType, is_strict: bool) -> PyResult<PossibleKeys<'py>> {
        if key_type.is_plain() { self.plain(is_strict) } else { self.typed(py, key_type, is_strict, Taken::Keys) }
    }

    /// Returns the keys, or leading parts of composite keys, none of which may be impossible.
    pub(crate) fn bounds(self, py: Python<'_>, key_type: KeyType) -> PyResult<KeyBatch<'py>> {
        match key_type.is_plain() {
            true => Ok(self.plain(true)?.batch),
            false => Ok(self.typed(py, key_type, true, Taken::Bounds)?.batch),
        }
    }

    /// Returns the keys in a table of `u64` or `bytes`.
    fn plain(self, is_strict: bool) -> PyResult<PossibleKeys<'py>> {
        let batch = match self {
            KeyColumn::Unsigned(numbers) => KeyBatch::Numbers(numbers),
            KeyColumn::Short(numbers) => KeyBatch::Numbers(numbers.into_iter().map(u64::from).collect()),
            KeyColumn::Signed(numbers) => {
                if !is_strict && numbers.iter().any(|number| *number < 0) {
                    let is_possible = numbers.iter().map(|number| *number >= 0).collect();
                    let kept = numbers.iter().filter_map(|number| u64::try_from(*number).ok()).collect();
                    return Ok(PossibleKeys::new(KeyBatch::Numbers(kept), Some(is_possible)));
                }
                KeyBatch::Numbers(crate::key_batch::unsigned(numbers)?)
            }
            KeyColumn::Texts { data, offsets, .. } => KeyBatch::Packed { bytes: data, offsets },
            KeyColumn::Uuids(_) | KeyColumn::Fixed { .. } => {
                let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
                for row in 0..self.len() {
                    match &self {
                        KeyColumn::Uuids(data) => write_uuid(uuid_at(data, row), &mut bytes),
                        _ => bytes.extend_from_slice(self.text(row)?),
                    }
                    offsets.push(bytes.len() as i64);
                }
                KeyBatch::Packed { bytes, offsets }
            }
            KeyColumn::Objects(objects) => KeyBatch::from_objects(objects.into_iter())?,
            KeyColumn::Times { .. } | KeyColumn::Parts(..) => {
                let found = self.name();
                let message = format!("the keys are {found}, where the keys of the table are numbers or bytes");
                return Err(PyTypeError::new_err(message));
            }
        };
        if is_strict { batch.checked().map(PossibleKeys::from) } else { PossibleKeys::from_batch(batch) }
    }

    /// Returns the keys in a table whose keys are neither `u64` nor `bytes`.
    fn typed(
        &self,
        py: Python<'_>,
        key_type: KeyType,
        is_strict: bool,
        taken: Taken,
    ) -> PyResult<PossibleKeys<'static>> {
        if key_type == KeyType::of(PartType::Ip)
            && let Some(addresses) = self.addresses(py)?
        {
            return Ok(KeyBatch::Fixed(addresses).into());
        }
        let mut encoder = Encoder::new(key_type, self.len());
        let mut is_possible = Vec::new();
        for row in 0..self.len() {
            if row % SIGNALS_EVERY_KEYS == SIGNALS_EVERY_KEYS - 1 {
                py.check_signals()?;
            }
            let is_pushed = match self.push(row, &mut encoder, is_strict, taken) {
                Ok(is_pushed) => is_pushed,
                Err(error) => return Err(at_key(py, row, &error)),
            };
            if !is_pushed && is_possible.is_empty() {
                is_possible = vec![true; row];
            }
            if !is_possible.is_empty() || !is_pushed {
                is_possible.push(is_pushed);
            }
        }
        Ok(PossibleKeys::new(encoder.into_batch(), (!is_possible.is_empty()).then_some(is_possible)))
    }

    /// Returns the stored keys of addresses, without the steps that other keys need. Returns `None` if an element is no
    /// address, or if the elements are neither text nor numbers of 32 bits.
    fn addresses(&self, py: Python<'_>) -> PyResult<Option<Vec<u8>>> {
        let mut keys = Vec::with_capacity(self.len() * FIXED_KEY_LEN_BYTES);
        let mut push = |address: Ipv6Addr| keys.extend_from_slice(&address.octets());
        match self {
            KeyColumn::Short(numbers) => {
                numbers.iter().for_each(|number| push(Ipv4Addr::from(*number).to_ipv6_mapped()));
            }
            KeyColumn::Texts { .. } => {
                for row in 0..self.len() {
                    if row % SIGNALS_EVERY_KEYS == SIGNALS_EVERY_KEYS - 1 {
                        py.check_signals()?;
                    }
                    match PartType::Ip.parse(self.text(row)?) {
                        Some(KeyValue::Ip(IpAddr::V4(address))) => push(address.to_ipv6_mapped()),
                        Some(KeyValue::Ip(IpAddr::V6(address))) => push(address),
                        _ => return Ok(None),
                    }
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(keys))
    }

    /// Adds a key. Returns whether a table can have it.
    fn push(&self, row: usize, encoder: &mut Encoder, is_strict: bool, taken: Taken) -> PyResult<bool> {
        let key_type = encoder.key_type;
        let pushed = match (self, key_type.parts()) {
            (_, [part]) => self.value(row, *part, is_strict)?.map(|value| encoder.push(&[value])),
            (KeyColumn::Objects(objects), _) => {
                let key = typed_key(&objects[row], key_type, is_strict, taken)?;
                key.as_ref().map(|key| encoder.push_key(key.as_key()))
            }
            (KeyColumn::Texts { .. } | KeyColumn::Fixed { .. }, _) => {
                Some(key_type.parse(self.text(row)?).and_then(|key| encoder.push_key(key.as_key())))
            }
            (KeyColumn::Parts(columns, _), parts) => {
                if columns.len() != parts.len() {
                    let (found, expected) = (columns.len(), parts.len());
                    let message = format!("the keys have {found} parts, where {expected} were expected: {key_type}");
                    return Err(PyValueError::new_err(message));
                }
                let mut values = Vec::with_capacity(parts.len());
                for (column, part) in columns.iter().zip(parts) {
                    match column.value(row, *part, is_strict)? {
                        Some(value) => values.push(value),
                        None => return Ok(false),
                    }
                }
                Some(encoder.push(&values))
            }
            _ => {
                let found = self.name();
                let message = format!("the keys are {found}, where keys of several parts were expected: {key_type}");
                return Err(PyTypeError::new_err(message));
            }
        };
        match pushed {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(KeyTextError::Len { .. })) if !is_strict => Ok(false),
            Some(Err(error)) => Err(text_exception(&error)),
        }
    }

    fn text(&self, row: usize) -> PyResult<&[u8]> {
        match self {
            KeyColumn::Texts { data, offsets, .. } => slice_at(data, offsets, row),
            KeyColumn::Fixed { data, len_bytes, is_padded } => {
                let element = &data[row * len_bytes..][..*len_bytes];
                Ok(if *is_padded { without_zeros(element) } else { element })
            }
            _ => Ok(&[]),
        }
    }

    /// Returns the value of a row, or `None` if no key can have it.
    fn value(&self, row: usize, part: PartType, is_strict: bool) -> PyResult<Option<KeyValue<'_>>> {
        let wrong = || {
            let message = format!("the keys are {}, where {} was expected", self.name(), part.expected());
            PyTypeError::new_err(message)
        };
        let beyond = |number: String| {
            PyOverflowError::new_err(format!("the key is {number}, where {} was expected", part.expected()))
        };
        let value = match (self, part) {
            (KeyColumn::Objects(objects), _) => return value_from(&objects[row], part, "the key", is_strict),
            (KeyColumn::Unsigned(numbers), PartType::U64) => Ok(KeyValue::U64(numbers[row])),
            (KeyColumn::Short(numbers), PartType::U64 | PartType::I64) => Ok(KeyValue::U64(numbers[row].into())),
            (KeyColumn::Unsigned(numbers), PartType::I64) => {
                let number = numbers[row];
                i64::try_from(number).map(KeyValue::I64).map_err(|_| beyond(number.to_string()))
            }
            (KeyColumn::Short(numbers), PartType::Ipv4 | PartType::Ip) => {
                Ok(KeyValue::Ip(Ipv4Addr::from(numbers[row]).into()))
            }
            (KeyColumn::Signed(numbers), PartType::I64) => Ok(KeyValue::I64(numbers[row])),
            (KeyColumn::Signed(numbers), PartType::U64) => {
                let number = numbers[row];
                u64::try_from(number).map(KeyValue::U64).map_err(|_| beyond(number.to_string()))
            }
            (KeyColumn::Times { counts, nanos_per_unit }, PartType::Date | PartType::Timestamp) => {
                time_value(counts[row], *nanos_per_unit, part)
            }
            (KeyColumn::Texts { is_bytes, .. }, _) => written_value(self.text(row)?, part, *is_bytes),
            (KeyColumn::Uuids(data), PartType::Uuid) => Ok(KeyValue::Uuid(*uuid_at(data, row))),
            (KeyColumn::Uuids(data), PartType::Hex) => Ok(KeyValue::Bytes(uuid_at(data, row).into())),
            (KeyColumn::Uuids(data), PartType::Bytes) => {
                let mut text = Vec::new();
                write_uuid(uuid_at(data, row), &mut text);
                Ok(KeyValue::Bytes(text.into()))
            }
            (KeyColumn::Fixed { is_padded: false, .. }, PartType::Ipv4 | PartType::Ip) => {
                packed_address(self.text(row)?, part)
            }
            // The text of a UUID is longer.
            (KeyColumn::Fixed { data, len_bytes: 16, .. }, PartType::Uuid) => {
                written_value(&data[row * 16..][..16], part, true)
            }
            (KeyColumn::Fixed { len_bytes: len_bytes @ (4 | 16), .. }, PartType::Ipv4 | PartType::Ip) => {
                written_value(self.text(row)?, part, true).map_err(|error| {
                    let hint = format!("if the array has the bytes of addresses, pass keys.view(\"V{len_bytes}\")");
                    Python::attach(|py| PyValueError::new_err(format!("{}: {hint}", error.value(py))))
                })
            }
            (KeyColumn::Fixed { .. }, _) => written_value(self.text(row)?, part, true),
            _ => Err(wrong()),
        };
        let is_impossible = |error: &PyErr, py: Python<'_>| {
            error.is_instance_of::<PyOverflowError>(py) || error.is_instance_of::<PyUnicodeError>(py)
        };
        match value {
            Err(error) if !is_strict && Python::attach(|py| is_impossible(&error, py)) => Ok(None),
            value => value.map(Some),
        }
    }
}

/// Returns the beginning of an element of an array of NumPy, up to the zeros at its end.
fn without_zeros<T: PartialEq + Default>(element: &[T]) -> &[T] {
    let end = element.iter().rposition(|item| *item != T::default()).map_or(0, |last| last + 1);
    &element[..end]
}

fn uuid_at(data: &[u8], row: usize) -> &[u8; FIXED_KEY_LEN_BYTES] {
    data[row * FIXED_KEY_LEN_BYTES..].first_chunk().expect("the caller counted the elements")
}

fn write_uuid(uuid: &[u8; FIXED_KEY_LEN_BYTES], text: &mut Vec<u8>) {
    KeyType::of(PartType::Uuid).write(Key::Bytes(uuid), text);
}

/// Returns the address with these bytes, in network order, or with this written form.
fn packed_address(bytes: &[u8], part: PartType) -> PyResult<KeyValue<'_>> {
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).expect("the length is checked")),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).expect("the length is checked")),
        _ => return written_value(bytes, part, true),
    };
    Ok(KeyValue::Ip(address))
}

/// Adds the position of a key to the message of an exception.
fn at_key(py: Python<'_>, position: usize, error: &PyErr) -> PyErr {
    let message = format!("key {position}: {}", error.value(py));
    match error.is_instance_of::<PyUnicodeError>(py) {
        // A UnicodeError cannot be created from a message alone.
        true => PyValueError::new_err(message),
        false => PyErr::from_type(error.get_type(py), (message,)),
    }
}

/// Collects stored keys.
struct Encoder {
    key_type: KeyType,
    numbers: Vec<u64>,
    bytes: Vec<u8>,
    offsets: Vec<i64>,
}

impl Encoder {
    fn new(key_type: KeyType, count: usize) -> Encoder {
        let mut encoder = Encoder { key_type, numbers: Vec::new(), bytes: Vec::new(), offsets: Vec::new() };
        match key_type.kind() {
            KeyKind::U64 => encoder.numbers.reserve(count),
            KeyKind::Bytes => {
                encoder.bytes.reserve(count * key_type.fixed_len_bytes().unwrap_or_default());
                if key_type.fixed_len_bytes().is_none() {
                    encoder.offsets.reserve(count + 1);
                    encoder.offsets.push(0);
                }
            }
        }
        encoder
    }

    /// Adds a key with these values of its parts.
    fn push(&mut self, values: &[KeyValue<'_>]) -> Result<(), KeyTextError> {
        if let (KeyKind::U64, [part], [value]) = (self.key_type.kind(), self.key_type.parts(), values) {
            match part.number(value) {
                Some(number) => self.numbers.push(number),
                None => return self.key_type.key([value.clone()]).map(drop),
            }
            return Ok(());
        }
        self.key_type.write_prefix(values, &mut self.bytes)?;
        self.end_key()
    }

    fn push_key(&mut self, key: Key<'_>) -> Result<(), KeyTextError> {
        match key {
            Key::U64(number) => {
                self.numbers.push(number);
                Ok(())
            }
            Key::Bytes(bytes) => {
                self.bytes.extend_from_slice(bytes);
                self.end_key()
            }
        }
    }

    fn end_key(&mut self) -> Result<(), KeyTextError> {
        if self.key_type.fixed_len_bytes().is_some() {
            return Ok(());
        }
        let begin = self.offsets.last().map_or(0, |begin| *begin as usize);
        let len_bytes = self.bytes.len() - begin;
        if !is_key_len(len_bytes) {
            self.bytes.truncate(begin);
            return Err(KeyTextError::Len { len_bytes });
        }
        self.offsets.push(self.bytes.len() as i64);
        Ok(())
    }

    fn into_batch(self) -> KeyBatch<'static> {
        match self.key_type.kind() {
            KeyKind::U64 => KeyBatch::Numbers(self.numbers),
            KeyKind::Bytes if self.key_type.fixed_len_bytes().is_some() => KeyBatch::Fixed(self.bytes),
            KeyKind::Bytes => KeyBatch::Packed { bytes: self.bytes, offsets: self.offsets },
        }
    }
}
