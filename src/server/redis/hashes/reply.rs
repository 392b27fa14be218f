//! Replies with fields of a row, a bounded number in each pass.
//!
//! In: a row of any length, and the columns that a command requests. Out: the elements of its reply, after the header,
//! which the caller has written. Long texts are borrowed from the file. The text of a long list is formatted twice: first
//! to compute its length, which precedes it in the reply, and then to send it.

use crate::protocol::resp::{Command, Sink, Version};
use crate::server::fields::Fields;
use crate::server::redis::Out;
use crate::server::redis::work::{CellProgress, HashReply, Items, Parts, Step};
use crate::typed::{List, TypedRow, Value, write_elements, write_text};

/// The number of elements of a list that are formatted between two checks of the pass's steps.
const LIST_PIECE_LEN: usize = 128;
/// The cost, in steps, of formatting the elements of a piece of a list.
const LIST_PIECE_STEPS: usize = LIST_PIECE_LEN;

impl HashReply {
    pub(super) fn new(items: Items, parts: Parts) -> HashReply {
        HashReply { items, parts, progress: CellProgress::Start }
    }

    /// Continues the reply as long as there is room for it. `offset_bytes` is the offset of the row's value in the
    /// records section.
    ///
    /// Closes the connection if the row is not a row of the schema, because the header of the reply is already sent. The
    /// caller has checked the row before it wrote the header, so this means that the file was changed.
    pub(super) fn more(
        &mut self,
        fields: &Fields,
        row: &TypedRow<'_>,
        offset_bytes: u64,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Step {
        loop {
            if out.sink().is_full() {
                return Step::Full;
            }
            if out.sink().steps().is_pass_over() {
                return Step::Yield;
            }
            out.sink().steps().add(1);
            let column = match &self.items {
                Items::Columns { columns, next } => columns.get(*next).map(|column| Some(usize::from(*column))),
                Items::Args { next_arg } => command.args_from(*next_arg).next().map(|name| {
                    out.sink().steps().add_bytes(name.len());
                    fields.position(name)
                }),
                Items::Random { left: 0, .. } => None,
                Items::Random { columns, random, .. } => {
                    Some(Some(usize::from(columns[(mix(*random) % columns.len() as u64) as usize])))
                }
            };
            match column {
                None => return Step::Done,
                Some(None) => {
                    out.null();
                    self.advance(command);
                }
                Some(Some(column)) => {
                    if self.send_field(fields, row, column, offset_bytes, command, out).is_none() {
                        return Step::Close;
                    }
                }
            }
        }
    }

    /// Moves on to the next field.
    fn advance(&mut self, command: &Command<'_>) {
        self.progress = CellProgress::Start;
        match &mut self.items {
            Items::Columns { next, .. } => *next += 1,
            Items::Args { next_arg } => {
                let mut args = command.args_from(*next_arg);
                args.next();
                *next_arg = args.offset_bytes();
            }
            Items::Random { left, random, .. } => (*left, *random) = (*left - 1, random.wrapping_add(1)),
        }
    }

    /// Sends a field, or a part of it. Returns `None` if the row is malformed.
    fn send_field(
        &mut self,
        fields: &Fields,
        row: &TypedRow<'_>,
        column: usize,
        offset_bytes: u64,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Option<()> {
        if self.progress == CellProgress::Start {
            if self.parts == Parts::Pairs && out.version() == Version::Resp3 {
                out.array(2);
            }
            if matches!(self.parts, Parts::Names | Parts::Both | Parts::Pairs) {
                out.sink().push_bytes(fields.name(column));
            }
            self.progress = CellProgress::Named;
        }
        if self.parts == Parts::Names {
            self.advance(command);
            return Some(());
        }
        match row.unchecked_value(column).ok()? {
            Value::List(list) if list.len() > LIST_PIECE_LEN => return self.send_list(&list, command, out),
            Value::Null if self.parts == Parts::Lengths => out.integer(0),
            Value::Null => out.null(),
            Value::Bytes(bytes) if self.parts == Parts::Lengths => out.integer(bytes.len() as i64),
            Value::Bytes(bytes) => {
                // The value of the cell is a part of the value of the row.
                let at = bytes.as_ptr() as usize - row.as_bytes().as_ptr() as usize;
                out.bulk_header(bytes.len());
                out.sink().push_stored(bytes, offset_bytes + at as u64);
                out.bulk_end();
            }
            value => {
                let (version, is_length) = (out.version(), self.parts == Parts::Lengths);
                out.sink().with_text(|responses, text| {
                    write_text(&value, text);
                    let mut out = Out::new(responses, version);
                    if is_length { out.integer(text.len() as i64) } else { out.bulk(text) }
                });
            }
        }
        self.advance(command);
        Some(())
    }

    /// Formats the next elements of a list, and counts or sends their bytes.
    fn send_list(&mut self, list: &List<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Option<()> {
        out.sink().steps().add(LIST_PIECE_STEPS);
        let (element, len_bytes) = match self.progress {
            CellProgress::Start | CellProgress::Named => (0, "[]".len()),
            CellProgress::Measuring { element, len_bytes } => (element, len_bytes),
            CellProgress::Sending { element } => (element, 0),
        };
        let is_sending = matches!(self.progress, CellProgress::Sending { .. });
        let end = list.len().min(element + LIST_PIECE_LEN);
        if element > end {
            // The list has become shorter.
            return None;
        }
        let text_len_bytes = out.sink().with_text(|responses, text| {
            write_elements(list, element..end, text);
            if is_sending {
                responses.push(text);
            }
            text.len()
        });
        self.progress = match is_sending {
            true => CellProgress::Sending { element: end },
            false => CellProgress::Measuring { element: end, len_bytes: len_bytes + text_len_bytes },
        };
        if end < list.len() {
            return Some(());
        }
        match self.progress {
            CellProgress::Measuring { len_bytes, .. } if self.parts == Parts::Lengths => {
                out.integer(len_bytes as i64);
                self.advance(command);
            }
            CellProgress::Measuring { len_bytes, .. } => {
                out.bulk_header(len_bytes);
                out.sink().push(b"[");
                self.progress = CellProgress::Sending { element: 0 };
            }
            _ => {
                out.sink().push(b"]");
                out.bulk_end();
                self.advance(command);
            }
        }
        Some(())
    }
}

/// Returns a pseudorandom number (SplitMix64) for a position in a sequence.
pub(super) fn mix(position: u64) -> u64 {
    let mixed = position.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
