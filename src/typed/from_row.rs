//! Structs whose fields are columns.
//!
//! In: a schema, and rows. Out: one struct for each row. The names and types of all fields are compared with the schema
//! once, before the first row is read.

use std::marker::PhantomData;

use super::row::{ColumnError, FromCell, TypedRow, unknown_column};
use super::schema::Schema;

/// A struct that rows can be read as. [`row_struct!`](crate::row_struct) implements this trait.
pub trait FromRow {
    /// The struct, borrowing text and bytes from a row.
    type Of<'a>;

    /// Returns the positions of the columns that the fields are read from, in the order of the fields.
    ///
    /// # Errors
    /// [`ColumnError`] if a column does not exist, is of another type, or can be null where the field cannot.
    fn positions(schema: &Schema) -> Result<Vec<usize>, ColumnError>;

    /// Reads a row of the schema for which [`FromRow::positions`] has returned `positions`.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if the row is not a row of its schema.
    fn read<'a>(row: &TypedRow<'a>, positions: &[usize]) -> Result<Self::Of<'a>, ColumnError>;
}

/// Reads rows of one schema as structs.
///
/// # Example
/// ```
/// use zero_kv::typed::{Column, RowEncoder, RowReader, Schema, TypedRow, Value};
///
/// zero_kv::row_struct! {
///     /// A row of the catalog.
///     #[derive(Debug, PartialEq)]
///     struct Product<'a> {
///         name: &'a str,
///         price: Option<f32>,
///     }
/// }
///
/// let schema = Schema::new("id", ["price:f32?".parse()?, "name:text".parse::<Column>()?])?;
/// let bytes = RowEncoder::new(&schema).encode(&[Value::F32(2.5), Value::Text("pen")])?.to_vec();
///
/// let reader = RowReader::<Product>::new(&schema)?;
/// let product = reader.read(&TypedRow::new(&schema, &bytes)?)?;
/// assert_eq!(product, Product { name: "pen", price: Some(2.5) });
///
/// let schema = Schema::new("id", ["price:f64?".parse()?, "name:text".parse::<Column>()?])?;
/// let error = RowReader::<Product>::new(&schema).err().unwrap();
/// assert_eq!(error.to_string(), "column \"price\" is f64, where f32 was requested: request the column's type");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowReader<T> {
    schema_id: u64,
    positions: Box<[usize]>,
    reads: PhantomData<fn() -> T>,
}

impl<T: FromRow> RowReader<T> {
    /// Compares the fields of the struct with the columns of a schema.
    ///
    /// # Errors
    /// [`ColumnError`] if a column does not exist, is of another type, or can be null where the field cannot.
    pub fn new(schema: &Schema) -> Result<RowReader<T>, ColumnError> {
        Ok(RowReader { schema_id: schema.id(), positions: T::positions(schema)?.into(), reads: PhantomData })
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if the row is not a row of its schema.
    ///
    /// # Panics
    /// If the row is a row of another schema than the reader's.
    pub fn read<'a>(&self, row: &TypedRow<'a>) -> Result<T::Of<'a>, ColumnError> {
        assert_eq!(row.schema().id(), self.schema_id, "the row is a row of the reader's schema");
        T::read(row, &self.positions)
    }
}

/// Returns the position of the column for a field of the type `T`. Used by [`row_struct!`](crate::row_struct).
///
/// # Errors
/// [`ColumnError`] if the column does not exist, is of another type, or can be null where `T` cannot.
pub fn position_of_field<'a, T: FromCell<'a>>(schema: &Schema, name: &str) -> Result<usize, ColumnError> {
    let position = schema.position(name).ok_or_else(|| unknown_column(schema, name))?;
    let column = &schema.columns()[position];
    if !T::accepts(column.column_type) {
        let (column, found) = (name.to_owned(), column.column_type);
        return Err(ColumnError::Type { column, found, requested: T::NAME });
    }
    match column.is_nullable && !T::ACCEPTS_NULL {
        true => Err(ColumnError::Nullable { column: name.to_owned(), requested: T::NAME }),
        false => Ok(position),
    }
}

