//! Columns of typed tables: the selected columns of a client, and the rows that it has received.
//!
//! In: the table's schema, names of columns, and the responses to requests. Out: rows of the selected columns. This
//! module does no I/O.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::batch::Guards;
use super::request::{GetGeneration, GetSchema, RequestError, TypedRequest};
use crate::protocol::native::Op;
use crate::protocol::reader::Response;
use crate::protocol::response::Violation;
use crate::typed::{ColumnBuffers, ColumnError, MatrixNumber, MatrixPlan, OwnedRow, Projection, Schema, TypedRow};

/// Maximum number of repetitions of a call because the server replaced its table.
pub(super) const TABLE_CHANGES_MAX: u32 = 10;
/// The maximum number of requests that must be answered from one table. A call with more requests sends them in several
/// batches, so that it succeeds even if the server replaces its table every second.
pub(super) const BATCH_LEN_MAX: usize = 1 << 16;
/// The guards of a batch that one table must answer: they also request its schema.
pub(super) const TABLE_GUARDS: Guards = Guards { before: &[Op::Generation, Op::Schema], after: Op::Generation };

/// The responses to [`TABLE_GUARDS`].
#[derive(Default)]
pub(super) struct TableFound {
    generations: [u64; 2],
    schema: Option<Schema>,
}

pub(super) enum Wanted<'a> {
    /// All columns of the table.
    All,
    /// The columns with these names.
    Names(Vec<&'a str>),
}

/// The columns that requests select: a projection of the table's schema.
pub(super) struct SelectedColumns {
    /// The names of the columns. `None` if all columns were requested.
    names: Option<Box<[String]>>,
    pub(super) projection: Projection,
    /// The projection of all selected columns, whose source is the schema of received rows.
    received: Projection,
}

/// The last known columns of the table, which the server may have replaced since.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnsCache {
    schema: Option<Arc<Schema>>,
    selected: Option<Arc<SelectedColumns>>,
}

/// Some columns of the rows of many keys, received from a server.
///
/// # Example
/// ```no_run
/// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
/// let rows = client.get_projected(&[7, 8, 9], &["price", "stock"])?;
/// for row in rows.iter().flatten() {
///     println!("{} {}", row.get::<f32>("price")?, row.get::<u16>("stock")?);
/// }
/// // The same cells, column by column:
/// let buffers = rows.into_buffers()?;
///
/// // Columns of one type as a matrix with a row for each key:
/// let rows = client.get_projected(&[7, 8, 9], &["price", "weight"])?;
/// let mut matrix = [0.0_f32; 3 * 2];
/// let found_count = rows.matrix(f32::NAN, &mut matrix)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ProjectedRows {
    selected: Arc<SelectedColumns>,
    /// All rows, without separators.
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// The results for keys: rows of a typed table, or values.
#[derive(Clone, Debug)]
pub enum RowsOrValues {
    /// The rows of a typed table.
    Rows(ProjectedRows),
    /// The values of a table without a schema.
    Values(ReceivedValues),
}

/// The values of many keys, received from a server.
#[derive(Clone, Debug, Default)]
pub struct ReceivedValues {
    /// All values, without separators.
    bytes: Vec<u8>,
    /// For each key, the range of its value in `bytes`, or `None` if the table does not have the key.
    ranges: Vec<Option<Range<usize>>>,
}

impl TableFound {
    /// Stores the response to the guard at a position.
    pub(super) fn set(&mut self, at: usize, response: Response<'_>) -> Result<(), RequestError> {
        match at {
            1 => self.schema = GetSchema.decode(response)?,
            _ => self.generations[usize::from(at > 1)] = GetGeneration.decode(response)?,
        }
        Ok(())
    }

    /// Returns the schema of the table that answered the whole batch, or `Some(None)` if it has no schema. Returns
    /// `None` if the server replaced its table in between.
    pub(super) fn schema(self) -> Option<Option<Schema>> {
        (self.generations[0] == self.generations[1]).then_some(self.schema)
    }
}

