//! Questions for clients that send and receive by themselves.
//!
//! In: what is asked, then bytes as they arrive. Out: requests' bytes, and answers for
//! whoever waits for them, in order. It knows no socket: `lib/zero_kv/_aio.py` has that.

use std::collections::VecDeque;
use std::mem;
use std::ops::Bound as End;
use std::path::PathBuf;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};
use zero_kv::Key;
use zero_kv::client::question::{
    AboutServer, Ceiling, Count, Exists, Floor, Get, Outermost, PageOf, Ping, Question, Unanswered, prefix_range,
};
use zero_kv::client::{self, ClientError, KeyRange, OwnedKey, Refusal};
use zero_kv::protocol::native::{Op, VALUE_LEN_MAX_BYTES};
use zero_kv::protocol::reader::{self, Answer, AnswerReader};

use crate::client::{info, pair, row};
use crate::errors::of_client;
use crate::key::{key_of, prefix_bytes};
use crate::many::Keys;

/// The keys between two.
#[derive(Clone)]
pub(crate) struct Span {
    start: End<OwnedKey>,
    end: End<OwnedKey>,
}

impl Span {
    /// From the first key on, and before the second.
    pub(crate) fn between(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Span> {
        let key = |key: Option<&Bound<'_, PyAny>>| key.map(|key| key_of(key).map(OwnedKey::from)).transpose();
        Ok(Span {
            start: key(start)?.map_or(End::Unbounded, End::Included),
            end: key(end)?.map_or(End::Unbounded, End::Excluded),
        })
    }

    pub(crate) fn prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Span> {
        let range = prefix_range(prefix_bytes(prefix)?).map_err(|error| of_client(&error))?;
        Ok(Span::of_rest(&range))
    }

    /// What a page leaves.
    pub(crate) fn of_rest(range: &KeyRange) -> Span {
        let (start, end) = range.bounds();
        Span { start: start.map(OwnedKey::from), end: end.map(OwnedKey::from) }
    }

    pub(crate) fn bounds(&self) -> (End<Key<'_>>, End<Key<'_>>) {
        (self.start.as_ref().map(OwnedKey::as_key), self.end.as_ref().map(OwnedKey::as_key))
    }
}

/// One or many questions, whose answers are one object.
#[pyclass(frozen, name = "Question", module = "zero_kv._native")]
pub(crate) struct Asked {
    parts: Vec<Part>,
    is_many: bool,
}

/// A question that owns its keys.
enum Part {
    Get(OwnedKey),
    Exists(OwnedKey),
    Floor(OwnedKey),
    Ceiling(OwnedKey),
    Outermost { last: bool },
    Page(Span),
    Count(Span),
    Info,
    Ping,
}

/// Does the same with a question of any type.
macro_rules! with_question {
    ($part:expr, $question:ident => $done:expr) => {
        match $part {
            Part::Get(key) => Get::new(key.as_key()).map(|$question| $done),
            Part::Exists(key) => Exists::new(key.as_key()).map(|$question| $done),
            Part::Floor(key) => Floor::new(key.as_key()).map(|$question| $done),
            Part::Ceiling(key) => Ceiling::new(key.as_key()).map(|$question| $done),
            Part::Outermost { last } => Ok(Outermost { last: *last }).map(|$question| $done),
            Part::Page(span) => PageOf::first(span.bounds(), 0).map(|$question| $done),
            Part::Count(span) => Count::new(span.bounds()).map(|$question| $done),
            Part::Info => Ok(AboutServer).map(|$question| $done),
            Part::Ping => Ok(Ping).map(|$question| $done),
        }
    };
}

impl Part {
    fn op(&self) -> Result<Op, ClientError> {
        with_question!(self, question => question.op())
    }

    fn push(&self, request: &mut Vec<u8>) -> Result<(), ClientError> {
        with_question!(self, question => question.push(request))
    }

