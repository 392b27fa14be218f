//! Requests of clients with their own sockets.
//!
//! In: keys and ranges. Out: encoded requests, and Python objects from their responses. `pipeline` combines the
//! requests of a connection.

use std::path::Path;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use zero_kv::client::request::{
    Authenticate, Ceiling, Count, Cover, Exists, FirstRow, Floor, Get, GetColumns, GetGeneration, GetInfo, GetKeyType,
    GetPage, GetSchema, LastRow, Ping, RequestError, Select, SelectedRow, Track, TypedRequest,
};
use zero_kv::client::{ClientError, KeyRange, Login, OwnedKey, Row};
use zero_kv::protocol::native::Op;
use zero_kv::protocol::reader::Response;
use zero_kv::typed::Projection;
use zero_kv::{Key, KeyKind, KeyType, LookupError};

use crate::columns::projection_of;
use crate::convert::{info_dict, kind_name, plain_key_object, possible_key, range_kind};
use crate::errors::client_exception;
use crate::key_columns;
use crate::schema;
use crate::typed_key::{
    baked_key, key_object, optional_range, optional_row, parsed_key_type, range_between, range_with_prefix, row_tuple,
};

/// The maximum number of keys in a request that one table must answer. A call with more keys sends several requests, so
/// that it succeeds even if the server replaces its table every second.
const BATCH_LEN_MAX: usize = 1 << 16;

/// One or many requests with one result.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Request {
    pub(crate) items: Vec<RequestItem>,
    pub(crate) result: ResultKind,
    /// The type of the keys of the table.
    pub(crate) key_type: KeyType,
}

/// The result of a request.
pub(crate) enum ResultKind {
    /// The result of the only item.
    Item,
    /// A list of the items' results.
    List,
    /// A list of the results of the items between the guards, and the schema of the table that has answered them.
    /// `None` if the server replaced its table in between. The guards are the first two items, which request the
    /// table's generation and schema, and the last item, which requests the generation.
    WithSchema,
    /// The rows of the items after the first, which selects the columns of this projection. `None` if the table has
    /// another schema.
    Rows(Arc<Projection>),
}

/// A request that owns its keys.
pub(crate) enum RequestItem {
    Get(OwnedKey),
    Exists(OwnedKey),
    Floor(OwnedKey),
    Ceiling(OwnedKey),
    Cover(OwnedKey),
    First,
    Last,
    Page(KeyRange),
    Count(KeyRange),
    Info,
    Ping,
    Authenticate(Authenticate),
    Generation,
    Schema,
    KeyType,
    Track,
    Select(Arc<Projection>),
    Columns(OwnedKey),
}

/// Converts `$item` to a typed request, names it `$request`, and evaluates `$value`.
macro_rules! with_typed_request {
    ($item:expr, $request:ident => $value:expr) => {
        match $item {
            RequestItem::Get(key) => Get::new(key.as_key()).map(|$request| $value),
            RequestItem::Exists(key) => Exists::new(key.as_key()).map(|$request| $value),
            RequestItem::Floor(key) => Floor::new(key.as_key()).map(|$request| $value),
            RequestItem::Ceiling(key) => Ceiling::new(key.as_key()).map(|$request| $value),
            RequestItem::Cover(key) => Cover::new(key.as_key()).map(|$request| $value),
            RequestItem::First => Ok(FirstRow).map(|$request| $value),
            RequestItem::Last => Ok(LastRow).map(|$request| $value),
            RequestItem::Page(range) => GetPage::first(range.bounds(), 0).map(|$request| $value),
            RequestItem::Count(range) => Count::new(range.bounds()).map(|$request| $value),
            RequestItem::Info => Ok(GetInfo).map(|$request| $value),
            RequestItem::Ping => Ok(Ping).map(|$request| $value),
            RequestItem::Authenticate(request) => Ok(request).map(|$request| $value),
            RequestItem::Generation => Ok(GetGeneration).map(|$request| $value),
            RequestItem::Schema => Ok(GetSchema).map(|$request| $value),
            RequestItem::KeyType => Ok(GetKeyType).map(|$request| $value),
            RequestItem::Track => Ok(Track).map(|$request| $value),
            RequestItem::Select(projection) => Ok(Select::new(projection)).map(|$request| $value),
            RequestItem::Columns(key) => GetColumns::new(key.as_key()).map(|$request| $value),
        }
    };
}

impl RequestItem {
    pub(crate) fn op(&self) -> Result<Op, ClientError> {
        with_typed_request!(self, request => request.op())
    }