impl ReceivedValues {
    /// Stores the value of the key at a position, and drops the values of later keys.
    pub(super) fn set(&mut self, position: usize, value: Option<&[u8]>) {
        if position < self.ranges.len() {
            self.ranges.truncate(position);
            self.bytes.truncate(self.ranges.iter().rev().flatten().next().map_or(0, |range| range.end));
        }
        self.push(value);
    }

    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ranges.push(value.map(|_| start..self.bytes.len()));
    }

    /// Returns the values of all keys: those of `missing` positions are, in order, `others`.
    pub(super) fn with(self, missing: &[usize], others: &ReceivedValues) -> ReceivedValues {
        if missing.is_empty() {
            return self;
        }
        let mut values = ReceivedValues::default();
        let (mut missing, mut others) = (missing.iter().peekable(), others.iter());
        for (position, value) in self.iter().enumerate() {
            match missing.next_if_eq(&&position) {
                Some(_) => values.push(others.next().flatten()),
                None => values.push(value),
            }
        }
        values
    }

    /// Combines the values that several servers sent. Each part has the positions of its keys among all keys.
    #[cfg(feature = "cluster")]
    pub(super) fn combine(key_count: usize, parts: Vec<(Vec<usize>, ReceivedValues)>) -> ReceivedValues {
        let mut found: Vec<Option<&[u8]>> = vec![None; key_count];
        for (positions, part) in &parts {
            positions.iter().zip(part.iter()).for_each(|(position, value)| found[*position] = value);
        }
        let mut values = ReceivedValues::default();
        found.into_iter().for_each(|value| values.push(value));
        values
    }

    /// Returns an iterator over the values of all keys, in the order of the keys, with `None` for keys that the table
    /// does not have.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.ranges.iter().map(|range| range.clone().map(|range| &self.bytes[range]))
    }
}

#[derive(Clone)]
enum Place {
    /// The response has not arrived.
    Pending,
    Missing,
    /// The row's bytes in [`ProjectedRows::bytes`].
    At(Range<usize>),
}

pub(super) struct ColumnLookup {
    rows: Option<ProjectedRows>,
    key_count: usize,
    /// The positions of the keys without a row, in ascending order.
    pending: Vec<usize>,
    changes: u32,
}

impl Wanted<'_> {
    pub(super) fn select(&self, schema: &Schema) -> Result<SelectedColumns, ColumnError> {
        let projection = match self {
            Wanted::All => Projection::of_all(schema),
            Wanted::Names(names) => Projection::new(schema, names)?,
        };
        let names = match self {
            Wanted::All => None,
            Wanted::Names(names) => Some(names.iter().map(|name| (*name).to_owned()).collect()),
        };
        let received = Projection::of_all(projection.schema());
        Ok(SelectedColumns { names, projection, received })
    }

    fn is_of(&self, selected: &SelectedColumns) -> bool {
        match (self, &selected.names) {
            (Wanted::All, None) => true,
            (Wanted::Names(wanted), Some(names)) => wanted.iter().eq(names.iter()),
            _ => false,
        }
    }
}

impl SelectedColumns {
    fn schema(&self) -> &Schema {
        self.projection.schema()
    }
}

impl ColumnsCache {
    /// Returns the columns, if they are the columns that were selected last.
    pub(super) fn selected(&self, wanted: &Wanted<'_>) -> Option<Arc<SelectedColumns>> {
        self.selected.as_ref().filter(|selected| wanted.is_of(selected)).cloned()
    }

    /// Returns the schema that the table had at the time of the last request for it.
    pub(super) fn schema(&self) -> Option<Arc<Schema>> {
        self.schema.clone()
    }

    /// Stores columns that were selected from the stored schema.
    pub(super) fn select(&mut self, selected: SelectedColumns) -> Arc<SelectedColumns> {
        Arc::clone(self.selected.insert(Arc::new(selected)))
    }

