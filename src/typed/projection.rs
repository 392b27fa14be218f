//! Projections: copies of some columns of a row.
//!
//! A projection is a schema with some columns of another schema, in any order. A projected row has the layout of the
//! projection's schema, so a client reads it like any other row.

use std::ops::Range;
use std::sync::Arc;

use super::layout::{END_LEN_BYTES, Place};
use super::row::{ColumnError, OUTSIDE, TypedRow, unknown_column};
use super::schema::{Schema, SchemaError};

/// Copies some columns of the rows of a schema.
///
/// # Example
/// ```
/// use zero_kv::typed::{Column, Projection, RowEncoder, Schema, TypedRow, Value};
///
/// let schema = Schema::new("id", ["price:f32".parse()?, "name:text".parse()?, "stock:u16".parse::<Column>()?])?;
/// let row = RowEncoder::new(&schema).encode(&[Value::F32(2.5), Value::Text("pen"), Value::Uint(7)])?.to_vec();
///
/// let projection = Projection::new(&schema, &["stock", "price"])?;
/// let mut projected = Vec::new();
/// projection.project(&TypedRow::new(&schema, &row)?, &mut projected)?;
/// let projected = TypedRow::new(projection.schema(), &projected)?;
/// assert_eq!((projected.get("stock"), projected.get("price")), (Ok(7_u16), Ok(2.5_f32)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Projection {
    /// The ID of the schema whose columns are copied.
    source_id: u64,
    /// The projected columns.
    schema: Arc<Schema>,
    /// The position of each projected column in the source's schema.
    columns: Box<[usize]>,
    /// The ranges of the fixed part to copy.
    ranges: Box<[CopyRange]>,
    /// The bits to copy: the number of a bit in the source, and its number in the projected row.
    bits: Box<[(usize, usize)]>,
    /// The variable-width columns, in the order of their data in the projected row.
    variable: Box<[VariableColumn]>,
}

/// A range of the fixed part of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRange {
    pub(super) from_bytes: usize,
    pub(super) to_bytes: usize,
    pub(super) len_bytes: usize,
}

/// A variable-width column of a projection.
#[derive(Clone, Copy, Debug)]
struct VariableColumn {
    /// The place of the column's data in the source.
    from: Place,
    /// The offset of the end in the projected row.
    end_at: usize,
}

impl Projection {
    /// Projects the columns with these names.
    ///
    /// # Errors
    /// [`ColumnError::Unknown`] if a column does not exist, [`ColumnError::Schema`] if a column is chosen twice, or if
    /// there are no columns.
    pub fn new(source: &Schema, names: &[impl AsRef<str>]) -> Result<Projection, ColumnError> {
        let position = |name: &str| source.position(name).ok_or_else(|| unknown_column(source, name));
        let columns: Vec<usize> = names.iter().map(|name| position(name.as_ref())).collect::<Result<_, _>>()?;
        Ok(Projection::of_positions(source, columns)?)
    }

    /// Returns the projection of all columns.
    pub fn of_all(source: &Schema) -> Projection {
        let columns = (0..source.columns().len()).collect();
        Projection::of_positions(source, columns).expect("all columns of a schema are a schema")
    }

    /// Returns the projection of the columns at these positions of the source's schema.
    ///
    /// # Errors
    /// [`SchemaError`] if a column is chosen twice, or if there are no columns.
    ///
    /// # Panics
    /// If a position is not less than the number of columns.
    pub fn of_positions(source: &Schema, columns: Vec<usize>) -> Result<Projection, SchemaError> {
        let projected = columns.iter().map(|column| source.columns()[*column].clone());
        let schema = Schema::new(source.key_name().unwrap_or_default(), projected)?;
        let (from, to) = (source.layout(), schema.layout());
        let (mut ranges, mut bits) = (Vec::new(), Vec::new());
        for (i, &column) in columns.iter().enumerate() {
            let (from, to) = (from.cell(column), to.cell(i));
            bits.extend(from.null_bit.zip(to.null_bit));
            match (from.place, to.place) {
                (Place::Bit(from), Place::Bit(to)) => bits.push((from, to)),
                (Place::Fixed { offset_bytes: from_bytes, len_bytes }, Place::Fixed { offset_bytes: to_bytes, .. }) => {
                    ranges.push(CopyRange { from_bytes, to_bytes, len_bytes });
                }
                _ => {}
            }
        }
        let variable = to.variable.iter().filter_map(|&i| match to.cell(i).place {
            Place::Variable { end_at, .. } => Some(VariableColumn { from: from.cell(columns[i]).place, end_at }),
            _ => None,
        });
        let variable = variable.collect();
        Ok(Projection {
            source_id: source.id(),
            columns: columns.into(),
            ranges: merged(ranges).into(),
            bits: bits.into(),
            variable,
            schema: Arc::new(schema),
        })
    }

