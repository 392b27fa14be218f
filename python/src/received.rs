//! Rows of typed tables that a server sent.

use std::sync::Arc;

use pyo3::prelude::*;
use zero_kv::client::ProjectedRows;
use zero_kv::store::TypedLookupError;
use zero_kv::typed::{self, Column, ColumnBuffers, MatrixNumber, MatrixPlan, Projection, Schema};

use crate::columns::{ColumnRows, ColumnUse, Wanted};
use crate::typed_row::TypedRow;

impl ColumnRows for ProjectedRows {
    fn columns(&self) -> &[Column] {
        self.schema().columns()
    }

    fn len(&self) -> usize {
        ProjectedRows::len(self)
    }

    fn fill_matrix<T: MatrixNumber>(&self, fill: T, matrix: &mut [T]) -> Result<usize, TypedLookupError> {
        Ok(self.matrix(fill, matrix).expect("the caller checked the types of the columns"))
    }

    fn buffers(&self) -> Result<ColumnBuffers, TypedLookupError> {
        Ok(self.clone().into_buffers()?)
    }
}

/// Returns rows as Python objects, with `None` for missing keys.
pub(crate) fn row_objects(rows: &ProjectedRows) -> PyResult<Vec<Option<TypedRow>>> {
    let schema = Arc::new(rows.schema().clone());
    rows.iter().map(|row| row.map(|row| TypedRow::new(&schema, row.as_bytes())).transpose()).collect()
}

/// Copies of the rows of some keys, and some of their columns.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct ReceivedRows {
    schema: Arc<Schema>,
    projection: Projection,
    rows: Vec<Option<Vec<u8>>>,
}

impl ReceivedRows {
    /// Checks the lengths of the rows, which a server sent.
    pub(crate) fn new(
        schema: Arc<Schema>,
        projection: Projection,
        rows: Vec<Option<Vec<u8>>>,
    ) -> PyResult<ReceivedRows> {
        for row in rows.iter().flatten() {
            TypedRow::new(&schema, row)?;
        }
        Ok(ReceivedRows { schema, projection, rows })
    }

    fn row<'r>(&'r self, bytes: &'r [u8]) -> typed::TypedRow<'r> {
        typed::TypedRow::new(&self.schema, bytes).expect("the constructor checked the length of the row")
    }
}

impl ColumnRows for ReceivedRows {
    fn columns(&self) -> &[Column] {
        self.projection.schema().columns()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn fill_matrix<T: MatrixNumber>(&self, fill: T, matrix: &mut [T]) -> Result<usize, TypedLookupError> {
        let plan =
            MatrixPlan::new(&self.schema, &self.projection, fill).expect("the caller checked the types of the columns");
        for (row, to) in self.rows.iter().zip(matrix.chunks_exact_mut(plan.width())) {
            match row {
                Some(row) => plan.copy(&self.row(row), to),
                None => to.fill(fill),
            }
        }
        Ok(self.rows.iter().flatten().count())
    }

    fn buffers(&self) -> Result<ColumnBuffers, TypedLookupError> {
        let mut buffers = ColumnBuffers::new(&self.schema, &self.projection);
        for row in &self.rows {
            match row {
                Some(row) => buffers.push(&self.row(row))?,
                None => buffers.push_missing(),
            }
        }
        Ok(buffers)
    }
}

#[pymethods]
impl ReceivedRows {
    /// Returns the columns as the method `columns` of a client does.
    fn columns(
        slf: &Bound<'_, Self>,
        fill: Option<Bound<'_, PyAny>>,
        out: Option<Bound<'_, PyAny>>,
        format: &str,
    ) -> PyResult<Py<PyAny>> {
        let wanted = Wanted { fill: fill.as_ref(), out: out.as_ref(), format };
        wanted.check()?.call(slf.py(), slf.get())
    }

    /// Returns the rows with all columns, with `None` for missing keys.
    fn rows(&self) -> PyResult<Vec<Option<TypedRow>>> {
        self.rows.iter().map(|row| row.as_ref().map(|row| TypedRow::new(&self.schema, row)).transpose()).collect()
    }
}