    pub(super) fn set_schema(&mut self, schema: Option<Schema>) -> Option<Arc<Schema>> {
        self.set_shared_schema(schema.map(Arc::new))
    }

    pub(super) fn set_shared_schema(&mut self, schema: Option<Arc<Schema>>) -> Option<Arc<Schema>> {
        let is_known = self.schema.as_ref().map(|known| known.id()) == schema.as_ref().map(|schema| schema.id());
        if !is_known {
            *self = ColumnsCache { schema, selected: None };
        }
        self.schema()
    }

    /// Returns whole values as rows of the table's schema, or as they are if it has no schema.
    pub(super) fn rows_or_values(
        &mut self,
        schema: Option<Arc<Schema>>,
        values: ReceivedValues,
    ) -> Result<RowsOrValues, RequestError> {
        let Some(schema) = self.set_shared_schema(schema) else { return Ok(RowsOrValues::Values(values)) };
        let selected = match self.selected(&Wanted::All) {
            Some(selected) => selected,
            None => {
                let all = Wanted::All.select(&schema).expect("each schema has all of its columns");
                self.select(all)
            }
        };
        let mut rows = ProjectedRows::new(selected, values.ranges.len());
        for (position, value) in values.iter().enumerate() {
            rows.set(position, value)?;
        }
        Ok(RowsOrValues::Rows(rows))
    }

    /// Forgets the schema and the columns, because the table has another schema.
    pub(super) fn forget(&mut self) {
        *self = ColumnsCache::default();
    }
}

impl ColumnLookup {
    pub(super) fn new(key_count: usize) -> ColumnLookup {
        ColumnLookup { rows: None, key_count, pending: (0..key_count).collect(), changes: 0 }
    }

    /// Counts a change of the table's schema. Returns the number of changes if there were too many.
    pub(super) fn count_change(&mut self) -> Result<(), u32> {
        self.changes += 1;
        if self.changes > TABLE_CHANGES_MAX { Err(self.changes) } else { Ok(()) }
    }

    /// Begins an attempt to request these columns. Returns the positions of the keys to request, and the rows. Rows
    /// that were received with other columns are requested again.
    pub(super) fn begin(&mut self, selected: &Arc<SelectedColumns>) -> (&[usize], &mut ProjectedRows) {
        let is_same = |rows: &ProjectedRows| rows.schema().id() == selected.schema().id();
        self.rows = self.rows.take().filter(is_same);
        let rows = self.rows.get_or_insert_with(|| ProjectedRows::new(Arc::clone(selected), self.key_count));
        self.pending.clear();
        self.pending.extend((0..self.key_count).filter(|at| matches!(rows.places[*at], Place::Pending)));
        (&self.pending, rows)
    }

    pub(super) fn take_complete(&mut self) -> Option<ProjectedRows> {
        self.rows.take_if(|rows| !rows.places.iter().any(|place| matches!(place, Place::Pending)))
    }
}

impl ProjectedRows {
    fn new(selected: Arc<SelectedColumns>, key_count: usize) -> ProjectedRows {
        ProjectedRows { selected, bytes: Vec::new(), places: vec![Place::Pending; key_count] }
    }

    /// Combines the rows that several servers sent. Each part has the positions of its keys among all keys. Returns
    /// `None` if there is no part, or if the rows of the parts have different columns.
    #[cfg(feature = "cluster")]
    pub(super) fn combine(key_count: usize, parts: Vec<(Vec<usize>, ProjectedRows)>) -> Option<ProjectedRows> {
        let (_, first) = parts.first()?;
        let mut rows = ProjectedRows::new(Arc::clone(&first.selected), key_count);
        for (positions, part) in &parts {
            if part.schema().id() != rows.schema().id() {
                return None;
            }
            for (position, row) in positions.iter().zip(part.iter()) {
                rows.set(*position, row.map(|row| row.as_bytes())).ok()?;
            }
        }
        Some(rows)
    }

