//! Requests of clients with their own sockets.
//!
//! In: keys and ranges. Out: encoded requests, and Python objects from their responses. `pipeline` combines the requests
//! of a connection.

use std::path::Path;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use zero_kv::client::request::{
    Authenticate, Ceiling, Count, Exists, FirstRow, Floor, Get, GetColumns, GetGeneration, GetInfo, GetPage, GetSchema,
    LastRow, Ping, RequestError, Select, SelectedRow, TypedRequest,
};
use zero_kv::client::{ClientError, KeyRange, Login, OwnedKey, Row};
use zero_kv::protocol::native::Op;
use zero_kv::protocol::reader::Response;
use zero_kv::typed::Projection;
use zero_kv::{KeyKind, LookupError};

use crate::columns::column_names;
use crate::convert::{
    info_dict, key_object, kind_name, optional_row, possible_key, range_between, range_kind, range_with_prefix,
    row_tuple,
};
use crate::errors::client_exception;
use crate::key_batch::KeyBatch;
use crate::schema;

/// The maximum number of keys in a request that one table must answer. A call with more keys sends several requests, so that
/// it succeeds even if the server replaces its table every second.
const BATCH_LEN_MAX: usize = 1 << 16;

/// One or many requests with one result.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Request {
    pub(crate) items: Vec<RequestItem>,
    pub(crate) result: ResultKind,
}

/// The result of a request.
pub(crate) enum ResultKind {
    /// The result of the only item.
    Item,
    /// A list of the items' results.
    List,
    /// A list of the results of the items between the guards, and the schema of the table that has answered them. `None` if
    /// the server replaced its table in between. The guards are the first two items, which request the table's generation
    /// and schema, and the last item, which requests the generation.
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
    First,
    Last,
    Page(KeyRange),
    Count(KeyRange),
    Info,
    Ping,
    Authenticate(Authenticate),
    Generation,
    Schema,
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
            RequestItem::First => Ok(FirstRow).map(|$request| $value),
            RequestItem::Last => Ok(LastRow).map(|$request| $value),
            RequestItem::Page(range) => GetPage::first(range.bounds(), 0).map(|$request| $value),
            RequestItem::Count(range) => Count::new(range.bounds()).map(|$request| $value),
            RequestItem::Info => Ok(GetInfo).map(|$request| $value),
            RequestItem::Ping => Ok(Ping).map(|$request| $value),
            RequestItem::Authenticate(request) => Ok(request).map(|$request| $value),
            RequestItem::Generation => Ok(GetGeneration).map(|$request| $value),
            RequestItem::Schema => Ok(GetSchema).map(|$request| $value),
            RequestItem::Select(projection) => Ok(Select::new(projection)).map(|$request| $value),
            RequestItem::Columns(key) => GetColumns::new(key.as_key()).map(|$request| $value),
        }
    };
}

impl RequestItem {
    pub(crate) fn op(&self) -> Result<Op, ClientError> {
        with_typed_request!(self, request => request.op())
    }

    pub(crate) fn encode(&self, requests: &mut Vec<u8>) -> Result<(), ClientError> {
        with_typed_request!(self, request => request.encode(requests))
    }

    /// Decodes the response into a Python object.
    pub(crate) fn decode(&self, py: Python<'_>, response: Response<'_>) -> Result<PyResult<Py<PyAny>>, RequestError> {
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
            RequestItem::Floor(key) => row_object(py, Floor::new(key.as_key()).expect(CHECKED).decode(response)?),
            RequestItem::Ceiling(key) => row_object(py, Ceiling::new(key.as_key()).expect(CHECKED).decode(response)?),
            RequestItem::First => row_object(py, FirstRow.decode(response)?),
            RequestItem::Last => row_object(py, LastRow.decode(response)?),
            RequestItem::Page(range) => {
                let page = GetPage::first(range.bounds(), 0).expect(CHECKED).decode(response)?;
                let rest = page.rest().map(|rest| Request::with_schema([RequestItem::Page(rest.clone())]));
                let rows =
                    page.iter().map(|(key, value)| row_tuple(py, None, key, value)).collect::<PyResult<Vec<_>>>();
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

fn row_object(py: Python<'_>, row: Option<Row>) -> PyResult<Py<PyAny>> {
    Ok(optional_row(py, None, row)?.into_pyobject(py)?.into_any().unbind())
}

impl Request {
    fn single(item: RequestItem) -> Request {
        Request { items: vec![item], result: ResultKind::Item }
    }

    /// Returns the request that logs in. Reads the password.
    pub(crate) fn authenticate(address: &Path, login: &Login) -> PyResult<Request> {
        let request = Authenticate::new(login)
            .map_err(|error| PyValueError::new_err(format!("{}: {error}", address.display())))?;
        Ok(Request::single(RequestItem::Authenticate(request)))
    }

    fn checked(self) -> PyResult<Request> {
        for item in &self.items {
            item.op().map_err(|error| client_exception(&error))?;
        }
        Ok(self)
    }

    /// Returns items between guards: see [`ResultKind::WithSchema`].
    fn with_schema(items: impl IntoIterator<Item = RequestItem>) -> Request {
        let before = [RequestItem::Generation, RequestItem::Schema];
        let items = before.into_iter().chain(items).chain([RequestItem::Generation]).collect();
        Request { items, result: ResultKind::WithSchema }
    }

    /// Returns requests for many keys, each of which one table must answer.
    fn batches_with_schema(item: fn(OwnedKey) -> RequestItem, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        let mut items = KeyBatch::from_object(keys)?.owned()?.into_iter().map(item).peekable();
        let mut requests = Vec::new();
        while requests.is_empty() || items.peek().is_some() {
            requests.push(Request::with_schema(items.by_ref().take(BATCH_LEN_MAX)).checked()?);
        }
        Ok(requests)
    }

    fn for_keys(item: fn(OwnedKey) -> RequestItem, keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        let keys = KeyBatch::from_object(keys)?.owned()?;
        Request { items: keys.into_iter().map(item).collect(), result: ResultKind::List }.checked()
    }

    fn page_of(range: KeyRange) -> PyResult<Request> {
        Request::with_schema([RequestItem::Page(range)]).checked()
    }

    fn count_of(range: KeyRange) -> PyResult<Request> {
        Request::single(RequestItem::Count(range)).checked()
    }
}

#[pymethods]
impl Request {
    #[staticmethod]
    fn get_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Get, keys)
    }

    /// Requests values, and the schema of the table that they come from. The result of each request is `None` if the server
    /// replaced its table in between.
    #[staticmethod]
    fn get_with_schema(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Get, keys)
    }

