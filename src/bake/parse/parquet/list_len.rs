//! Infers that all lists of a column have one length.
//!
//! In: the first lists of a file, and the numbers of values in its metadata. Out: the length, if the first lists have
//! the same length, and if the metadata allows that all others have this length, too. Few other lists have numbers of
//! values that allow it; they are bad rows.

use std::fs::File;

use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};

use super::Group;
use super::column::{Cells, ColumnType};
use crate::bake::typed::infer::{LIST_LEN_MIN, ListLen};

/// Returns the length of the lists of a column.
///
/// # Errors
/// [`ParquetError`] if the first rows of the column cannot be read.
pub(super) fn inferred(file: &SerializedFileReader<File>, column: &ColumnType) -> Result<Option<u32>, ParquetError> {
    let groups = file.metadata().row_groups();
    let Some(first) = groups.iter().position(|group| group.num_rows() > 0) else { return Ok(None) };
    let mut group = Group::open(file, first, std::slice::from_ref(column))?;
    let (group_rows, rows) = (group.rows_left, group.piece_rows.min(group.rows_left) as usize);
    let cells = column.read(&mut group.readers[0], rows)?;
    // The metadata need not tell what was read.
    let is_read = |i: usize| i == first && rows as u64 == group_rows;
    let allowed = |len: &u32| groups.iter().enumerate().all(|(i, group)| is_read(i) || allows(group, column, *len));
    Ok(len_of_all(column, &cells).filter(allowed))
}

fn len_of_all(column: &ColumnType, cells: &Cells) -> Option<u32> {
    let (Some(level), Some(defs), Some(reps)) = (column.element_level, &cells.def_levels, &cells.rep_levels) else {
        return None;
    };
    let mut lens = ListLen::default();
    let mut current = None;
    for (def, rep) in defs.iter().zip(reps) {
        match (rep, &mut current) {
            (0, _) => {
                current.take().into_iter().for_each(|len| lens.add(len));
                // An empty list has the level just below its elements' level, and null has a lower one.
                current = (*def >= level - 1).then_some(usize::from(*def >= level));
            }
            (_, Some(len)) => *len += 1,
            (_, None) => return None,
        }
    }
    current.into_iter().for_each(|len| lens.add(len));
    lens.of_all()
}

/// Returns whether all lists of a row group can have a length. The metadata counts one value for each element, and one
/// for each list without elements. Only the histogram of levels, which not all files have, tells whether such a list is
/// null or empty.
fn allows(group: &RowGroupMetaData, column: &ColumnType, len: u32) -> bool {
    const _: () = assert!(LIST_LEN_MIN > 1);
    let chunk = group.column(column.leaf);
    let rows = group.num_rows();
    let (more, more_per_list) = (chunk.num_values().saturating_sub(rows), i64::from(len) - 1);
    let lists = more / more_per_list;
    let empty_level = column.element_level.and_then(|level| usize::try_from(level - 1).ok());
    let has_no_empty = || {
        let levels = chunk.definition_level_histogram().zip(empty_level);
        levels.and_then(|(levels, empty_level)| levels.get(empty_level)) == Some(0)
    };
    more % more_per_list == 0 && (lists == rows || ((0..rows).contains(&lists) && has_no_empty()))
}
