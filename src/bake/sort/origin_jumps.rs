//! The origins of rows that arrive sorted.

/// The origins of consecutive rows. Most origins are one greater than the previous row's origin, so only the others are
/// stored.
#[derive(Debug, Default)]
pub(in crate::bake) struct OriginJumps {
    rows: u64,
    /// Rows, counted from 0, and their origins. From each of these rows up to the next, origins ascend by one.
    jumps: Vec<(u64, u64)>,
}

impl OriginJumps {
    pub(in crate::bake) fn push(&mut self, origin: u64) {
        if self.jumps.last().is_none_or(|(row, first)| first + (self.rows - row) != origin) {
            self.jumps.push((self.rows, origin));
        }
        self.rows += 1;
    }

    /// Returns the number of stored jumps.
    pub(in crate::bake) fn len(&self) -> usize {
        self.jumps.len()
    }

    /// Returns the origin of a row.
    pub(in crate::bake) fn origin(&self, row: u64) -> u64 {
        let jump = self.jumps.partition_point(|(first, _)| *first <= row) - 1;
        let (first, origin) = self.jumps[jump];
        origin + (row - first)
    }
}
