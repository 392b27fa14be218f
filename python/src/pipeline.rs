//! The state of a connection without its socket.
//!
//! In: requests, then bytes as they arrive. Out: encoded requests, and a result for the future of each request, in
//! order. This module does no I/O; `lib/zero_kv/_connection.py` sends and receives the bytes.

use std::collections::VecDeque;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use zero_kv::client::request::{GetKeyType, GetSchema, RequestError, TypedRequest};
use zero_kv::client::{Address, Cache, CacheInState, ClientError, ReceivedValues};
use zero_kv::protocol::native::VALUE_LEN_MAX_BYTES;
use zero_kv::protocol::reader::{PartialResponse, Response, ResponseReader};
use zero_kv::typed::Projection;
use zero_kv::{Key, KeyType};

use crate::errors::client_exception;
use crate::received::ReceivedRows;
use crate::request::{Request, RequestItem, ResultKind};
use crate::schema;

/// A request whose responses have not all arrived, and the future that waits for its result.
struct PendingRequest {
    request: Py<Request>,
    /// `None` for a request of the pipeline itself.
    future: Option<Py<PyAny>>,
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
    /// Whether the type of the keys was requested on the connection.
    has_requested_key_type: bool,
    known: KnownKeyType,
    cache: Option<Cache>,
    tracking: Tracking,
    /// Whether the state has changed since the type of the keys was requested last.
    has_changed: bool,
}

/// Whether the server announces changes of the connection's state.
enum Tracking {
    /// The client has not asked for it.
    Off,
    /// The client has asked for it, and the server has not agreed.
    Requested,
    /// The values of the current state.
    On(CacheInState),
}

/// The type in the last response to KeyType. The server looks up only keys of this type.
#[derive(Clone, Copy)]
enum KnownKeyType {
    /// There is no type: no response has arrived, or the user may not learn the type.
    None,
    Of(KeyType),
}

impl KnownKeyType {
    /// Returns whether a key that is encoded for a type was looked up as a key of this type. Without a type, keys are
    /// numbers and bytes.
    fn is(self, encoded_for: KeyType) -> bool {
        match self {
            KnownKeyType::None => encoded_for.is_plain(),
            KnownKeyType::Of(key_type) => key_type == encoded_for,
        }
    }
}

#[pymethods]
impl Pipeline {
    #[new]
    #[pyo3(signature = (address, cache = None))]
    fn new(address: PathBuf, cache: Option<&Bound<'_, ValueCache>>) -> PyResult<Pipeline> {
        let server = Address::parse(&address).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
        let (unsent, pending) = (Vec::new(), VecDeque::new());
        Ok(Pipeline {
            server,
            unsent,
            pending,
            reader,
            has_received: false,
            selected: None,
            has_requested_key_type: false,
            known: KnownKeyType::None,
            cache: cache.map(|cache| cache.get().0.clone()),
            tracking: Tracking::Off,
            has_changed: false,
        })
    }

    /// Adds a request. `future` receives the request's result.
    fn add(&mut self, py: Python<'_>, request: Py<Request>, future: Bound<'_, PyAny>) -> PyResult<()> {
        let items = &request.get().items;
        if items.is_empty() {
            future.call_method1("set_result", (PyList::empty(py),))?;
            return Ok(());
        }
        let has_keys = items.iter().any(RequestItem::has_keys);
        if has_keys && self.cache.is_some() && matches!(self.tracking, Tracking::Off) {
            self.reader.expect_notices();
            self.tracking = Tracking::Requested;
            self.add_request(py, Bound::new(py, Request::track())?.unbind(), None)?;
        }
        if items.iter().any(|item| matches!(item, RequestItem::KeyType)) {
            self.has_requested_key_type = true;
        } else if has_keys && !self.has_requested_key_type {
            self.add_request(py, Bound::new(py, Request::of_key_type())?.unbind(), None)?;
            self.has_requested_key_type = true;
        }
        self.add_request(py, request, Some(future))
    }

    /// Returns the result of a request if all values that it requests are cached, and `None` otherwise. The caller has
    /// passed all bytes that have arrived.
    fn cached<'py>(&self, py: Python<'py>, request: &Bound<'py, Request>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (Tracking::On(cache), request) = (&self.tracking, request.get()) else { return Ok(None) };
        let items = match &request.result {
            ResultKind::List => &request.items[..],
            ResultKind::WithSchema => &request.items[2..request.items.len() - 1],
            ResultKind::Item | ResultKind::Rows(_) => return Ok(None),
        };
        let KnownKeyType::Of(key_type) = self.known else { return Ok(None) };
        if self.has_changed || key_type != request.key_type || items.is_empty() {
            return Ok(None);
        }
        let keys: Option<Vec<Key<'_>>> = items.iter().map(RequestItem::key_to_get).collect();
        let Some(keys) = keys else { return Ok(None) };
        let mut values = ReceivedValues::default();
        if !cache.look_up(&keys, &mut values).is_empty() {
            return Ok(None);
        }
        let objects = values.iter().map(|value| value.map(|value| PyBytes::new(py, value)));
        let values = PyList::new(py, objects)?;
        if matches!(request.result, ResultKind::List) {
            return Ok(Some(values.into_any()));
        }
        let Some(schema) = cache.schema() else { return Ok(None) };
        Ok(Some((values, schema.map(schema::Schema)).into_pyobject(py)?.into_any()))
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

