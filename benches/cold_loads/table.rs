//! The rows of the table.

use std::io::{self, Read, Write};

pub(crate) const VALUE_LEN_BYTES: usize = 100;

/// Appends the value of a key.
pub(crate) fn push_value(value: &mut Vec<u8>, key: u64) {
    let mut state = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    value.extend((0..VALUE_LEN_BYTES).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((state >> 59) % 26) as u8
    }));
}

/// The rows of the table as CSV, with the keys from 0.
pub(crate) struct CsvRows {
    next_key: u64,
    rows: u64,
    line: Vec<u8>,
    sent_bytes: usize,
}

impl CsvRows {
    pub(crate) fn new(rows: u64) -> CsvRows {
        CsvRows { next_key: 0, rows, line: Vec::new(), sent_bytes: 0 }
    }
}

impl Read for CsvRows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.sent_bytes == self.line.len() {
            self.line.clear();
            self.sent_bytes = 0;
            for key in self.next_key..self.rows.min(self.next_key + 1024) {
                write!(self.line, "{key},")?;
                push_value(&mut self.line, key);
                self.line.push(b'\n');
            }
            self.next_key += 1024;
        }
        let count = (&self.line[self.sent_bytes..]).read(buffer)?;
        self.sent_bytes += count;
        Ok(count)
    }
}
