//! Splits the bytes of a connection into responses.
//!
//! In: bytes as they arrive, split at any point, and the op of each response's request. Out: whole responses, borrowed
//! from the buffer, or a protocol violation. The reader does no I/O, so any event loop can use it.

use zerocopy::FromBytes;

use super::native::{
    NOTICE_LEN_BYTES, Op, PAGE_MAX_BYTES, RESPONSE_HEADER_LEN_BYTES, ResponseHeader, StateId, Status,
    VALUE_LEN_MAX_BYTES,
};
use super::response::{CheckedHeader, Violation};

/// Initial length of the buffer: room for a few thousand short responses.
const BUFFER_LEN_BYTES: usize = 64 << 10;
/// Maximum length of a buffer that is kept for later responses. A longer buffer is released after all its bytes are
/// read.
const BUFFER_KEPT_MAX_BYTES: usize = 1 << 20;
/// Maximum number of bytes that a page with one row contains in addition to the row's value.
const PAGE_OVERHEAD_BYTES: usize = PAGE_MAX_BYTES - VALUE_LEN_MAX_BYTES;

/// A whole response, borrowed from the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// The request succeeded with this value. [`Op::value_kind`] returns the kind of the value for each op.
    Found(&'a [u8]),
    /// The table does not have the row, or has no schema; or the server is not a node of a cluster.
    NotFound,
    /// The server could not process the request.
    Error,
    /// The connection must log in first, or its login has failed.
    Unauthenticated,
    /// The connection's user may not send the request, or may not use the requested keys.
    NotPermitted,
    /// The table's schema is not the schema of the selected columns.
    SchemaChanged,
    /// The table does not have the row, and another node of the cluster serves its slot.
    Moved,
    /// The table's keys are not of the type that the client has requested last.
    KeyTypeChanged,
}

/// The progress of a response that has not arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialResponse {
    /// Whether the header or the value is incomplete.
    pub part: ResponsePart,
    /// How many bytes of the incomplete header or value have arrived.
    pub arrived_bytes: usize,
    /// Total length of the incomplete header or value.
    pub expected_bytes: usize,
}

/// The header or the value of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePart {
    /// The header, which comes first.
    Header,
    /// The value that the header announced.
    Value,
}

impl std::fmt::Display for ResponsePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ResponsePart::Header => "header",
            ResponsePart::Value => "value",
        })
    }
}

/// A buffer that splits received bytes into responses.
///
/// The buffer starts at 64 KiB. It grows only when unread bytes fill more than half of it, to at most four times the
/// length of the unread bytes. A header that announces a long value does not by itself make the buffer grow.
///
/// # Example
/// ```
/// use zero_kv::protocol::native::Op;
/// use zero_kv::protocol::reader::{Response, ResponseReader};
///
/// let mut reader = ResponseReader::new(1 << 20);
/// for bytes in [&b"\0\0\0\0\0\0"[..], b"\0\x05sev", b"en"] {
///     assert_eq!(reader.next(Op::Get)?, None);
///     reader.spare()[..bytes.len()].copy_from_slice(bytes);
///     reader.received(bytes.len());
/// }
/// assert_eq!(reader.next(Op::Get)?, Some(Response::Found(b"seven")));
/// # Ok::<(), zero_kv::protocol::response::Violation>(())
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    /// The bytes from `start` to `end` have arrived and are unread.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Length of the response at `start`, or only of its header while the header is incomplete.
    response_len_bytes: usize,
    value_len_max_bytes: usize,
    /// Whether notices may arrive between responses.
    expects_notices: bool,
    /// The last state that [`ResponseReader::take_state`] has not returned.
    state: Option<StateId>,
}

impl ResponseReader {
    /// Creates a reader for a new connection. The reader rejects values longer than the smaller of
    /// `value_len_max_bytes` and [`VALUE_LEN_MAX_BYTES`].
    pub fn new(value_len_max_bytes: usize) -> Self {
        ResponseReader {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            response_len_bytes: 0,
            value_len_max_bytes: value_len_max_bytes.min(VALUE_LEN_MAX_BYTES),
            expects_notices: false,
            state: None,
        }
    }

    /// Accepts notices between responses from now on. A client calls this method before it sends [`Op::Track`].
    pub fn expect_notices(&mut self) {
        self.expects_notices = true;
    }

    /// Returns the state that the last response to [`Op::Track`], or a notice after it, names, if it has been read since the
    /// last call. [`ResponseReader::next`] reads the notices before a response, and [`ResponseReader::finish`] those after
    /// the last response.
    #[inline]
    pub fn take_state(&mut self) -> Option<StateId> {
        self.state.take()
    }