    /// Sets an exception for all pending requests. Raises the exception of a future that rejects it only after all
    /// futures have been tried.
    fn fail(&mut self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let finish = |pending: PendingRequest| pending.finish(py, "set_exception", error.clone());
        mem::take(&mut self.pending).into_iter().map(finish).fold(Ok(()), PyResult::and)
    }

    /// Returns the exception for a connection that the peer closed.
    fn closed<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::exceptions::PyBaseException> {
        let server = self.server.clone();
        let error = match self.has_received {
            false => ClientError::Refused { server },
            true => {
                let PartialResponse { part, arrived_bytes, expected_bytes } = self.reader.partial();
                ClientError::Closed { server, part, arrived_bytes, expected_bytes }
            }
        };
        client_exception(&error).into_value(py).into_bound(py)
    }
}

impl Pipeline {
    /// Adds a request with at least one item.
    fn add_request(&mut self, py: Python<'_>, request: Py<Request>, future: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let items = &request.get().items;
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
            future: future.map(Bound::unbind),
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

    /// Decodes the responses that are complete.
    fn process_responses(&mut self, py: Python<'_>) -> PyResult<()> {
        loop {
            self.follow_state()?;
            let Some(pending) = self.pending.front_mut() else { break };
            let request = pending.request.clone_ref(py);
            let items = &request.get().items;
            let item = &items[pending.received];
            let violation = |error| client_exception(&ClientError::Protocol { server: self.server.clone(), error });
            let op = item.op().map_err(|error| client_exception(&error))?;
            let Some(response) = self.reader.next(op).map_err(violation)? else { return Ok(()) };
            let mut refused = false;
            if matches!(item, RequestItem::KeyType) {
                self.known = GetKeyType.decode(response).map_or(KnownKeyType::None, KnownKeyType::Of);
                self.has_changed = false;
            } else if item.has_keys() && !self.known.is(request.get().key_type) {
                // The request was sent after a KeyType, but encoded before the response had arrived.
                let error = ClientError::KeyTypeChanged { server: self.server.clone() };
                pending.error.get_or_insert_with(|| client_exception(&error));
            } else if let Tracking::On(cache) = &self.tracking {
                keep(cache, item, response);
            }
            match item.decode(py, request.get().key_type, response) {
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
            if let Err(error) = complete.complete(py) {
                // The caller sets the exception for all pending requests.
                self.pending.push_front(complete);
                return Err(error);
            }
        }
        self.reader
            .finish()
            .map_err(|error| client_exception(&ClientError::Protocol { server: self.server.clone(), error }))
    }

    /// Follows the state in the notices before the next response. In another state, keys may be of another type.
    fn follow_state(&mut self) -> PyResult<()> {
        let state = self.reader.next_state();
        let state =
            state.map_err(|error| client_exception(&ClientError::Protocol { server: self.server.clone(), error }))?;
        if let (Some(state), Some(cache)) = (state, &self.cache) {
            self.tracking = Tracking::On(cache.enter(&self.server, state));
            (self.has_changed, self.has_requested_key_type) = (true, false);
        }
        Ok(())
    }
}

/// Keeps what a response says about the table.
fn keep(cache: &CacheInState, item: &RequestItem, response: Response<'_>) {
    match (item, response) {
        (RequestItem::Get(key), Response::Found(value)) => {
            cache.insert(std::iter::once((key.as_key(), Some(value))));
        }
        (RequestItem::Get(key), Response::NotFound) => cache.insert(std::iter::once((key.as_key(), None))),
        (RequestItem::Schema, response) if cache.schema().is_none() => {
            if let Ok(schema) = GetSchema.decode(response) {
                cache.set_schema(schema.map(Arc::new));
            }
        }
        _ => {}
    }
}

/// The cache of an asyncio client, whose argument `cache` is its maximum number of bytes.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct ValueCache(Cache);

#[pymethods]
impl ValueCache {
    #[new]
    fn new(cache: usize) -> ValueCache {
        ValueCache(Cache::new(cache))
    }

    /// The number of bytes that the entries take.
    #[getter]
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
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
                let schema = Arc::new(projection.schema().clone());
                let projection = Projection::of_all(&schema);
                match ReceivedRows::new(schema, projection, rows) {
                    Ok(rows) => self.finish(py, "set_result", Bound::new(py, rows)?.into_any()),
                    Err(error) => self.finish(py, "set_exception", error.into_value(py).into_bound(py).into_any()),
                }
            }
            (ResultKind::WithSchema, None) => {
                let [first, schema, between @ .., last] = &results[..] else {
                    unreachable!("a request with guards has at least three items")
                };
                let is_one_table = first.bind(py).eq(last)?;
                let result = (PyList::new(py, between)?, schema);
                let result = is_one_table.then(|| result.into_pyobject(py)).transpose()?;
                self.finish(py, "set_result", result.into_pyobject(py)?.into_any())
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
        let Some(future) = self.future.as_ref().map(|future| future.bind(py)) else { return Ok(()) };
        if !future.call_method0("done")?.is_truthy()? {
            future.call_method1(method, (argument,))?;
        }
        Ok(())
    }
}