    /// Returns the ID of the schema whose columns are projected.
    pub fn source_id(&self) -> u64 {
        self.source_id
    }

    /// Returns the schema of projected rows.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn shared_schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the position of each projected column in the source's schema.
    pub fn positions(&self) -> &[usize] {
        &self.columns
    }

    /// Appends the projected row to `to`.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if a value of variable width is not inside the row, or if values overlap. `to` is
    /// then unchanged.
    ///
    /// # Panics
    /// If the row is not a row of the source's schema.
    pub fn project(&self, row: &TypedRow<'_>, to: &mut Vec<u8>) -> Result<(), ColumnError> {
        let start = to.len();
        to.resize(start + self.head_len_bytes(), 0);
        let mut data = Vec::with_capacity(self.variable.len());
        self.project_parts(row, &mut to[start..], &mut data).inspect_err(|_| to.truncate(start))?;
        data.into_iter().for_each(|range| to.extend_from_slice(&row.as_bytes()[range]));
        Ok(())
    }

    /// Returns the length of the part of a projected row that precedes the values of variable width.
    pub(crate) fn head_len_bytes(&self) -> usize {
        self.schema.layout().data_offset_bytes
    }

    /// Returns the number of copies that projecting a row takes.
    #[cfg(feature = "server")]
    pub(crate) fn copy_count(&self) -> usize {
        self.ranges.len() + self.bits.len() + self.variable.len()
    }

    /// Projects a row without copying the values of variable width. Writes the part of the projected row that precedes
    /// these values to `fixed`, which must have [`Projection::head_len_bytes`]. Replaces the contents of `data` by the
    /// ranges of the row that follow this part. Returns the length of the projected row.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if a value of variable width is not inside the row, or if values overlap.
    ///
    /// # Panics
    /// If the row is not a row of the source's schema.
    pub(crate) fn project_parts(
        &self,
        row: &TypedRow<'_>,
        fixed: &mut [u8],
        data: &mut Vec<Range<usize>>,
    ) -> Result<usize, ColumnError> {
        assert_eq!(row.schema().id(), self.source_id, "the row is a row of the projection's source");
        let (layout, from) = (self.schema.layout(), row.as_bytes());
        for CopyRange { from_bytes, to_bytes, len_bytes } in &self.ranges {
            fixed[*to_bytes..to_bytes + len_bytes].copy_from_slice(&from[*from_bytes..from_bytes + len_bytes]);
        }
        let bits = &mut fixed[layout.bits_offset_bytes..];
        bits.fill(0);
        for &(from, bit) in &self.bits {
            bits[bit / 8] |= u8::from(row.bit(from)) << (bit % 8);
        }
        data.clear();
        let mut end_bytes = layout.data_offset_bytes;
        for &VariableColumn { from: place, end_at } in &self.variable {
            let range = row.data_range(place)?;
            end_bytes += range.len();
            // In a forged row, values may overlap. Copies of them could be many times as long as the row.
            if end_bytes > layout.data_offset_bytes + from.len() {
                return Err(OUTSIDE);
            }
            fixed[end_at..end_at + END_LEN_BYTES].copy_from_slice(&(end_bytes as u32).to_le_bytes());
            data.push(range);
        }
        Ok(end_bytes)
    }
}

