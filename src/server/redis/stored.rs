//! Replies with values from the file.
//!
//! In: stored native responses, and values. Out: bulk strings. Short values are copied, and long values are borrowed.

use super::Out;
use crate::format::record::value_of_response;
use crate::protocol::resp::{Reply, Version};
use crate::server::responses::{Responses, copy_halves};

/// The maximum length of a short value. A short value is copied as one word or as two halves, which may overlap.
const SHORT_MAX_BYTES: usize = 64;
/// The maximum length of a short value as a bulk string.
const SHORT_ROOM_BYTES: usize = b"$64\r\n".len() + SHORT_MAX_BYTES + b"\r\n".len();
const WORD_BYTES: usize = size_of::<u64>();

/// The bulk string headers of short values, padded to the same length. The index is the length of the value.
static HEADS: [[u8; WORD_BYTES]; SHORT_MAX_BYTES + 1] = {
    let mut heads = [*b"$0\r\n\0\0\0\0"; SHORT_MAX_BYTES + 1];
    let mut len = 1;
    while len <= SHORT_MAX_BYTES {
        let (tens, ones) = (b'0' + (len / 10) as u8, b'0' + (len % 10) as u8);
        heads[len] = match len < 10 {
            true => [b'$', ones, b'\r', b'\n', 0, 0, 0, 0],
            false => [b'$', tens, ones, b'\r', b'\n', 0, 0, 0],
        };
        len += 1;
    }
    heads
};

/// Replies with the value of a stored native response.
#[inline(always)]
pub(super) fn push_answer(responses: &mut Responses, answer: &[u8], offset_bytes: u64) {
    let (value, value_offset_bytes) = value_of_response(answer, offset_bytes);
    if let Some(head) = HEADS.get(value.len())
        && let Some(to) = responses.room().first_chunk_mut::<SHORT_ROOM_BYTES>()
    {
        let head_len_bytes = if value.len() < 10 { b"$1\r\n".len() } else { b"$10\r\n".len() };
        to[..WORD_BYTES].copy_from_slice(head);
        copy_short(value, answer, &mut to[head_len_bytes..]);
        let end = head_len_bytes + value.len();
        to[end..end + 2].copy_from_slice(b"\r\n");
        responses.advance(end + 2);
        return;
    }
    push_value(&mut Reply::new(responses, Version::default()), value, value_offset_bytes);
}

/// Replies with a value that is stored at an offset of the records section, without a response header.
#[inline(always)]
pub(super) fn push_bare_value(responses: &mut Responses, value: &[u8], offset_bytes: u64) {
    match value.len() <= SHORT_MAX_BYTES {
        true => push_short_bulk(responses, value),
        false => push_value(&mut Reply::new(responses, Version::default()), value, offset_bytes),
    }
}

/// Replies with a value, which is copied. There must be room for it.
#[inline(always)]
pub(super) fn push_short_bulk(responses: &mut Responses, value: &[u8]) {
    if let Some(head) = HEADS.get(value.len())
        && let Some(to) = responses.room().first_chunk_mut::<SHORT_ROOM_BYTES>()
    {
        let head_len_bytes = if value.len() < 10 { b"$1\r\n".len() } else { b"$10\r\n".len() };
        to[..WORD_BYTES].copy_from_slice(head);
        let end = head_len_bytes + value.len();
        to[head_len_bytes..end].copy_from_slice(value);
        to[end..end + 2].copy_from_slice(b"\r\n");
        responses.advance(end + 2);
        return;
    }
    Reply::new(responses, Version::default()).bulk(value);
}

/// Replies with a value that is stored at an offset of the records section.
#[cold]
pub(super) fn push_value(out: &mut Out<'_>, value: &[u8], offset_bytes: u64) {
    out.bulk_header(value.len());
    out.sink().push_stored(value, offset_bytes);
    out.bulk_end();
}

#[inline(always)]
pub(super) fn push_null(responses: &mut Responses, version: Version) {
    match version {
        Version::Resp2 => responses.push(b"$-1\r\n"),
        Version::Resp3 => responses.push(b"_\r\n"),
    }
}

/// Copies `value`, which has at most [`SHORT_MAX_BYTES`] bytes, to `to`. `answer` is the stored response that ends with
/// the value. If the value has at most one word, copies it out of the last word of `answer`.
#[inline(always)]
fn copy_short(value: &[u8], answer: &[u8], to: &mut [u8]) {
    if value.len() <= WORD_BYTES
        && let Some(last) = answer.last_chunk()
        && let Some(to) = to.first_chunk_mut()
    {
        // The last word of the response contains the value. If the value is shorter than a word, this word begins with
        // the end of the header, which is shifted out. The shift is split into two, because a shift by 64 bits is not
        // defined.
        let last = u64::from_le_bytes(*last);
        let beyond_bits = 8 * (WORD_BYTES - value.len());
        *to = (last >> (beyond_bits / 2) >> (beyond_bits - beyond_bits / 2)).to_le_bytes();
        return;
    }
    if !(copy_halves::<8>(value, to) || copy_halves::<16>(value, to) || copy_halves::<32>(value, to)) {
        to[..value.len()].copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the stored native response with this value.
    fn answer(value: &[u8]) -> Vec<u8> {
        [&(value.len() as u64).to_be_bytes(), value].concat()
    }

    #[test]
    fn values_of_every_length_become_bulk_strings() {
        for len_bytes in (0..200).chain([999, 1000, 4095, 4096]) {
            let value: Vec<u8> = (0..len_bytes).map(|at| (at * 7 + len_bytes) as u8).collect();
            let mut responses = Responses::new();
            responses.push(b"before");
            for _ in 0..3 {
                push_answer(&mut responses, &answer(&value), 0);
            }
            let reply = [format!("${len_bytes}\r\n").as_bytes(), &value, b"\r\n"].concat();
            let expected = [&b"before"[..], &reply, &reply, &reply].concat();
            assert!(responses.copied() == expected, "{len_bytes}");
        }
    }

    #[test]
    fn a_short_value_is_written_even_if_little_room_is_left() {
        for left in 0..100 {
            let mut responses = Responses::new();
            let before = vec![b'x'; responses.room().len() - left];
            responses.push(&before);
            push_answer(&mut responses, &answer(b"abc"), 0);
            let written = &responses.copied()[before.len()..];
            assert_eq!(written, b"$3\r\nabc\r\n", "{left}");
        }
    }
}
