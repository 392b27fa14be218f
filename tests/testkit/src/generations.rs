//! Tables whose values name their generation.

use std::path::Path;

use zero_kv::bake::Keys;

use super::rows::bake_text;
use super::scenes::settle;

/// The size of a table. Every generation has keys 1 to `rows`, and every second generation one more key.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rows: u64,
    /// The approximate maximum length of a value.
    pub len_max_bytes: u64,
}

impl Shape {
    /// Returns the value of a key in a generation, or `None` if the generation does not have the key.
    pub fn value(self, generation: u64, key: u64) -> Option<Vec<u8>> {
        let is_there = (1..=self.rows).contains(&key) || (key == self.rows + 1 && generation.is_multiple_of(2));
        let mut value = format!("{generation}:{key}:").into_bytes();
        // This length does not depend on the generation. Two generations whose numbers have equally many digits
        // therefore have files of equal length, if both numbers are odd or both are even.
        let len_bytes = key * 37 % self.len_max_bytes;
        value.extend((0..len_bytes).map(|at| b'a' + ((at + key * 7 + generation * 3) % 26) as u8));
        is_there.then_some(value)
    }

    pub fn bake(self, generation: u64, output: &Path) {
        let row = |key| Some([format!("{key},").as_bytes(), &self.value(generation, key)?, b"\n"].concat());
        bake_text(output, Keys::U64, (1..=self.rows + 1).filter_map(row).collect::<Vec<_>>().concat());
        settle(output);
    }
}

/// Returns the generation that a value names.
pub fn named(value: &[u8]) -> Option<u64> {
    let digits = value.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
