//! Encodes requests, and decodes responses, for clients with their own sockets.
//!
//! In: requests, then bytes as they arrive. Out: encoded requests, and a result for the future of each request, in
//! order. This module does no I/O; `lib/zero_kv/_aio.py` sends and receives the bytes.

use std::collections::VecDeque;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};
use zero_kv::client::request::{
    Authenticate, Ceiling, Count, Exists, FirstRow, Floor, Get, GetColumns, GetInfo, GetPage, GetSchema, LastRow, Ping,
    RequestError, Select, SelectedRow, TypedRequest,
};
use zero_kv::client::{Address, ClientError, KeyRange, Login, OwnedKey, Refusal, Row};
use zero_kv::protocol::native::{Op, VALUE_LEN_MAX_BYTES};
use zero_kv::protocol::reader::{PartialResponse, Response, ResponseReader};
use zero_kv::typed::Projection;

use crate::columns::column_names;
use crate::convert::{info_dict, key_from, optional_row, range_between, range_with_prefix, row_tuple};
use crate::errors::client_exception;
use crate::key_batch::KeyBatch;
use crate::received::ReceivedRows;
use crate::schema;

/// One or many requests with one result.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Request {
    items: Vec<RequestItem>,
    result: ResultKind,
}

/// The result of a request.
enum ResultKind {
    /// The result of the only item.
    Item,
    /// A list of the items' results.
    List,
    /// The rows of the items after the first, which selects the columns of this projection. `None` if the table has
    /// another schema.
    Rows(Arc<Projection>),
}

/// A request that owns its keys.
enum RequestItem {
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
            RequestItem::Schema => Ok(GetSchema).map(|$request| $value),
            RequestItem::Select(projection) => Ok(Select::new(projection)).map(|$request| $value),
            RequestItem::Columns(key) => GetColumns::new(key.as_key()).map(|$request| $value),
        }
    };
}

impl RequestItem {
    fn op(&self) -> Result<Op, ClientError> {
        with_typed_request!(self, request => request.op())
    }

    fn encode(&self, requests: &mut Vec<u8>) -> Result<(), ClientError> {
        with_typed_request!(self, request => request.encode(requests))
    }

    /// Decodes the response into a Python object.
    fn decode(&self, py: Python<'_>, response: Response<'_>) -> Result<PyResult<Py<PyAny>>, RequestError> {
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
                let rest = page.rest().map(|rest| Request::single(RequestItem::Page(rest.clone())));
                let rows =
                    page.iter().map(|(key, value)| row_tuple(py, None, key, value)).collect::<PyResult<Vec<_>>>();
                rows.and_then(|rows| (rows, rest).into_pyobject(py)).map(|page| page.into_any().unbind())
            }
            RequestItem::Count(range) => {
                let count = Count::new(range.bounds()).expect(CHECKED).decode(response)?;
                Ok(count.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any().unbind())
            }
            RequestItem::Info => info_dict(py, &GetInfo.decode(response)?).map(|info| info.into_any().unbind()),
            RequestItem::Ping => Ping.decode(response).map(|()| Ok(py.None()))?,
            RequestItem::Authenticate(request) => request.decode(response).map(|()| Ok(py.None()))?,
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

    fn for_key(item: fn(OwnedKey) -> RequestItem, key: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::single(item(key_from(key)?.into())).checked()
    }

    fn for_keys(item: fn(OwnedKey) -> RequestItem, keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        let keys = KeyBatch::from_object(keys)?.owned()?;
        Request { items: keys.into_iter().map(item).collect(), result: ResultKind::List }.checked()
    }

    fn for_range(item: fn(KeyRange) -> RequestItem, range: KeyRange) -> PyResult<Request> {
        Request::single(item(range)).checked()
    }
}

#[pymethods]
impl Request {
    #[staticmethod]
    fn get(key: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_key(RequestItem::Get, key)
    }

