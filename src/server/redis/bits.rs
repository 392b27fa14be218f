//! Commands that read single bits and integers from a string: GETBIT and BITFIELD_RO. Bits after the end of a string
//! read as zeros.

use super::lookup::Lookup;
use super::strings::{NOT_AN_INTEGER, SYNTAX, next};
use super::{Counted, Out};
use crate::protocol::resp::{Args, integer};

/// The maximum length of a string in Redis, by default.
const STRING_LEN_MAX_BYTES: u64 = 512 << 20;

const INVALID_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const INVALID_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
    is.";

/// Parses the offset of a bit. If the text begins with `#` and `width_bits` is given, the offset is the number after
/// the `#`, multiplied by `width_bits`.
fn offset(text: &[u8], width_bits: Option<u64>) -> Result<u64, String> {
    let (digits, unit) = match (text, width_bits) {
        ([b'#', digits @ ..], Some(width_bits)) => (digits, width_bits),
        _ => (text, 1),
    };
    let number = integer(digits).and_then(|number| u64::try_from(number).ok()?.checked_mul(unit));
    number.filter(|bit| bit / 8 < STRING_LEN_MAX_BYTES).ok_or_else(|| INVALID_OFFSET.to_owned())
}

fn bit(value: &[u8], at: u64) -> u64 {
    let byte = value.get((at / 8) as usize).copied().unwrap_or_default();
    u64::from(byte >> (7 - at % 8) & 1)
}

pub(super) fn get_bit(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let (text, at) = (next(&mut args), offset(next(&mut args), None)?);
    let (value, _) = lookup.find_string(text, counted)?.unwrap_or_default();
    out.integer(bit(value, at) as i64);
    Ok(())
}

/// The type and the position of an integer in a string.
struct Field {
    is_signed: bool,
    width_bits: u64,
    offset_bits: u64,
}

impl Field {
    fn parse(kind: &[u8], at: &[u8]) -> Result<Self, String> {
        let (is_signed, width, max_bits) = match kind {
            [b'i', width @ ..] => (true, width, 64),
            [b'u', width @ ..] => (false, width, 63),
            _ => return Err(INVALID_TYPE.to_owned()),
        };
        let width_bits = integer(width).filter(|bits| (1..=max_bits).contains(bits)).ok_or(INVALID_TYPE)? as u64;
        Ok(Field { is_signed, width_bits, offset_bits: offset(at, Some(width_bits))? })
    }

    fn read(&self, value: &[u8]) -> i64 {
        let bits = (0..self.width_bits).fold(0, |bits, at| bits << 1 | bit(value, self.offset_bits + at));
        let unused_bits = 64 - self.width_bits;
        if self.is_signed { (bits << unused_bits) as i64 >> unused_bits } else { bits as i64 }
    }
}

/// Replies with the requested integers of a string.
pub(super) fn bit_field(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let (text, mut fields, mut writes) = (next(&mut args), Vec::new(), false);
    while let Some(operation) = args.next() {
        let is = |name: &[u8]| operation.eq_ignore_ascii_case(name);
        if is(b"OVERFLOW") {
            let kind = args.next().ok_or(SYNTAX)?;
            if ![&b"WRAP"[..], b"SAT", b"FAIL"].iter().any(|known| kind.eq_ignore_ascii_case(known)) {
                return Err("ERR Invalid OVERFLOW type specified".to_owned());
            }
            continue;
        }
        let is_write = is(b"SET") || is(b"INCRBY");
        let arg_count = if is_write { 3 } else { 2 };
        if !is_write && !is(b"GET") || args.clone().take(arg_count).count() < arg_count {
            return Err(SYNTAX.to_owned());
        }
        fields.push(Field::parse(next(&mut args), next(&mut args))?);
        if is_write {
            integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?;
            writes = true;
        }
    }
    if writes {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".to_owned());
    }
    let (value, _) = lookup.find_string(text, counted)?.unwrap_or_default();
    out.sink().steps().add(2 * fields.len());
    out.array(fields.len());
    fields.iter().for_each(|field| out.integer(field.read(value)));
    Ok(())
}
