//! Collects the groups of the compact layout while the values are written.
//!
//! In: the key, the end of the range, and the length of the value of each row, in key order. Out: the groups in an
//! unnamed temporary file, because they follow the values in the table's file, and the values have not ended yet.

use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::folder::unnamed_file_in;
use crate::format::group::{GROUP_ROWS, Group, GroupRow, write_group};

/// The number of bytes that are collected before they are written.
const BUFFER_LEN_BYTES: usize = 256 << 10;

/// Writes groups to a temporary file.
pub(super) struct GroupsWriter {
    file: File,
    folder: PathBuf,
    /// Whether the rows are ranges.
    has_ranges: bool,
    /// The rows after the last complete group.
    rows: Vec<GroupRow>,
    /// The position of the first value of these rows.
    position: u64,
    /// Groups that are not in the file yet.
    pending: Vec<u8>,
    written_len_bytes: u64,
    sum: XxHash3_64,
}

/// The groups of a table, in a temporary file.
#[derive(Clone, Debug)]
pub(super) struct WrittenGroups {
    file: Arc<File>,
    pub(super) folder: PathBuf,
    pub(super) len_bytes: u64,
    has_ranges: bool,
    /// The checksum of all groups.
    sum: u64,
}

impl GroupsWriter {
    pub(super) fn new(folder: &Path, has_ranges: bool) -> io::Result<GroupsWriter> {
        Ok(GroupsWriter {
            file: unnamed_file_in(folder).map_err(|error| in_folder(folder, &error))?,
            folder: folder.to_path_buf(),
            has_ranges,
            rows: Vec::with_capacity(GROUP_ROWS),
            position: 0,
            pending: Vec::with_capacity(BUFFER_LEN_BYTES),
            written_len_bytes: 0,
            sum: XxHash3_64::new(),
        })
    }

    /// Adds a row. Its key must be greater than the keys and ends of all earlier rows. It must have an end in a table of
    /// ranges, and no end in another table.
    #[inline]
    pub(super) fn push(&mut self, row: GroupRow) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    #[inline(never)]
    fn end_group(&mut self) -> io::Result<()> {
        write_group(&self.rows, self.position, &mut self.pending);
        self.position += self.rows.iter().map(|row| row.value_len_bytes).sum::<u64>();
        self.rows.clear();
        if self.pending.len() >= BUFFER_LEN_BYTES - (1 << 10) { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sum.write(&self.pending);
        let written = self.file.write_all_at(&self.pending, self.written_len_bytes);
        written.map_err(|error| in_folder(&self.folder, &error))?;
        self.written_len_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<WrittenGroups> {
        if !self.rows.is_empty() {
            self.end_group()?;
        }
        self.flush()?;
        Ok(WrittenGroups {
            file: Arc::new(self.file),
            folder: self.folder,
            len_bytes: self.written_len_bytes,
            has_ranges: self.has_ranges,
            sum: self.sum.finish(),
        })
    }
}

impl WrittenGroups {
    /// Passes the bytes and the first key of each group of a table with `row_count` rows to `take`, in key order.
    /// Returns an error if the temporary file has changed.
    pub(super) fn each<E: From<io::Error>>(
        &self,
        row_count: u64,
        mut take: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut bytes, mut read_len_bytes, mut rows_left) = (Vec::new(), 0, row_count);
        let mut sum = XxHash3_64::new();
        while rows_left > 0 {
            let kept = bytes.len();
            let len_bytes = (self.len_bytes - read_len_bytes).min((BUFFER_LEN_BYTES - kept) as u64) as usize;
            bytes.resize(kept + len_bytes, 0);
            self.file.read_exact_at(&mut bytes[kept..], read_len_bytes)?;
            sum.write(&bytes[kept..]);
            read_len_bytes += len_bytes as u64;
            let mut at = 0;
            while rows_left > 0
                && let Some(group) = Group::at(&bytes, at, rows_left.min(GROUP_ROWS as u64) as usize, self.has_ranges)
                && at + group.len_bytes() <= bytes.len()
            {
                take(&bytes[at..at + group.len_bytes()], group.key(0))?;
                rows_left -= group.row_count() as u64;
                at += group.len_bytes();
            }
            if at == 0 {
                return Err(changed().into());
            }
            bytes.drain(..at);
        }
        if sum.finish() == self.sum && bytes.is_empty() { Ok(()) } else { Err(changed().into()) }
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the groups of the table changed after they were written")
}

/// Returns an error that names the folder of the temporary file.
fn in_folder(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(keys: &[u64], has_ranges: bool) -> (WrittenGroups, Vec<u8>) {
        let mut groups = GroupsWriter::new(&std::env::temp_dir(), has_ranges).unwrap();
        let row = |key: &u64| GroupRow { key: *key, end: has_ranges.then_some(*key), value_len_bytes: key % 50 };
        keys.iter().for_each(|key| groups.push(row(key)).unwrap());
        let mut position = 0;
        let mut expected = Vec::new();
        for rows in keys.chunks(GROUP_ROWS) {
            let rows: Vec<GroupRow> = rows.iter().map(row).collect();
            write_group(&rows, position, &mut expected);
            position += rows.iter().map(|row| row.value_len_bytes).sum::<u64>();
        }
        (groups.finish().unwrap(), expected)
    }

    #[test]
    fn groups_are_read_as_they_were_written() {
        let counts = [0, 1, 31, 32, 33, 100_000];
        for (count, has_ranges) in counts.into_iter().flat_map(|count| [(count, false), (count, true)]) {
            let keys: Vec<u64> = (0..count).map(|key| key * key).collect();
            let (groups, expected) = written(&keys, has_ranges);
            let (mut found, mut heads) = (Vec::new(), Vec::new());
            let each = groups.each(count, |bytes, head| {
                found.extend_from_slice(bytes);
                heads.push(head);
                Ok::<_, io::Error>(())
            });
            each.unwrap();
            assert!(found == expected && groups.len_bytes == expected.len() as u64, "{count} rows");
            assert!(heads.into_iter().eq(keys.iter().copied().step_by(GROUP_ROWS)));
        }
    }

    #[test]
    fn a_change_of_the_temporary_file_is_an_error() {
        let keys: Vec<u64> = (0..10_000).map(|key| key << 20).collect();
        let (groups, expected) = written(&keys, false);
        for at in (0..expected.len()).step_by(997) {
            groups.file.write_all_at(&[expected[at] ^ 1], at as u64).unwrap();
            let error = groups.each(10_000, |_, _| Ok::<_, io::Error>(())).unwrap_err();
            assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{error}");
            groups.file.write_all_at(&expected[at..=at], at as u64).unwrap();
        }
        groups.each(10_000, |_, _| Ok::<_, io::Error>(())).unwrap();
    }
}