    /// Stores the row of the key at a position, or `None` if the table does not have the key.
    pub(super) fn set(&mut self, position: usize, row: Option<&[u8]>) -> Result<(), RequestError> {
        let Some(row) = row else {
            self.places[position] = Place::Missing;
            return Ok(());
        };
        if TypedRow::new(self.selected.schema(), row).is_err() {
            return Err(RequestError::Violation(Violation::Row { len_bytes: row.len() }));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.places[position] = Place::At(start..self.bytes.len());
        Ok(())
    }

    /// Returns the schema of the rows: the requested columns, in the requested order.
    pub fn schema(&self) -> &Schema {
        self.selected.schema()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether no keys were requested.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the row of the key at a position, or `None` if the table does not have the key.
    ///
    /// # Panics
    /// If fewer keys were requested.
    pub fn row(&self, position: usize) -> Option<TypedRow<'_>> {
        let Place::At(range) = &self.places[position] else { return None };
        let row = TypedRow::new(self.schema(), &self.bytes[range.clone()]);
        Some(row.expect("the length was checked when the row was received"))
    }

    /// Returns an iterator over the rows of all keys, in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<TypedRow<'_>>> {
        (0..self.len()).map(|position| self.row(position))
    }

    /// Copies the cells into one buffer for each column. A missing key has no value in any column.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if a row is not a row of the schema.
    pub fn into_buffers(self) -> Result<ColumnBuffers, ColumnError> {
        let mut buffers = ColumnBuffers::new(self.schema(), &self.selected.received);
        for row in self.iter() {
            match row {
                Some(row) => buffers.push(&row)?,
                None => buffers.push_missing(),
            }
        }
        Ok(buffers)
    }

    /// Returns the number of columns of [`ProjectedRows::matrix`].
    ///
    /// # Errors
    /// [`ColumnError::Matrix`] if a column is neither of the type `T` nor a list of fixed length of this type.
    pub fn matrix_width<T: MatrixNumber + Default>(&self) -> Result<usize, ColumnError> {
        Ok(self.matrix_plan(T::default())?.width())
    }

    /// Copies the cells into a matrix with a row for each key: `to` has the rows one after another. `fill` takes the
    /// place of null cells and of the cells of missing keys. Returns the number of keys that the table has.
    ///
    /// # Errors
    /// [`ColumnError::Matrix`] if a column is neither of the type `T` nor a list of fixed length of this type.
    ///
    /// # Panics
    /// If the length of `to` is not the number of keys multiplied by [`ProjectedRows::matrix_width`].
    pub fn matrix<T: MatrixNumber>(&self, fill: T, to: &mut [T]) -> Result<usize, ColumnError> {
        let plan = self.matrix_plan(fill)?;
        assert_eq!(to.len(), self.len() * plan.width(), "the number of cells of the matrix");
        let mut found_count = 0;
        for (row, to) in self.iter().zip(to.chunks_exact_mut(plan.width())) {
            match row {
                Some(row) => plan.copy(&row, to),
                None => to.fill(fill),
            }
            found_count += usize::from(row.is_some());
        }
        Ok(found_count)
    }

    fn matrix_plan<T: MatrixNumber>(&self, fill: T) -> Result<MatrixPlan<T>, ColumnError> {
        MatrixPlan::new(self.schema(), &self.selected.received, fill)
    }

    /// Returns the row of the only key.
    pub(super) fn into_only_row(self) -> Option<OwnedRow> {
        let [Place::At(_)] = self.places[..] else { return None };
        let row = OwnedRow::new(Arc::clone(self.selected.projection.shared_schema()), self.bytes);
        Some(row.expect("the length was checked when the row was received"))
    }
}

impl fmt::Debug for SelectedColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SelectedColumns({})", self.schema())
    }
}

impl fmt::Debug for ProjectedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (schema, len) = (self.schema(), self.len());
        f.debug_struct("ProjectedRows").field("schema", schema).field("len", &len).finish_non_exhaustive()
    }
}