/// Defines a struct whose fields are the columns with their names, and implements [`FromRow`](crate::typed::FromRow)
/// for it. The struct has at most one lifetime, of the text and bytes that it borrows from a row. The type of a field
/// is a type that [`TypedRow::get`](crate::typed::TypedRow::get) returns. [`RowReader`](crate::typed::RowReader) has an
/// example.
#[macro_export]
macro_rules! row_struct {
    ($(#[$meta:meta])* $visible:vis struct $Name:ident<$lifetime:lifetime> {
        $($(#[$field_meta:meta])* $field_visible:vis $field:ident: $Field:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $visible struct $Name<$lifetime> {
            $($(#[$field_meta])* $field_visible $field: $Field,)*
        }

        impl $crate::typed::FromRow for $Name<'_> {
            type Of<$lifetime> = $Name<$lifetime>;

            $crate::row_struct!(@methods $Name, $lifetime, $($field: $Field,)*);
        }
    };
    ($(#[$meta:meta])* $visible:vis struct $Name:ident {
        $($(#[$field_meta:meta])* $field_visible:vis $field:ident: $Field:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $visible struct $Name {
            $($(#[$field_meta])* $field_visible $field: $Field,)*
        }

        impl $crate::typed::FromRow for $Name {
            type Of<'row> = $Name;

            $crate::row_struct!(@methods $Name, 'row, $($field: $Field,)*);
        }
    };
    (@methods $Name:ident, $lifetime:lifetime, $($field:ident: $Field:ty,)*) => {
        fn positions(
            schema: &$crate::typed::Schema,
        ) -> ::std::result::Result<::std::vec::Vec<usize>, $crate::typed::ColumnError> {
            fn positions<$lifetime>(
                schema: &$crate::typed::Schema,
                _: ::std::marker::PhantomData<&$lifetime ()>,
            ) -> ::std::result::Result<::std::vec::Vec<usize>, $crate::typed::ColumnError> {
                ::std::result::Result::Ok(::std::vec![
                    $($crate::typed::position_of_field::<$Field>(schema, ::std::stringify!($field))?,)*
                ])
            }
            positions(schema, ::std::marker::PhantomData)
        }

        fn read<$lifetime>(
            row: &$crate::typed::TypedRow<$lifetime>,
            positions: &[usize],
        ) -> ::std::result::Result<Self::Of<$lifetime>, $crate::typed::ColumnError> {
            let mut positions = positions.iter().copied();
            let mut next = || positions.next().expect("a position for each field");
            ::std::result::Result::Ok($Name { $($field: row.get_at::<$Field>(next())?,)* })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::super::encode::RowEncoder;
    use super::super::schema::tests::schema;
    use super::super::{List, TextList, Value};
    use super::*;

    row_struct! {
        #[derive(Debug, PartialEq)]
        struct Numbers {
            /// The second column.
            b: f32,
            a: Option<i16>,
        }
    }

    row_struct! {
        #[derive(Debug, PartialEq)]
        pub(crate) struct Borrowed<'a> {
            pub(crate) text: Option<&'a str>,
            bytes: &'a [u8],
            any: Value<'a>,
            list: List<'a>,
            texts: Vec<String>,
        }
    }

    #[test]
    fn rows_are_read_as_structs() {
        let schema = schema("a:i16? b:f32 text:text? bytes:bytes any:bool? list:list(u8) texts:list(text)");
        let mut encoder = RowEncoder::new(&schema);
        let list = List::new(super::super::ElementType::U8, b"list").unwrap();
        let text = "text".to_owned();
        let texts = TextList::from_bytes(br#"["a","\""]"#).unwrap();
        let cells = [Value::Int(-1), Value::F32(0.5), Value::Text(&text), Value::Bytes(b"b"), Value::Null];
        let lists = [Value::List(list), Value::TextList(texts)];
        let bytes = encoder.encode(&[&cells[..], &lists].concat()).unwrap().to_vec();
        let row = TypedRow::new(&schema, &bytes).unwrap();
        assert_eq!(RowReader::<Numbers>::new(&schema).unwrap().read(&row), Ok(Numbers { b: 0.5, a: Some(-1) }));
        let borrowed = RowReader::<Borrowed>::new(&schema).unwrap().read(&row);
        let texts = vec!["a".to_owned(), "\"".to_owned()];
        assert_eq!(borrowed, Ok(Borrowed { text: Some("text"), bytes: b"b", any: Value::Null, list, texts }));
    }

    #[test]
    fn fields_that_do_not_fit_the_schema_are_rejected_before_any_row_is_read() {
        for (columns, expected) in [
            ("b:f32", "the table has no column \"a\": its columns are b"),
            ("a:i16 b:f64", "column \"b\" is f64, where f32 was requested: request the column's type"),
            ("a:i16 b:f32?", "column \"b\" can be null, where f32 was requested: request Option<f32>"),
        ] {
            let error = RowReader::<Numbers>::new(&schema(columns)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(RowReader::<Numbers>::new(&schema("a:i16 b:f32 c:text")).is_ok());
    }
}
