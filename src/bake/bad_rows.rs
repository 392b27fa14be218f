//! Skips bad rows, counts them, and writes them to a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{BakeError, RowFault};
use super::place::{Cancel, NewFile, PlaceError};
use crate::csv_text::{csv_error, csv_settings};
use crate::special_file::open_special;

/// The policy for bad rows. A bad row is a row of an input that cannot be baked, for example because it has no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BadRows {
    /// Fail at the first bad row.
    #[default]
    Refuse,
    /// Skip bad rows, up to a limit.
    Skip {
        /// The path of a CSV file for the skipped rows. The file has a header and one entry per skipped row, with the
        /// input's name, the row's line number, the reason, and the row's text. If `None`, skipped rows are not written
        /// to a file.
        file: Option<PathBuf>,
        /// The maximum number of skipped rows. If there are more bad rows, the bake fails.
        max: u64,
    },
}

/// Counts the bad rows and, if the options name a file for them, writes them to this file in the order of the input.
///
/// The file gets its final name after all inputs have been read, or when the number of bad rows exceeds the limit.
#[derive(Default)]
pub(super) struct BadRowsFile {
    file: Option<OpenFile>,
    max: u64,
    count: u64,
}

struct OpenFile {
    path: PathBuf,
    writer: csv::Writer<File>,
    /// The new file, which is renamed to `path` after the last bad row is written. `None` if `path` is a terminal, a
    /// pipe, or another special file: bad rows are then written directly to `path`.
    new: Option<NewFile>,
}

impl OpenFile {
    fn create(path: &Path) -> io::Result<Self> {
        let (file, new) = match open_special(path)? {
            Some(special) => (special, None),
            None => {
                // Uses a separate `Cancel`, because the bake's own `Cancel` would record the rename of this file as the
                // replacement of the output.
                let new = NewFile::beside(path, &Cancel::default())?;
                (new.file().try_clone()?, Some(new))
            }
        };
        let header = ["input", "line", "reason", "row"];
        let mut writer = csv_settings(b',', header[0].as_bytes()).from_writer(file);
        writer.write_record(header).map_err(csv_error)?;
        Ok(OpenFile { path: path.to_path_buf(), writer, new })
    }

    fn write(&mut self, row: &BadRow) -> Result<(), BakeError> {
        let (line, fault) = (row.line.to_string(), row.fault.to_string());
        let written = self.writer.write_record([row.input.as_bytes(), line.as_bytes(), fault.as_bytes(), &row.text]);
        written.map_err(|error| BakeError::BadRowsFile { path: self.path.clone(), error: csv_error(error) })
    }

    fn finish(mut self) -> Result<(), BakeError> {
        let flushed = self.writer.flush().map_err(PlaceError::Unplaced);
        let placed = flushed.and_then(|()| self.new.map_or(Ok(()), NewFile::put_in_place));
        let (PlaceError::Unplaced(error) | PlaceError::FolderSync(error)) = match placed {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        Err(BakeError::BadRowsFile { path: self.path, error })
    }
}

impl BadRowsFile {
    pub(super) fn create(bad_rows: &BadRows) -> Result<Self, BakeError> {
        let BadRows::Skip { file, max } = bad_rows else { return Ok(BadRowsFile { file: None, max: 0, count: 0 }) };
        let create = |path: &PathBuf| {
            OpenFile::create(path).map_err(|error| BakeError::BadRowsFile { path: path.clone(), error })
        };
        Ok(BadRowsFile { file: file.as_ref().map(create).transpose()?, max: *max, count: 0 })
    }

    pub(super) fn take(&mut self, rows: Vec<BadRow>) -> Result<(), BakeError> {
        for row in rows {
            self.count += 1;
            if let Some(file) = &mut self.file {
                file.write(&row)?;
            }
            if self.count > self.max {
                self.file.take().map_or(Ok(()), OpenFile::finish)?;
                let BadRow { input, line, fault, .. } = row;
                let (bad_rows, bad_rows_max) = (self.count, self.max);
                return Err(BakeError::BadRows { input, line, fault: Box::new(fault), bad_rows, bad_rows_max });
            }
        }
        Ok(())
    }

    /// Gives the bad-rows file, if there is one, its final name. Returns the number of bad rows.
    pub(super) fn finish(self) -> Result<u64, BakeError> {
        self.file.map_or(Ok(()), OpenFile::finish)?;
        Ok(self.count)
    }
}

/// A bad row that the bake skips.
pub(in crate::bake) struct BadRow {
    pub(in crate::bake) input: String,
    pub(in crate::bake) line: u64,
    pub(in crate::bake) fault: RowFault,
    pub(in crate::bake) text: Vec<u8>,
}