    /// The answer as Python has it.
    fn read(&self, py: Python<'_>, answer: Answer<'_>) -> Result<PyResult<Py<PyAny>>, Unanswered> {
        const CHECKED: &str = "a question that was pushed";
        Ok(match self {
            Part::Get(key) => {
                let value = Get::new(key.as_key()).expect(CHECKED).read_borrowed(answer)?;
                Ok(value.map_or_else(|| py.None(), |value| PyBytes::new(py, value).into_any().unbind()))
            }
            Part::Exists(key) => {
                let is_there = Exists::new(key.as_key()).expect(CHECKED).read(answer)?;
                Ok(PyBool::new(py, is_there).to_owned().into_any().unbind())
            }
            Part::Floor(key) => row_object(py, Floor::new(key.as_key()).expect(CHECKED).read(answer)?),
            Part::Ceiling(key) => row_object(py, Ceiling::new(key.as_key()).expect(CHECKED).read(answer)?),
            Part::Outermost { last } => row_object(py, Outermost { last: *last }.read(answer)?),
            Part::Page(span) => {
                let page = PageOf::first(span.bounds(), 0).expect(CHECKED).read(answer)?;
                let rest = page.rest().map(|rest| Asked::one(Part::Page(Span::of_rest(rest))));
                let rows = page.iter().map(|(key, value)| pair(py, key, value)).collect::<PyResult<Vec<_>>>();
                rows.and_then(|rows| (rows, rest).into_pyobject(py)).map(|page| page.into_any().unbind())
            }
            Part::Count(span) => {
                let count = Count::new(span.bounds()).expect(CHECKED).read(answer)?;
                Ok(count.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any().unbind())
            }
            Part::Info => info(py, &AboutServer.read(answer)?).map(|info| info.into_any().unbind()),
            Part::Ping => Ping.read(answer).map(|()| Ok(py.None()))?,
        })
    }
}

fn row_object(py: Python<'_>, found: Option<client::Row>) -> PyResult<Py<PyAny>> {
    Ok(row(py, found)?.into_pyobject(py)?.into_any().unbind())
}

impl Asked {
    fn one(part: Part) -> Asked {
        Asked { parts: vec![part], is_many: false }
    }

    fn of_key(part: fn(OwnedKey) -> Part, key: &Bound<'_, PyAny>) -> PyResult<Asked> {
        let asked = Asked::one(part(key_of(key)?.into()));
        // Before it is sent it is known whether it can be.
        asked.parts[0].op().map_err(|error| of_client(&error))?;
        Ok(asked)
    }
}

#[pymethods]
impl Asked {
    #[staticmethod]
    fn get(key: &Bound<'_, PyAny>) -> PyResult<Asked> {
        Asked::of_key(Part::Get, key)
    }

    #[staticmethod]
    fn exists(key: &Bound<'_, PyAny>) -> PyResult<Asked> {
        Asked::of_key(Part::Exists, key)
    }

    #[staticmethod]
    fn floor(key: &Bound<'_, PyAny>) -> PyResult<Asked> {
        Asked::of_key(Part::Floor, key)
    }

    #[staticmethod]
    fn ceiling(key: &Bound<'_, PyAny>) -> PyResult<Asked> {
        Asked::of_key(Part::Ceiling, key)
    }

    #[staticmethod]
    fn get_many(keys: &Bound<'_, PyAny>) -> PyResult<Asked> {
        let keys = Keys::of(keys)?;
        let parts: Vec<Part> = keys.owned()?.into_iter().map(Part::Get).collect();
        for part in &parts {
            part.op().map_err(|error| of_client(&error))?;
        }
        Ok(Asked { parts, is_many: true })
    }