    #[staticmethod]
    fn contains_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Exists, keys)
    }

    /// Requests rows, and their schema, as `get_with_schema` does.
    #[staticmethod]
    fn floor_many(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Floor, keys)
    }

    #[staticmethod]
    fn ceiling_many(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Request>> {
        Request::batches_with_schema(RequestItem::Ceiling, keys)
    }

    #[staticmethod]
    fn first() -> Request {
        Request::with_schema([RequestItem::First])
    }

    #[staticmethod]
    fn last() -> Request {
        Request::with_schema([RequestItem::Last])
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn page(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        Request::page_of(range_between(start, end)?)
    }

    #[staticmethod]
    fn page_with_prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::page_of(range_with_prefix(prefix)?)
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn count(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        Request::count_of(range_between(start, end)?)
    }

    #[staticmethod]
    fn count_prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::count_of(range_with_prefix(prefix)?)
    }

    #[staticmethod]
    fn schema() -> Request {
        Request::single(RequestItem::Schema)
    }

    /// Requests columns of a table with this schema. The result is `ReceivedRows`, or `None` if the table has another
    /// schema.
    #[staticmethod]
    #[pyo3(signature = (schema, names, keys))]
    fn columns(
        schema: &Bound<'_, schema::Schema>,
        names: Option<&Bound<'_, PyAny>>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let schema = &schema.get().0;
        let projection = match names {
            None => Projection::of_all(schema),
            Some(names) => {
                let names = column_names(names)?;
                let names = names.iter().map(|name| name.to_str()).collect::<PyResult<Vec<_>>>()?;
                Projection::new(schema, &names).map_err(|error| PyValueError::new_err(error.to_string()))?
            }
        };
        let projection = Arc::new(projection);
        let mut items = vec![RequestItem::Select(Arc::clone(&projection))];
        items.extend(KeyBatch::from_object(keys)?.owned()?.into_iter().map(RequestItem::Columns));
        Request { items, result: ResultKind::Rows(projection) }.checked()
    }

    /// Returns the kind of the keys of the requests, or `None` for requests without keys.
    fn key_kind(&self) -> Option<&'static str> {
        let kind = self.items.iter().find_map(|item| match item {
            RequestItem::Get(key)
            | RequestItem::Exists(key)
            | RequestItem::Floor(key)
            | RequestItem::Ceiling(key)
            | RequestItem::Columns(key) => Some(key.as_key().kind()),
            RequestItem::Page(range) | RequestItem::Count(range) => range_kind(range),
            _ => None,
        });
        kind.map(kind_name)
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

/// Returns the kind of each key of an asynchronous call, or `None` for a key that no table can have.
#[pyfunction]
pub(crate) fn key_kinds(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<&'static str>>> {
    let kind_of = |key: PyResult<Bound<'_, PyAny>>| Ok(possible_key(&key?)?.map(|key| kind_name(key.kind())));
    keys.try_iter()?.map(kind_of).collect()
}

/// Returns the key that equals an object, for example an `int` for a `float`. The table can have the key.
#[pyfunction]
pub(crate) fn index_of<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match possible_key(key)? {
        Some(found) => Ok(key_object(key.py(), found)),
        None => Err(PyValueError::new_err("no table can have the key")),
    }
}

/// Returns the message about keys of the other kind than those of the table.
#[pyfunction]
pub(crate) fn wrong_kind(held: &str, asked: &str) -> String {
    let kind = |name: &str| if name == kind_name(KeyKind::U64) { KeyKind::U64 } else { KeyKind::Bytes };
    LookupError::KeyKind { held: kind(held), asked: kind(asked) }.to_string()
}