    /// Returns the key whose value the item requests.
    pub(crate) fn key_to_get(&self) -> Option<Key<'_>> {
        match self {
            RequestItem::Get(key) => Some(key.as_key()),
            _ => None,
        }
    }

    /// Returns whether the item has a key or a range of keys, which are encoded for a type.
    pub(crate) fn has_keys(&self) -> bool {
        self.op().is_ok_and(Op::has_keys)
    }

    pub(crate) fn encode(&self, requests: &mut Vec<u8>) -> Result<(), ClientError> {
        with_typed_request!(self, request => request.encode(requests))
    }

    /// Decodes the response into a Python object.
    pub(crate) fn decode(
        &self,
        py: Python<'_>,
        key_type: KeyType,
        response: Response<'_>,
    ) -> Result<PyResult<Py<PyAny>>, RequestError> {
        const CHECKED: &str = "the constructor of Request checked the keys";
        Ok(match self {
            RequestItem::Get(key) => {
                let value = Get::new(key.as_key()).expect(CHECKED).decode_borrowed(response)?;
                Ok(value.map_or_else(|| py.None(), |value| PyBytes::new(py, value).into_any().unbind()))
            }
            RequestItem::Exists(key) => {
                let is_found = Exists::new(key.as_key()).expect(CHECKED).decode(response)?;
                Ok(PyBool::new(py, is_found).to_owned().into_any().unbind())
            }
            RequestItem::Floor(key) => {
                row_object(py, key_type, Floor::new(key.as_key()).expect(CHECKED).decode(response)?)
            }
            RequestItem::Ceiling(key) => {
                row_object(py, key_type, Ceiling::new(key.as_key()).expect(CHECKED).decode(response)?)
            }
            RequestItem::Cover(key) => {
                let range = Cover::new(key.as_key()).expect(CHECKED).decode(response)?;
                let range = optional_range(py, key_type, None, range);
                range.and_then(|range| Ok(range.into_pyobject(py)?.into_any().unbind()))
            }
            RequestItem::First => row_object(py, key_type, FirstRow.decode(response)?),
            RequestItem::Last => row_object(py, key_type, LastRow.decode(response)?),
            RequestItem::Page(range) => {
                let page = GetPage::first(range.bounds(), 0).expect(CHECKED).decode(response)?;
                let rest = page.rest().map(|rest| Request::with_schema(key_type, [RequestItem::Page(rest.clone())]));
                let rows = page
                    .iter()
                    .map(|(key, value)| row_tuple(py, key_type, None, key, value))
                    .collect::<PyResult<Vec<_>>>();
                rows.and_then(|rows| (rows, rest).into_pyobject(py)).map(|page| page.into_any().unbind())
            }
            RequestItem::Count(range) => {
                number_object(py, Count::new(range.bounds()).expect(CHECKED).decode(response)?)
            }
            RequestItem::Info => info_dict(py, &GetInfo.decode(response)?).map(|info| info.into_any().unbind()),
            RequestItem::Ping => Ping.decode(response).map(|()| Ok(py.None()))?,
            RequestItem::Authenticate(request) => request.decode(response).map(|()| Ok(py.None()))?,
            RequestItem::Generation => number_object(py, GetGeneration.decode(response)?),
            RequestItem::Schema => {
                let schema = GetSchema.decode(response)?.map(|schema| schema::Schema(Arc::new(schema)));
                schema.into_pyobject(py).map(|schema| schema.into_any().unbind())
            }
            RequestItem::KeyType => {
                let name = GetKeyType.decode(response)?.to_string();
                name.into_pyobject(py).map_err(PyErr::from).map(|name| name.into_any().unbind())
            }
            RequestItem::Track => Track.decode(response).map(|_| Ok(py.None()))?,
            RequestItem::Select(projection) => {
                let is_accepted = Select::new(projection).decode(response)?;
                Ok(if is_accepted { py.None() } else { py.Ellipsis() })
            }
            RequestItem::Columns(key) => {
                Ok(match GetColumns::new(key.as_key()).expect(CHECKED).decode_borrowed(response)? {
                    SelectedRow::Found(row) => PyBytes::new(py, row).into_any().unbind(),
                    SelectedRow::Missing => py.None(),
                    SelectedRow::SchemaChanged => py.Ellipsis(),
                })
            }
        })
    }
}

fn number_object(py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
    Ok(number.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any().unbind())
}

fn row_object(py: Python<'_>, key_type: KeyType, row: Option<Row>) -> PyResult<Py<PyAny>> {
    Ok(optional_row(py, key_type, None, row)?.into_pyobject(py)?.into_any().unbind())
}