    #[staticmethod]
    fn get_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Get, keys)
    }

    #[staticmethod]
    fn exists(key: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_key(RequestItem::Exists, key)
    }

    #[staticmethod]
    fn exists_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Exists, keys)
    }

    #[staticmethod]
    fn floor(key: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_key(RequestItem::Floor, key)
    }

    #[staticmethod]
    fn floor_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Floor, keys)
    }

    #[staticmethod]
    fn ceiling(key: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_key(RequestItem::Ceiling, key)
    }

    #[staticmethod]
    fn ceiling_many(keys: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_keys(RequestItem::Ceiling, keys)
    }

    #[staticmethod]
    fn first() -> Request {
        Request::single(RequestItem::First)
    }

    #[staticmethod]
    fn last() -> Request {
        Request::single(RequestItem::Last)
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn page(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        Request::for_range(RequestItem::Page, range_between(start, end)?)
    }

    #[staticmethod]
    fn page_with_prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_range(RequestItem::Page, range_with_prefix(prefix)?)
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn count(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Request> {
        Request::for_range(RequestItem::Count, range_between(start, end)?)
    }

    #[staticmethod]
    fn count_prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Request> {
        Request::for_range(RequestItem::Count, range_with_prefix(prefix)?)
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

    #[staticmethod]
    fn info() -> Request {
        Request::single(RequestItem::Info)
    }

    #[staticmethod]
    fn ping() -> Request {
        Request::single(RequestItem::Ping)
    }
}

/// A request whose responses have not all arrived, and the future that waits for its result.
struct PendingRequest {
    request: Py<Request>,
    future: Py<PyAny>,
    /// The results of the items whose response has been received.
    results: Vec<Py<PyAny>>,
    /// The first error that has been found in the responses.
    error: Option<PyErr>,
    /// The number of items whose response has been received, or that were not sent.
    received: usize,
    /// Whether the request uses the columns that an earlier request selects.
    is_selected_before: bool,
    /// Whether the table has another schema than the selected columns.
    is_outdated: bool,
}

/// The state of a connection without its socket: unsent requests, pending requests, and received bytes.
#[pyclass(module = "zero_kv._native")]
pub(crate) struct Pipeline {
    server: Address,
    unsent: Vec<u8>,
    pending: VecDeque<PendingRequest>,
    reader: ResponseReader,
    has_received: bool,
    /// The columns that the last sent request for columns has selected.
    selected: Option<Arc<Projection>>,
}

#[pymethods]
impl Pipeline {
    #[new]
    fn new(address: PathBuf) -> PyResult<Pipeline> {
        let server = Address::parse(&address).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
        let (unsent, pending) = (Vec::new(), VecDeque::new());
        Ok(Pipeline { server, unsent, pending, reader, has_received: false, selected: None })
    }

    /// Adds a request. `future` receives the request's result.
    fn add(&mut self, py: Python<'_>, request: Py<Request>, future: Bound<'_, PyAny>) -> PyResult<()> {
        let items = &request.get().items;
        if items.is_empty() {
            future.call_method1("set_result", (PyList::empty(py),))?;
            return Ok(());
        }
        let start = self.unsent.len();
        let is_selected_before = match (&request.get().result, &self.selected) {
            (ResultKind::Rows(wanted), Some(selected)) => {
                wanted.source_id() == selected.source_id() && wanted.positions() == selected.positions()
            }
            _ => false,
        };
        let unsent_count = usize::from(is_selected_before);
        if let Some(error) = items[unsent_count..].iter().find_map(|item| item.encode(&mut self.unsent).err()) {
            self.unsent.truncate(start);
            return Err(client_exception(&error));
        }
        if let ResultKind::Rows(projection) = &request.get().result {
            self.selected = Some(Arc::clone(projection));
        }
        let mut pending = PendingRequest {
            request,
            future: future.unbind(),
            results: Vec::new(),
            error: None,
            received: unsent_count,
            is_selected_before,
            is_outdated: false,
        };
        if is_selected_before {
            pending.results.push(py.None());
        }
        match pending.received == pending.request.get().items.len() {
            true => pending.complete(py)?,
            false => self.pending.push_back(pending),
        }
        Ok(())
    }

    /// Returns the encoded requests that no earlier call has returned.
    fn take_unsent<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &mem::take(&mut self.unsent))
    }

    /// Processes received bytes, and sets the results of the futures whose responses are complete.
    fn received(&mut self, py: Python<'_>, mut bytes: &[u8]) -> PyResult<()> {
        self.has_received |= !bytes.is_empty();
        while !bytes.is_empty() {
            let spare = self.reader.spare();
            let len_bytes = spare.len().min(bytes.len());
            spare[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
            self.reader.received(len_bytes);
            bytes = &bytes[len_bytes..];
            self.process_responses(py)?;
        }
        Ok(())
    }

    /// Sets an exception for all pending requests.
    fn fail(&mut self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        for pending in mem::take(&mut self.pending) {
            pending.finish(py, "set_exception", error.clone())?;
        }
        Ok(())
    }

    /// Returns the exception for a connection that the peer closed.
    fn closed<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::exceptions::PyBaseException> {
        let server = self.server.clone();
        let error = match self.has_received {
            false => ClientError::Refused { server, reason: Refusal::Closed },
            true => {
                let PartialResponse { part, arrived_bytes, expected_bytes } = self.reader.partial();
                ClientError::Closed { server, part, arrived_bytes, expected_bytes }
            }
        };
        client_exception(&error).into_value(py).into_bound(py)
    }
}

impl Pipeline {
    /// Decodes the responses that are complete.
    fn process_responses(&mut self, py: Python<'_>) -> PyResult<()> {
        while let Some(pending) = self.pending.front_mut() {
            let request = pending.request.clone_ref(py);
            let items = &request.get().items;
            let item = &items[pending.received];
            let violation = |error| client_exception(&ClientError::Protocol { server: self.server.clone(), error });
            let op = item.op().map_err(|error| client_exception(&error))?;
            let Some(response) = self.reader.next(op).map_err(violation)? else { return Ok(()) };
            let mut refused = false;
            match item.decode(py, response) {
                Ok(result) => {
                    let result = result?;
                    let is_refused = matches!(item, RequestItem::Select(_)) && result.is(py.Ellipsis());
                    pending.results.push(result);
                    refused |= is_refused;
                }
                Err(RequestError::Violation(error)) => return Err(violation(error)),
                Err(error) => {
                    let error = ClientError::request(&self.server, error);
                    pending.error.get_or_insert_with(|| client_exception(&error));
                }
            }
            pending.received += 1;
            let is_complete = pending.received == items.len();
            if refused {
                mark_outdated(&mut self.pending);
                self.selected = None;
            }
            if !is_complete {
                continue;
            }
            let Some(mut complete) = self.pending.pop_front() else { return Ok(()) };
            complete.complete(py)?;
        }
        self.reader
            .finish()
            .map_err(|error| client_exception(&ClientError::Protocol { server: self.server.clone(), error }))
    }
}

/// Marks the first pending request, whose columns the server did not select, and the requests that use the same
/// selection. After a refused selection, a connection has no selected columns.
fn mark_outdated(pending: &mut VecDeque<PendingRequest>) {
    let mut is_first = true;
    for request in pending.iter_mut() {
        match &request.request.get().result {
            ResultKind::Rows(_) if is_first || request.is_selected_before => request.is_outdated = true,
            ResultKind::Rows(_) => return,
            _ => {}
        }
        is_first = false;
    }
}

impl PendingRequest {
    /// Sets the result of the future after all responses have been received.
    fn complete(&mut self, py: Python<'_>) -> PyResult<()> {
        let results = mem::take(&mut self.results);
        let request = self.request.clone_ref(py);
        let is_outdated = self.is_outdated || results.iter().any(|result| result.is(py.Ellipsis()));
        match (&request.get().result, self.error.take()) {
            // The server responds with an error to requests for columns without selected columns.
            (ResultKind::Rows(_), _) if is_outdated => self.finish(py, "set_result", py.None().into_bound(py)),
            (_, Some(error)) => self.finish(py, "set_exception", error.into_value(py).into_bound(py).into_any()),
            (ResultKind::Rows(projection), None) => {
                let row = |row: &Py<PyAny>| row.extract::<Option<Vec<u8>>>(py);
                let rows = results[1..].iter().map(row).collect::<PyResult<Vec<_>>>()?;
                match ReceivedRows::new(Arc::new(projection.schema().clone()), rows) {
                    Ok(rows) => self.finish(py, "set_result", Bound::new(py, rows)?.into_any()),
                    Err(error) => self.finish(py, "set_exception", error.into_value(py).into_bound(py).into_any()),
                }
            }
            (ResultKind::List, None) => self.finish(py, "set_result", PyList::new(py, results)?.into_any()),
            (ResultKind::Item, None) => {
                let result = results.into_iter().next_back().unwrap_or_else(|| py.None());
                self.finish(py, "set_result", result.into_bound(py))
            }
        }
    }

    /// Sets the future's result or exception, unless the future was canceled.
    fn finish(&self, py: Python<'_>, method: &str, argument: Bound<'_, PyAny>) -> PyResult<()> {
        let future = self.future.bind(py);
        if !future.call_method0("done")?.is_truthy()? {
            future.call_method1(method, (argument,))?;
        }
        Ok(())
    }
}
