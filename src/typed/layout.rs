//! The positions of the cells in a row of a typed table.
//!
//! A row's value begins with a fixed part, in which every column of a schema has the same place in all rows. Values of
//! different lengths follow the fixed part. `docs/FORMAT.md` describes the layout.
//!
//! Reasons and evidence: `docs/decisions/typed-rows.md`.

use super::types::Column;

/// The maximum length of the fixed part of a row, including its bits.
pub const FIXED_LEN_MAX_BYTES: usize = 64 << 10;

/// The length of the end of a variable-width column: an offset from the start of the row's value.
pub(super) const END_LEN_BYTES: usize = size_of::<u32>();

/// The positions of the cells in every row of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    cells: Box<[Cell]>,
    /// The offset of the bits, which follow the cells of fixed width.
    pub(super) bits_offset_bytes: usize,
    /// The length of the fixed part, including the bits.
    pub(super) fixed_len_bytes: usize,
    /// The number of bits that are used.
    pub(super) bit_count: usize,
    /// The positions of the variable-width columns, in the order of their data.
    pub(super) variable: Box<[usize]>,
    /// The offset of the data of the first variable-width column. Without such columns, the length of a row's value.
    pub(super) data_offset_bytes: usize,
}

/// The position of a column's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) place: Place,
    /// The number of the bit that is set if the cell is null. `None` if the column cannot be null.
    pub(super) null_bit: Option<usize>,
}

/// The place of a column's value in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The number of a bit.
    Bit(usize),
    /// A range of the fixed part.
    Fixed { offset_bytes: usize, len_bytes: usize },
    /// The data of a variable-width column, whose end is stored at `end_at`.
    Variable { start: DataStart, end_at: usize },
}

/// The start of the data of a variable-width column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataStart {
    /// The data begins at [`RowLayout::data_offset_bytes`].
    First,
    /// The data begins where the data of another column ends. The offset of this end is stored here.
    EndAt(usize),
}

impl RowLayout {
    /// Returns the layout of the rows of a schema with these columns. Fails with the length of the fixed part if this
    /// part is longer than [`FIXED_LEN_MAX_BYTES`].
    pub(super) fn new(columns: &[Column]) -> Result<RowLayout, usize> {
        let mut places: Vec<Option<Place>> = vec![None; columns.len()];
        let mut end_bytes = 0;
        let mut ends = vec![0; columns.len()];
        // The widest cells come first: values begin at multiples of 8, so every cell is aligned without padding, and
        // readers use floats and lists in place.
        for align_bytes in [8, 4, 2, 1] {
            for (i, Column { column_type, .. }) in columns.iter().enumerate() {
                match column_type.fixed_len_bytes() {
                    Some(len_bytes) if column_type.align_bytes() == align_bytes => {
                        places[i] = Some(Place::Fixed { offset_bytes: end_bytes, len_bytes });
                        end_bytes += len_bytes;
                    }
                    None if column_type.is_variable() && align_bytes == END_LEN_BYTES => {
                        ends[i] = end_bytes;
                        end_bytes += END_LEN_BYTES;
                    }
                    _ => {}
                }
            }
        }
        // Nulls and Booleans take a bit each, after all cells that need an alignment.
        let bits_offset_bytes = end_bytes;
        let mut bit_count = 0;
        let mut next_bit = || {
            bit_count += 1;
            bit_count - 1
        };
        let null_bits: Vec<_> = columns.iter().map(|column| column.is_nullable.then(&mut next_bit)).collect();
        let variable = variable_in_order(columns);
        let mut start = DataStart::First;
        for &i in &variable {
            places[i] = Some(Place::Variable { start, end_at: ends[i] });
            start = DataStart::EndAt(ends[i]);
        }
        let place = |place: Option<Place>| place.unwrap_or_else(|| Place::Bit(next_bit()));
        let cells = places.into_iter().map(place).zip(null_bits).map(|(place, null_bit)| Cell { place, null_bit });
        let cells = cells.collect();
        let fixed_len_bytes = bits_offset_bytes + bit_count.div_ceil(8);
        if fixed_len_bytes > FIXED_LEN_MAX_BYTES {
            return Err(fixed_len_bytes);
        }
        let data_align_bytes = variable.first().map_or(1, |i| columns[*i].column_type.align_bytes());
        Ok(RowLayout {
            cells,
            bits_offset_bytes,
            fixed_len_bytes,
            bit_count,
            data_offset_bytes: fixed_len_bytes.next_multiple_of(data_align_bytes),
            variable: variable.into(),
        })
    }

    /// Returns the position of a column's cell.
    #[inline]
    pub(super) fn cell(&self, column: usize) -> Cell {
        self.cells[column]
    }
}

/// Returns the positions of the variable-width columns in the order of their data: by descending alignment, and then in
/// the order of the schema. Every value is then aligned without padding.
fn variable_in_order(columns: &[Column]) -> Vec<usize> {
    let mut variable: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].column_type.is_variable()).collect();
    variable.sort_by_key(|i| std::cmp::Reverse(columns[*i].column_type.align_bytes()));
    variable
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::{schema, schema_of_all_types};
    use super::*;

    #[test]
    fn cells_are_ordered_by_alignment() {
        let schema = schema("a:u8 b:bool c:text? d:f64? e:list(f32) f:i16 g:date h:bool");
        let layout = schema.layout();
        let places = [
            Place::Fixed { offset_bytes: 22, len_bytes: 1 },
            Place::Bit(2),
            Place::Variable { start: DataStart::EndAt(12), end_at: 8 },
            Place::Fixed { offset_bytes: 0, len_bytes: 8 },
            Place::Variable { start: DataStart::First, end_at: 12 },
            Place::Fixed { offset_bytes: 20, len_bytes: 2 },
            Place::Fixed { offset_bytes: 16, len_bytes: 4 },
            Place::Bit(3),
        ];
        let null_bits = [None, None, Some(0), Some(1), None, None, None, None];
        for (column, (place, null_bit)) in places.into_iter().zip(null_bits).enumerate() {
            assert_eq!(layout.cell(column), Cell { place, null_bit }, "column {column}");
        }
        assert_eq!((layout.bits_offset_bytes, layout.fixed_len_bytes, layout.data_offset_bytes), (23, 24, 24));
        assert_eq!(&*layout.variable, [4, 2]);
    }

    #[test]
    fn every_value_is_aligned_and_no_two_values_overlap() {
        let schema = schema_of_all_types();
        let layout = schema.layout();
        let mut used = vec![false; layout.bits_offset_bytes];
        let mut bits = vec![false; layout.bit_count];
        let occupy = |used: &mut [bool], range: std::ops::Range<usize>| {
            assert!(used[range.clone()].iter().all(|byte| !byte));
            used[range].fill(true);
        };
        for (i, column) in schema.columns().iter().enumerate() {
            let cell = layout.cell(i);
            match cell.place {
                Place::Bit(bit) => occupy(&mut bits, bit..bit + 1),
                Place::Fixed { offset_bytes, len_bytes } => {
                    assert!(offset_bytes.is_multiple_of(column.column_type.align_bytes()), "{column}");
                    occupy(&mut used, offset_bytes..offset_bytes + len_bytes);
                }
                Place::Variable { end_at, .. } => occupy(&mut used, end_at..end_at + END_LEN_BYTES),
            }
            if let Some(bit) = cell.null_bit {
                occupy(&mut bits, bit..bit + 1);
            }
        }
        assert!(used.iter().all(|byte| *byte) && bits.iter().all(|bit| *bit), "no byte or bit is unused");
        assert!(layout.data_offset_bytes.is_multiple_of(8));
    }
}