impl Request {
    /// Returns a request of one item without keys.
    fn single(item: RequestItem) -> Request {
        Request { items: vec![item], result: ResultKind::Item, key_type: KeyType::BYTES }
    }

    /// Returns the request that logs in. Reads the password.
    pub(crate) fn authenticate(address: &Path, login: &Login) -> PyResult<Request> {
        let request = Authenticate::new(login)
            .map_err(|error| PyValueError::new_err(format!("{}: {error}", address.display())))?;
        Ok(Request::single(RequestItem::Authenticate(request)))
    }

    /// Returns the request for notices.
    pub(crate) fn track() -> Request {
        Request::single(RequestItem::Track)
    }

    pub(crate) fn of_key_type() -> Request {
        Request::single(RequestItem::KeyType)
    }

    fn checked(self) -> PyResult<Request> {
        for item in &self.items {
            item.op().map_err(|error| client_exception(&error))?;
        }
        Ok(self)
    }

    /// Returns items between guards: see [`ResultKind::WithSchema`].
    fn with_schema(key_type: KeyType, items: impl IntoIterator<Item = RequestItem>) -> Request {
        let before = [RequestItem::Generation, RequestItem::Schema];
        let items = before.into_iter().chain(items).chain([RequestItem::Generation]).collect();
        Request { items, result: ResultKind::WithSchema, key_type }
    }

    /// Returns requests for many keys, each of which one table must answer.
    fn batches_with_schema(
        item: fn(OwnedKey) -> RequestItem,
        key_type: &str,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Request>> {
        let key_type = parsed_key_type(key_type)?;
        let mut items = key_columns::bound_keys(keys, key_type)?.owned()?.into_iter().map(item).peekable();
        let mut requests = Vec::new();
        while requests.is_empty() || items.peek().is_some() {
            requests.push(Request::with_schema(key_type, items.by_ref().take(BATCH_LEN_MAX)).checked()?);
        }
        Ok(requests)
    }

    fn for_keys(item: fn(OwnedKey) -> RequestItem, key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        let key_type = parsed_key_type(key_type)?;
        let keys = key_columns::bound_keys(keys, key_type)?.owned()?;
        Request { items: keys.into_iter().map(item).collect(), result: ResultKind::List, key_type }.checked()
    }

    fn page_of(key_type: KeyType, range: KeyRange) -> PyResult<Request> {
        Request::with_schema(key_type, [RequestItem::Page(range)]).checked()
    }

    fn count_of(key_type: KeyType, range: KeyRange) -> PyResult<Request> {
        Request { key_type, ..Request::single(RequestItem::Count(range)) }.checked()
    }
}

#[pymethods]
impl Request {
    #[staticmethod]
    fn get_many(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Get, key_type, keys)
    }

