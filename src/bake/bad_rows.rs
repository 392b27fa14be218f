//! Rows that are put aside.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::BakeError;
use super::sort::batch::BadRow;

/// What to do with rows that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BadRows {
    /// Refuse the input.
    #[default]
    Refuse,
    /// Leave them out, up to a number of them.
    Skip {
        /// Where they are written, with input, line and reason: comma-separated, with a header.
        file: Option<PathBuf>,
        /// One more than this is an error.
        max: u64,
    },
}

/// Counts bad rows and writes them down, in the order of the input.
pub(super) struct BadRowsFile {
    file: Option<(PathBuf, csv::Writer<File>)>,
    max: u64,
    count: u64,
}

impl BadRowsFile {
    pub(super) fn create(bad_rows: &BadRows) -> Result<Self, BakeError> {
        let BadRows::Skip { file, max } = bad_rows else { return Ok(BadRowsFile { file: None, max: 0, count: 0 }) };
        let file = file.as_ref().map(|path| match Self::begin(path) {
            Ok(writer) => Ok((path.clone(), writer)),
            Err(error) => Err(BakeError::BadRowsFile { path: path.clone(), error }),
        });
        Ok(BadRowsFile { file: file.transpose()?, max: *max, count: 0 })
    }

    fn begin(path: &Path) -> io::Result<csv::Writer<File>> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record(["input", "line", "reason", "row"])?;
        Ok(writer)
    }

    pub(super) fn take(&mut self, rows: Vec<BadRow>) -> Result<(), BakeError> {
        for BadRow { input, line, fault, text } in rows {
            self.count += 1;
            if let Some((path, writer)) = &mut self.file {
                let (line, fault) = (line.to_string(), fault.to_string());
                let written = writer.write_record([input.as_bytes(), line.as_bytes(), fault.as_bytes(), &text]);
                written.map_err(|error| BakeError::BadRowsFile { path: path.clone(), error: error.into() })?;
            }
            if self.count > self.max {
                self.flush()?;
                let (bad_rows, bad_rows_max) = (self.count, self.max);
                return Err(BakeError::BadRows { input, line, fault, bad_rows, bad_rows_max });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BakeError> {
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        writer.flush().map_err(|error| BakeError::BadRowsFile { path: path.clone(), error })
    }

    /// Gives how many there were.
    pub(super) fn finish(mut self) -> Result<u64, BakeError> {
        self.flush()?;
        Ok(self.count)
    }
}