    #[staticmethod]
    fn outermost(last: bool) -> Asked {
        Asked::one(Part::Outermost { last })
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn page(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Asked> {
        Asked::of_span(Part::Page, Span::between(start, end)?)
    }

    #[staticmethod]
    fn prefix(prefix: &Bound<'_, PyAny>) -> PyResult<Asked> {
        Asked::of_span(Part::Page, Span::prefix(prefix)?)
    }

    #[staticmethod]
    #[pyo3(signature = (start, end))]
    fn count(start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Asked> {
        Asked::of_span(Part::Count, Span::between(start, end)?)
    }

    #[staticmethod]
    fn info() -> Asked {
        Asked::one(Part::Info)
    }

    #[staticmethod]
    fn ping() -> Asked {
        Asked::one(Part::Ping)
    }
}

impl Asked {
    fn of_span(part: fn(Span) -> Part, span: Span) -> PyResult<Asked> {
        let asked = Asked::one(part(span));
        asked.parts[0].op().map_err(|error| of_client(&error))?;
        Ok(asked)
    }
}

/// A question that was put, and who waits for its answer.
struct Waiting {
    asked: Py<Asked>,
    future: Py<PyAny>,
    /// Answers of many that have come.
    answers: Vec<Py<PyAny>>,
    /// What went wrong with one of many.
    failed: Option<PyErr>,
    answered: usize,
}

/// A connection without its socket.
#[pyclass(module = "zero_kv._native")]
pub(crate) struct Wire {
    path: PathBuf,
    requests: Vec<u8>,
    waiting: VecDeque<Waiting>,
    reader: AnswerReader,
    has_heard: bool,
}

#[pymethods]
impl Wire {
    #[new]
    fn new(path: PathBuf) -> Wire {
        let reader = AnswerReader::new(VALUE_LEN_MAX_BYTES);
        Wire { path, requests: Vec::new(), waiting: VecDeque::new(), reader, has_heard: false }
    }

    /// Puts a question, whose answer the future is to have.
    fn ask(&mut self, py: Python<'_>, asked: Py<Asked>, future: Bound<'_, PyAny>) -> PyResult<()> {
        let parts = &asked.get().parts;
        if parts.is_empty() {
            future.call_method1("set_result", (PyList::empty(py),))?;
            return Ok(());
        }
        let begin = self.requests.len();
        if let Some(error) = parts.iter().find_map(|part| part.push(&mut self.requests).err()) {
            self.requests.truncate(begin);
            return Err(of_client(&error));
        }
        let waiting = Waiting { asked, future: future.unbind(), answers: Vec::new(), failed: None, answered: 0 };
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// The bytes that are to be sent, once.
    fn take_requests<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &mem::take(&mut self.requests))
    }

    /// Takes bytes that arrived, and gives the answers that are whole to those who wait.
    fn received(&mut self, py: Python<'_>, mut bytes: &[u8]) -> PyResult<()> {
        self.has_heard |= !bytes.is_empty();
        while !bytes.is_empty() {
            let room = self.reader.room();
            let len_bytes = room.len().min(bytes.len());
            room[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
            self.reader.received(len_bytes);
            bytes = &bytes[len_bytes..];
            self.answer(py)?;
        }
        Ok(())
    }

    /// How many wait.
    #[getter]
    fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Tells all who wait that there will be no answer.
    fn fail(&mut self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        for waiting in mem::take(&mut self.waiting) {
            waiting.end(py, "set_exception", error.clone())?;
        }
        Ok(())
    }

    /// What it means that the peer has closed.
    fn closed<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::exceptions::PyBaseException> {
        let path = self.path.clone();
        let error = match self.has_heard {
            false => ClientError::Refused { path, reason: Refusal::Closed },
            true => {
                let reader::Part { part, arrived_bytes, expected_bytes } = self.reader.part();
                ClientError::Closed { path, part, arrived_bytes, expected_bytes }
            }
        };
        of_client(&error).into_value(py).into_bound(py)
    }
}

impl Wire {
    fn answer(&mut self, py: Python<'_>) -> PyResult<()> {
        while let Some(waiting) = self.waiting.front_mut() {
            let asked = waiting.asked.clone_ref(py);
            let parts = &asked.get().parts;
            let part = &parts[waiting.answered];
            let violation = |error| of_client(&ClientError::Protocol { path: self.path.clone(), error });
            let op = part.op().map_err(|error| of_client(&error))?;
            let Some(answer) = self.reader.next(op).map_err(violation)? else { return Ok(()) };
            match part.read(py, answer) {
                Ok(answer) => waiting.answers.push(answer?),
                Err(Unanswered::Error { asked, hint }) => {
                    let error = ClientError::Server { path: self.path.clone(), asked, hint };
                    waiting.failed.get_or_insert_with(|| of_client(&error));
                }
                Err(Unanswered::Violation(error)) => return Err(violation(error)),
                Err(_) => return Err(PyRuntimeError::new_err("an answer of an unknown kind")),
            }
            waiting.answered += 1;
            if waiting.answered < parts.len() {
                continue;
            }
            let Some(mut done) = self.waiting.pop_front() else { return Ok(()) };
            match (done.failed.take(), asked.get().is_many) {
                (Some(error), _) => done.end(py, "set_exception", error.into_value(py).into_bound(py).into_any())?,
                (None, true) => {
                    let answers = PyList::new(py, mem::take(&mut done.answers))?;
                    done.end(py, "set_result", answers.into_any())?;
                }
                (None, false) => {
                    let answer = done.answers.pop().unwrap_or_else(|| py.None());
                    done.end(py, "set_result", answer.into_bound(py))?;
                }
            }
        }
        self.reader.finish().map_err(|error| of_client(&ClientError::Protocol { path: self.path.clone(), error }))
    }
}

impl Waiting {
    /// Ends the waiting, unless whoever waited has gone.
    fn end(&self, py: Python<'_>, how: &str, with: Bound<'_, PyAny>) -> PyResult<()> {
        let future = self.future.bind(py);
        if !future.call_method0("done")?.is_truthy()? {
            future.call_method1(how, (with,))?;
        }
        Ok(())
    }
}