    /// Returns the unused end of the buffer, to receive bytes into. The result is never empty after
    /// [`ResponseReader::next`] has returned `None`.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.reset();
        }
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER_LEN_BYTES, 0);
        }
        if self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // The buffer does not grow beyond the length of the response, because more space would be unused.
            let len_bytes = (2 * self.buffer.len()).min(self.response_len_bytes);
            if self.end > self.buffer.len() / 2 && len_bytes > self.buffer.len() {
                self.buffer.reserve_exact(len_bytes - self.buffer.len());
                self.buffer.resize(len_bytes, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Marks the first `len_bytes` of [`ResponseReader::spare`] as received.
    ///
    /// # Panics
    /// If `len_bytes` exceeds the length of [`ResponseReader::spare`].
    pub fn received(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.buffer.len() - self.end, "more bytes were received than the buffer has room for");
        self.end += len_bytes;
    }

    /// Reads the notices before the next response. Returns what [`ResponseReader::take_state`] returns then.
    ///
    /// # Errors
    /// [`Violation`], as [`ResponseReader::next`].
    pub fn next_state(&mut self) -> Result<Option<StateId>, Violation> {
        if self.expects_notices {
            self.read_notices()?;
        }
        Ok(self.take_state())
    }

    /// Returns the next response, or `None` if more bytes are needed. `op` must be the op of the request that the
    /// response belongs to.
    ///
    /// # Errors
    /// [`Violation`]. After an error the connection is unusable, because the start of the next response is unknown.
    #[inline]
    pub fn next(&mut self, op: Op) -> Result<Option<Response<'_>>, Violation> {
        if self.expects_notices && !self.read_notices()? {
            return Ok(None);
        }
        let bytes = &self.buffer[self.start..self.end];
        let Ok((header, rest)) = ResponseHeader::ref_from_prefix(bytes) else {
            self.response_len_bytes = RESPONSE_HEADER_LEN_BYTES;
            return Ok(None);
        };
        let response = match CheckedHeader::new(op, header)? {
            CheckedHeader::NotFound => Response::NotFound,
            CheckedHeader::Error => Response::Error,
            CheckedHeader::Unauthenticated => Response::Unauthenticated,
            CheckedHeader::NotPermitted => Response::NotPermitted,
            CheckedHeader::SchemaChanged => Response::SchemaChanged,
            CheckedHeader::Moved => Response::Moved,
            CheckedHeader::KeyTypeChanged => Response::KeyTypeChanged,
            CheckedHeader::Found { value_len_bytes } => {
                self.check_len(op, value_len_bytes)?;
                let Some(value) = rest.get(..value_len_bytes) else {
                    self.response_len_bytes = RESPONSE_HEADER_LEN_BYTES + value_len_bytes;
                    return Ok(None);
                };
                if op == Op::Track {
                    self.state = value.try_into().ok();
                }
                self.start += value_len_bytes;
                Response::Found(value)
            }
        };
        self.start += RESPONSE_HEADER_LEN_BYTES;
        Ok(Some(response))
    }

    /// Reads notices. Returns false if the unread bytes are a header of a notice without all of its state.
    fn read_notices(&mut self) -> Result<bool, Violation> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let Ok((header, rest)) = ResponseHeader::ref_from_prefix(bytes) else { return Ok(true) };
            if header.status_code() != Status::Notice as u32 {
                return Ok(true);
            }
            let len_bytes = header.value_len_bytes();
            if len_bytes != size_of::<StateId>() {
                return Err(Violation::NoticeLen { len_bytes });
            }
            let Some(state) = rest.first_chunk() else {
                self.response_len_bytes = NOTICE_LEN_BYTES;
                return Ok(false);
            };
            self.state = Some(*state);
            self.start += NOTICE_LEN_BYTES;
        }
    }

    /// Checks that no unread bytes are left after the last expected response, apart from notices, and releases a buffer that
    /// grew for a long response.
    ///
    /// # Errors
    /// [`Violation::UnexpectedBytes`] if unread bytes are left.
    pub fn finish(&mut self) -> Result<(), Violation> {
        // The rest of a header may be on its way.
        if self.expects_notices
            && (!self.read_notices()? || (1..RESPONSE_HEADER_LEN_BYTES).contains(&(self.end - self.start)))
        {
            return Ok(());
        }
        match self.end - self.start {
            0 => self.reset(),
            len_bytes => return Err(Violation::UnexpectedBytes { len_bytes }),
        }
        Ok(())
    }

    /// Returns the progress of the response for which [`ResponseReader::next`] returned `None`.
    pub fn partial(&self) -> PartialResponse {
        let arrived_bytes = self.end - self.start;
        match arrived_bytes.checked_sub(RESPONSE_HEADER_LEN_BYTES) {
            None => {
                PartialResponse { part: ResponsePart::Header, arrived_bytes, expected_bytes: RESPONSE_HEADER_LEN_BYTES }
            }
            Some(arrived_bytes) => PartialResponse {
                part: ResponsePart::Value,
                arrived_bytes,
                expected_bytes: self.response_len_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES),
            },
        }
    }

    /// Sets `start` and `end` to 0, and releases a buffer that is longer than [`BUFFER_KEPT_MAX_BYTES`]. The buffer
    /// must have no unread bytes.
    fn reset(&mut self) {
        (self.start, self.end) = (0, 0);
        if self.buffer.len() > BUFFER_KEPT_MAX_BYTES {
            self.buffer = Vec::new();
        }
    }

    #[inline]
    fn check_len(&self, op: Op, len_bytes: usize) -> Result<(), Violation> {
        let max_bytes = match op {
            Op::Get | Op::GetColumns => self.value_len_max_bytes,
            _ => self.value_len_max_bytes + PAGE_OVERHEAD_BYTES,
        };
        match len_bytes <= max_bytes {
            true => Ok(()),
            false => Err(Violation::ValueLen { len_bytes, max_bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(status_code: u32, len_bytes: u32) -> [u8; 8] {
        let mut header = [0; 8];
        header[..4].copy_from_slice(&status_code.to_be_bytes());
        header[4..].copy_from_slice(&len_bytes.to_be_bytes());
        header
    }

    fn receive(reader: &mut ResponseReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = reader.spare();
            let len_bytes = bytes.len().min(spare.len());
            spare[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
            reader.received(len_bytes);
            bytes = &bytes[len_bytes..];
        }
    }

    /// Returns encoded responses, and the value of each. Some values are longer than the initial buffer.
    fn responses() -> (Vec<u8>, Vec<Option<Vec<u8>>>) {
        let lens = [0, 1, 26, 4096, BUFFER_LEN_BYTES - 9, BUFFER_LEN_BYTES - 8, BUFFER_LEN_BYTES + 1, 3 << 20, 5, 0];
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for (number, len_bytes) in lens.into_iter().enumerate() {
            let value: Vec<u8> = (0..len_bytes).map(|at: usize| (at + number) as u8).collect();
            bytes.extend_from_slice(&header(0, len_bytes as u32));
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(&header(1, 0));
            values.extend([Some(value), None]);
        }
        (bytes, values)
    }

    #[test]
    fn responses_do_not_depend_on_how_their_bytes_are_split() {
        let (bytes, expected_values) = responses();
        for step_bytes in [1, 7, 8, 9, 1000, 65_536, 1 << 20, usize::MAX] {
            let mut reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
            let (mut expected, mut rest) = (expected_values.iter(), &bytes[..]);
            while !rest.is_empty() {
                let spare = reader.spare();
                let len_bytes = step_bytes.min(rest.len()).min(spare.len());
                spare[..len_bytes].copy_from_slice(&rest[..len_bytes]);
                reader.received(len_bytes);
                rest = &rest[len_bytes..];
                while let Some(response) = reader.next(Op::Get).unwrap() {
                    let value = match response {
                        Response::Found(value) => Some(value),
                        _ => None,
                    };
                    assert!(value == expected.next().unwrap().as_deref(), "in steps of {step_bytes}");
                }
            }
            assert_eq!(expected.count(), 0);
            assert_eq!(reader.finish(), Ok(()));
            assert!(reader.buffer.len() <= BUFFER_KEPT_MAX_BYTES, "the memory of a long response is released");
        }
    }

    #[test]
    fn the_buffer_grows_with_the_received_bytes_and_not_with_the_announced_length() {
        let mut reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
        receive(&mut reader, &header(0, VALUE_LEN_MAX_BYTES as u32));
        let mut arrived_bytes = 8;
        while arrived_bytes < 4 << 20 {
            assert_eq!(reader.next(Op::Get), Ok(None));
            assert!(!reader.spare().is_empty());
            assert!(reader.buffer.capacity() <= (4 * arrived_bytes).max(BUFFER_LEN_BYTES));
            receive(&mut reader, &[7; 5000]);
            arrived_bytes += 5000;
        }
        let part = PartialResponse {
            part: ResponsePart::Value,
            arrived_bytes: arrived_bytes - 8,
            expected_bytes: VALUE_LEN_MAX_BYTES,
        };
        assert_eq!(reader.next(Op::Get), Ok(None));
        assert_eq!(reader.partial(), part);
    }

    #[test]
    fn a_header_that_announces_a_too_long_value_is_rejected() {
        let next_is_none = |max_bytes, op, len_bytes: usize| {
            let mut reader = ResponseReader::new(max_bytes);
            receive(&mut reader, &header(0, len_bytes as u32));
            reader.next(op).map(|response| response.is_none())
        };
        assert_eq!(next_is_none(100, Op::Get, 100), Ok(true));
        assert_eq!(next_is_none(100, Op::Get, 101), Err(Violation::ValueLen { len_bytes: 101, max_bytes: 100 }));
        // A page may be longer than a value, because it also has keys and may have many short rows.
        assert_eq!(next_is_none(0, Op::Range, 65_544), Ok(true));
        assert_eq!(next_is_none(100, Op::Floor, 100 + PAGE_OVERHEAD_BYTES), Ok(true));
        let max_bytes = 100 + PAGE_OVERHEAD_BYTES;
        let too_long = Violation::ValueLen { len_bytes: max_bytes + 1, max_bytes };
        assert_eq!(next_is_none(100, Op::Floor, max_bytes + 1), Err(too_long));
        assert_eq!(next_is_none(usize::MAX, Op::Get, VALUE_LEN_MAX_BYTES), Ok(true));
        assert!(next_is_none(usize::MAX, Op::Get, VALUE_LEN_MAX_BYTES + 1).is_err());
    }

    #[test]
    fn notices_between_responses_are_read_wherever_the_bytes_are_split() {
        let notice = |state: u8| [&header(8, 16)[..], &[state; 16]].concat();
        let value = [&header(0, 1)[..], b"v"].concat();
        let state = [&header(0, 16)[..], &[1; 16]].concat();
        let bytes =
            [notice(9), state, value.clone(), notice(2), notice(3), value, header(1, 0).to_vec(), notice(4)].concat();
        let ops = [Op::Track, Op::Get, Op::Get, Op::Get];
        let states = [1, 1, 3, 3];
        for split in 0..=bytes.len() {
            let mut reader = ResponseReader::new(100);
            reader.expect_notices();
            let (mut known, mut received) = (None, 0);
            for part in [&bytes[..split], &bytes[split..]] {
                receive(&mut reader, part);
                while let Some(op) = ops.get(received) {
                    if reader.next(*op).unwrap().is_none() {
                        break;
                    }
                    known = reader.take_state().or(known);
                    assert_eq!(known, Some([states[received]; 16]), "response {received}, split at {split}");
                    received += 1;
                }
                if received == ops.len() {
                    assert_eq!(reader.finish(), Ok(()));
                    known = reader.take_state().or(known);
                }
            }
            assert_eq!((received, known), (ops.len(), Some([4; 16])), "split at {split}");
            assert_eq!(reader.next_state(), Ok(None));
            receive(&mut reader, &header(1, 0));
            assert!(reader.finish().is_err(), "a response without a request");
        }
    }

    #[test]
    fn an_unexpected_or_malformed_notice_is_a_violation() {
        let mut reader = ResponseReader::new(100);
        receive(&mut reader, &header(8, 16));
        let (op, status) = (Op::Get, Status::Notice);
        assert_eq!(reader.next(op), Err(Violation::UnexpectedValue { op, status, len_bytes: 16 }));
        for len_bytes in [0, 15, 17, u32::MAX] {
            let mut reader = ResponseReader::new(100);
            reader.expect_notices();
            receive(&mut reader, &header(8, len_bytes));
            assert_eq!(reader.next(Op::Get), Err(Violation::NoticeLen { len_bytes: len_bytes as usize }));
        }
    }

    #[test]
    fn bytes_after_the_last_response_are_a_violation() {
        let mut reader = ResponseReader::new(100);
        receive(&mut reader, &[&header(1, 0)[..], b"abc"].concat());
        assert_eq!(reader.next(Op::Exists), Ok(Some(Response::NotFound)));
        assert_eq!(reader.finish(), Err(Violation::UnexpectedBytes { len_bytes: 3 }));
    }
}