    /// Requests values, and the schema of the table that they come from. The result of each request is `None` if the
    /// server replaced its table in between.
    #[staticmethod]
    fn get_with_schema(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Get, key_type, keys)
    }

    #[staticmethod]
    fn contains_many(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Exists, key_type, keys)
    }

    /// Requests rows, and their schema, as `get_with_schema` does.
    #[staticmethod]
    fn floor_many(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Floor, key_type, keys)
    }

    #[staticmethod]
    fn ceiling_many(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Ceiling, key_type, keys)
    }

    #[staticmethod]
    fn cover_many(key_type: &str, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Cover, key_type, keys)
    }

    #[staticmethod]
    fn first(key_type: &str) -> PyResult<Request> {
        Ok(Request::with_schema(parsed_key_type(key_type)?, [RequestItem::First]))
    }

    #[staticmethod]
    fn last(key_type: &str) -> PyResult<Request> {
        Ok(Request::with_schema(parsed_key_type(key_type)?, [RequestItem::Last]))
    }

    #[staticmethod]
    #[pyo3(signature = (key_type, start, end))]
    fn page(key_type: &str, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        let key_type = parsed_key_type(key_type)?;
        Request::page_of(key_type, range_between(key_type, start, end)?)
    }

    #[staticmethod]
    fn page_with_prefix(key_type: &str, prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        let key_type = parsed_key_type(key_type)?;
        Request::page_of(key_type, range_with_prefix(key_type, prefix)?)
    }

    #[staticmethod]
    #[pyo3(signature = (key_type, start, end))]
    fn count(key_type: &str, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        let key_type = parsed_key_type(key_type)?;
        Request::count_of(key_type, range_between(key_type, start, end)?)
    }

    #[staticmethod]
    fn count_prefix(key_type: &str, prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        let key_type = parsed_key_type(key_type)?;
        Request::count_of(key_type, range_with_prefix(key_type, prefix)?)
    }

    #[staticmethod]
    fn schema() -> Request {
        Request::single(RequestItem::Schema)
    }

    /// Requests columns of a table with this schema. The result is `ReceivedRows`, or `None` if the table has another
    /// schema.
    #[staticmethod]
    #[pyo3(signature = (key_type, schema, names, keys))]
    fn columns(
        key_type: &str,
        schema: &Bound<'_, schema::Schema>,
        names: Option<&Bound<'_, PyAny>>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let schema = &schema.get().0;
        let projection = Arc::new(projection_of(schema, names)?);
        let mut items = vec![RequestItem::Select(Arc::clone(&projection))];
        let key_type = parsed_key_type(key_type)?;
        items.extend(key_columns::bound_keys(keys, key_type)?.owned()?.into_iter().map(RequestItem::Columns));
        Request { items, result: ResultKind::Rows(projection), key_type }.checked()
    }

    /// Returns the kind of the keys of the requests, or `None` for requests without keys.
    fn key_kind(&self) -> Option<&'static str> {
        let kind = self.items.iter().find_map(|item| match item {
            RequestItem::Get(key)
            | RequestItem::Exists(key)
            | RequestItem::Floor(key)
            | RequestItem::Ceiling(key)
            | RequestItem::Cover(key)
            | RequestItem::Columns(key) => Some(key.as_key().kind()),
            RequestItem::Page(range) | RequestItem::Count(range) => range_kind(range),
            _ => None,
        });
        kind.map(kind_name)
    }

    /// Requests the type of the keys.
    #[staticmethod]
    fn key_type() -> Request {
        Request::of_key_type()
    }

    #[staticmethod]
    fn info() -> Request {
        Request::single(RequestItem::Info)
    }

    #[staticmethod]
    fn ping() -> Request {
        Request::single(RequestItem::Ping)
    }
}

/// Returns the kind of each key of an asynchronous call in a table of `u64` or `bytes`, or `None` for a key that no table
/// can have.
#[pyfunction]
pub(crate) fn key_kinds(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<&'static str>>> {
    let kind_of = |key: PyResult<Bound<'_, PyAny>>| Ok(possible_key(&key?)?.map(|key| kind_name(key.kind())));
    keys.try_iter()?.map(kind_of).collect()
}

/// Keys, and a Boolean for each requested key, which is true if it is among them. `None` if all are.
type PossibleKeys<'py> = (Vec<Bound<'py, PyAny>>, Option<Vec<bool>>);

/// Returns the keys of an asynchronous call that the table can have, and, if it cannot have all of them, a Boolean for each
/// key, which is true for these.
#[pyfunction]
pub(crate) fn possible_keys<'py>(keys: &Bound<'py, PyAny>, key_type: &str) -> PyResult<PossibleKeys<'py>> {
    let (py, key_type) = (keys.py(), parsed_key_type(key_type)?);
    let found = key_columns::possible_keys(keys, key_type, false)?;
    let objects = found.batch.keys()?.into_iter().map(|key| key_object(py, key_type, key)).collect::<PyResult<_>>()?;
    Ok((objects, found.is_possible().map(<[bool]>::to_vec)))
}

/// Returns the key that equals an object, for example an `int` for a `float`. The table can have the key.
#[pyfunction]
pub(crate) fn index_of<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match possible_key(key)? {
        Some(found) => Ok(plain_key_object(key.py(), found)),
        None => Err(PyValueError::new_err("no table can have the key")),
    }
}

/// Returns the written forms of keys, some of which are `None`.
#[pyfunction]
pub(crate) fn write_keys<'py>(
    py: Python<'py>,
    key_type: &str,
    keys: Vec<Option<Bound<'py, PyAny>>>,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let key_type = parsed_key_type(key_type)?;
    let written = |key: Option<Bound<'py, PyAny>>| {
        let Some(key) = key else { return Ok(None) };
        let mut text = Vec::new();
        key_type.write(baked_key(&key, key_type)?.as_key(), &mut text);
        Ok(Some(PyBytes::new(py, &text)))
    };
    keys.into_iter().map(written).collect()
}

/// Returns the message about keys of the other kind than those of the table.
#[pyfunction]
pub(crate) fn wrong_kind(held: &str, asked: &str) -> String {
    let kind = |name: &str| if name == kind_name(KeyKind::U64) { KeyKind::U64 } else { KeyKind::Bytes };
    LookupError::KeyKind { held: kind(held), asked: kind(asked) }.to_string()
}
