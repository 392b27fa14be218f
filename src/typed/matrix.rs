//! Matrices: some columns of one type, for many rows.
//!
//! In: rows. Out: numbers in one slice, row by row, as NumPy stores a matrix in C order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::layout::Place;
use super::projection::{CopyRange, Projection, merged};
use super::row::{ColumnError, TypedRow};
use super::schema::Schema;
use super::types::ColumnType;
use crate::for_each_number;

/// The type of the numbers in a matrix.
pub trait MatrixNumber: sealed::Number {}

mod sealed {
    use super::{ColumnType, FromBytes, Immutable, IntoBytes, KnownLayout};

    pub trait Number: Copy + FromBytes + IntoBytes + Immutable + KnownLayout {
        /// Returns whether a column of this type can be in a matrix of `Self`.
        fn accepts(column_type: ColumnType) -> bool;

        /// Returns the number whose little-endian bytes `self` has.
        fn decoded(self) -> Self;
    }
}

macro_rules! matrix_number {
    ([] $($variant:ident $number:ident $value:ident),*) => {
        $(impl sealed::Number for $number {
            fn accepts(column_type: ColumnType) -> bool {
                column_type.stored_as() == ColumnType::$variant
            }

            fn decoded(self) -> Self {
                <$number>::from_le_bytes(self.to_ne_bytes())
            }
        }
        impl MatrixNumber for $number {})*
    };
}

for_each_number!(matrix_number);

/// Copies columns of one type into the rows of a matrix.
///
/// A list of fixed length takes as many columns of the matrix as it has elements.
#[derive(Clone, Debug)]
pub struct MatrixPlan<T> {
    source_id: u64,
    /// The number for a null cell.
    fill: T,
    /// The number of columns of the matrix.
    width: usize,
    ranges: Box<[CopyRange]>,
    /// The columns of a table that can be null: the number of their null bit, and the columns of the matrix.
    nullable: Box<[(usize, std::ops::Range<usize>)]>,
}

impl<T: MatrixNumber> MatrixPlan<T> {
    /// Returns the plan for a matrix with the columns of a projection, in their order. `source` is the schema whose
    /// columns are projected. `fill` is the number for a null cell.
    ///
    /// # Errors
    /// [`ColumnError::Matrix`] if a column is neither of the type `T` nor a list of fixed length of this type.
    ///
    /// # Panics
    /// If `source` is not the schema whose columns are projected.
    pub fn new(source: &Schema, projection: &Projection, fill: T) -> Result<MatrixPlan<T>, ColumnError> {
        assert_eq!(source.id(), projection.source_id(), "the source of the projection");
        let (mut width, mut ranges, mut nullable) = (0, Vec::new(), Vec::new());
        for &position in projection.positions() {
            let column = &source.columns()[position];
            let element = match column.column_type {
                ColumnType::List { element, len: Some(_) } => element.column_type(),
                other => other,
            };
            let cell = source.layout().cell(position);
            let (true, Place::Fixed { offset_bytes, len_bytes }) = (T::accepts(element), cell.place) else {
                return Err(ColumnError::Matrix { column: column.name.clone(), found: column.column_type });
            };
            let columns = width..width + len_bytes / size_of::<T>();
            ranges.push(CopyRange { from_bytes: offset_bytes, to_bytes: width * size_of::<T>(), len_bytes });
            width = columns.end;
            nullable.extend(cell.null_bit.map(|bit| (bit, columns)));
        }
        Ok(MatrixPlan { source_id: source.id(), fill, width, ranges: merged(ranges).into(), nullable: nullable.into() })
    }

    /// Returns the ID of the schema whose columns are copied.
    pub fn source_id(&self) -> u64 {
        self.source_id
    }

    /// Returns the number of columns of the matrix.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number for a null cell.
    pub fn fill(&self) -> T {
        self.fill
    }

    /// Copies a row of the table into a row of the matrix.
    ///
    /// # Panics
    /// If the row is not a row of the plan's schema, or if `to` does not have [`MatrixPlan::width`] numbers.
    #[inline]
    pub fn copy(&self, row: &TypedRow<'_>, to: &mut [T]) {
        assert_eq!(row.schema().id(), self.source_id, "the row is a row of the plan's schema");
        assert_eq!(to.len(), self.width, "the width of the matrix");
        let (from, bytes) = (row.as_bytes(), to.as_mut_bytes());
        for CopyRange { from_bytes, to_bytes, len_bytes } in &self.ranges {
            bytes[*to_bytes..to_bytes + len_bytes].copy_from_slice(&from[*from_bytes..from_bytes + len_bytes]);
        }
        if cfg!(target_endian = "big") {
            to.iter_mut().for_each(|number| *number = number.decoded());
        }
        for (bit, columns) in &self.nullable {
            if row.bit(*bit) {
                to[columns.clone()].fill(self.fill);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::{List, Value};
    use super::super::encode::RowEncoder;
    use super::super::schema::tests::schema;
    use super::super::types::ElementType;
    use super::*;

    #[test]
    fn columns_of_one_type_become_a_row_of_a_matrix() {
        let schema = schema("a:f32? b:i32 c:f32 d:list(f32,2)? e:text");
        let elements = [3.0_f32.to_le_bytes(), 4.0_f32.to_le_bytes()].concat();
        let list = Value::List(List::new(ElementType::F32, &elements).unwrap());
        let mut encoder = RowEncoder::new(&schema);
        let rows = [
            [Value::F32(1.0), Value::Int(1), Value::F32(2.0), list, Value::Text("x")],
            [Value::Null, Value::Int(1), Value::F32(2.0), Value::Null, Value::Text("")],
        ]
        .map(|cells| encoder.encode(&cells).unwrap().to_vec());
        let plan = |names: &[&str]| MatrixPlan::new(&schema, &Projection::new(&schema, names).unwrap(), -1.0_f32);
        let matrix = plan(&["c", "d", "a"]).unwrap();
        let mut to = [0.0; 8];
        for (row, to) in rows.iter().zip(to.chunks_exact_mut(matrix.width())) {
            matrix.copy(&TypedRow::new(&schema, row).unwrap(), to);
        }
        assert_eq!(to, [2.0, 3.0, 4.0, 1.0, 2.0, -1.0, -1.0, -1.0]);
        for name in ["b", "e"] {
            let error = plan(&["a", name]).unwrap_err();
            assert!(matches!(&error, ColumnError::Matrix { column, .. } if column == name), "{error}");
        }
    }
}
