//! Stores the origins of rows that arrive sorted. An origin identifies a row's input and its line.

/// The origins (inputs and lines) of consecutive rows. An origin that is one greater than the previous row's origin is
/// not stored.
#[derive(Debug, Default)]
pub(in crate::bake) struct OriginJumps {
    rows: u64,
    /// Pairs of a row number, counted from 0, and the row's origin. The origin of every row without a pair is one
    /// greater than the origin of the preceding row.
    jumps: Vec<(u64, u64)>,
}

impl OriginJumps {
    pub(in crate::bake) fn push(&mut self, origin: u64) {
        if self.jumps.last().is_none_or(|(row, first)| first + (self.rows - row) != origin) {
            self.jumps.push((self.rows, origin));
        }
        self.rows += 1;
    }

    /// Returns the number of stored origins.
    pub(in crate::bake) fn len(&self) -> usize {
        self.jumps.len()
    }

    /// Returns the origin (input and line) of a row. Rows are counted from 0.
    pub(in crate::bake) fn origin(&self, row: u64) -> u64 {
        let jump = self.jumps.partition_point(|(first, _)| *first <= row) - 1;
        let (first, origin) = self.jumps[jump];
        origin + (row - first)
    }
}