/// Merges ranges that are adjacent both in the source and in the target.
pub(super) fn merged(mut ranges: Vec<CopyRange>) -> Vec<CopyRange> {
    ranges.sort_by_key(|range| range.to_bytes);
    let mut merged: Vec<CopyRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last)
                if last.from_bytes + last.len_bytes == range.from_bytes
                    && last.to_bytes + last.len_bytes == range.to_bytes =>
            {
                last.len_bytes += range.len_bytes;
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    use super::super::encode::tests::{lists, row_of};
    use super::super::schema::tests::{schema, schema_of_all_types};
    use super::*;

    #[test]
    fn a_projected_row_is_the_row_that_the_projected_schema_would_encode() {
        let schema = schema_of_all_types();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(18);
        let lists = lists();
        for number in 0..200 {
            let bytes = row_of(&schema, number, &lists);
            let row = TypedRow::new(&schema, &bytes).unwrap();
            let mut columns: Vec<usize> = (0..schema.columns().len()).collect();
            columns.shuffle(&mut random);
            columns.truncate(random.random_range(1..=columns.len()));
            let projection = Projection::of_positions(&schema, columns.clone()).unwrap();
            let mut projected = b"before".to_vec();
            projection.project(&row, &mut projected).unwrap();
            let found = TypedRow::new(projection.schema(), &projected[b"before".len()..]).unwrap();
            found.check().unwrap();
            for (i, column) in columns.into_iter().enumerate() {
                assert_eq!(found.value(i), row.value(column), "seed 18, row {number}, column {column}");
            }
        }
    }

    #[test]
    fn a_malformed_row_is_not_projected() {
        let schema = schema("a:text b:text");
        let bytes = [9, 0, 0, 0, 8, 0, 0, 0, b'x'];
        let row = TypedRow::new(&schema, &bytes).unwrap();
        let mut projected = b"before".to_vec();
        let project = |name: &str, to: &mut Vec<u8>| Projection::new(&schema, &[name]).unwrap().project(&row, to);
        assert!(matches!(project("b", &mut projected), Err(ColumnError::Malformed { .. })));
        assert_eq!(projected, b"before");
        assert_eq!(project("a", &mut projected), Ok(()));
    }

    #[test]
    fn overlapping_values_are_not_projected() {
        let schema = schema("a:bytes b:bytes c:bytes d:bytes e:bytes");
        // Each of the columns a, c, and e has all data, which is possible only if the ends go back.
        let ends = [30_u32, 20, 30, 20, 30];
        let bytes = [&ends.map(u32::to_le_bytes).concat()[..], b"0123456789"].concat();
        let row = TypedRow::new(&schema, &bytes).unwrap();
        let mut projected = Vec::new();
        let mut project = |names: &[&str]| Projection::new(&schema, names).unwrap().project(&row, &mut projected);
        assert!(matches!(project(&["b"]), Err(ColumnError::Malformed { .. })));
        assert_eq!(project(&["a", "c", "e"]), Ok(()));
        let ends: Vec<u32> = (0..64).map(|column| 256 + 30 * ((column + 1) % 2)).collect();
        let bytes = [&ends.iter().flat_map(|end| end.to_le_bytes()).collect::<Vec<_>>()[..], &[0; 30]].concat();
        let columns: Vec<String> = (0..64).map(|column| format!("c{column}:bytes")).collect();
        let schema = self::schema(&columns.join(" "));
        let row = TypedRow::new(&schema, &bytes).unwrap();
        let projection = Projection::of_positions(&schema, (0..64).step_by(2).collect()).unwrap();
        assert!(matches!(projection.project(&row, &mut projected), Err(ColumnError::Malformed { .. })));
    }

    #[test]
    fn adjacent_columns_are_copied_at_once() {
        let schema = schema("a:f32 b:f32 c:u8 d:f32");
        let ranges = |names: &[&str]| Projection::new(&schema, names).unwrap().ranges.len();
        assert_eq!((ranges(&["a", "b", "d", "c"]), ranges(&["b", "d"]), ranges(&["d", "a"])), (1, 1, 2));
    }

    #[test]
    fn columns_that_cannot_be_projected_are_rejected() {
        let schema = schema("a:f32 b:f32");
        let rejected = |names: &[&str]| Projection::new(&schema, names).unwrap_err().to_string();
        assert_eq!(rejected(&["a", "c"]), "the table has no column \"c\": its columns are a, b");
        assert_eq!(rejected(&["a", "a"]), "two columns have the name \"a\": rename one");
        assert!(rejected(&[]).starts_with("0 columns"));
    }
}
