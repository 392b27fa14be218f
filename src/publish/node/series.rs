//! Which documents of a numbered series a node reads.
//!
//! In: the results of reads. Out: the next number to read, until a number is missing. A document that cannot be decoded
//! does not hide later ones: the reader passes over it, so a newer document leads out of every damaged state.

/// The maximum number of documents that a node reads in a round. It reads the others in the next round.
const READS_MAX: u32 = 32;
/// The maximum number of documents between the newest one that was read and the newest one that exists, for which a node
/// reads all of them. Otherwise, it continues with the newest one.
const SKIPPED_MAX: u64 = 8;

/// The reader of a series.
#[derive(Clone, Debug)]
pub(super) struct SeriesReader {
    /// The number of the newest document that was read, or 0.
    number: u64,
    /// The highest number that is known to exist. It never decreases.
    exists: u64,
    /// Whether the newest number was searched since the node started.
    is_searched: bool,
    /// Whether the reader goes back from a damaged document that the search found.
    is_descending: bool,
    /// The number that is read next in this round. `None` after the last read.
    next: Option<u64>,
    reads: u32,
}

/// The next read of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesRead {
    /// Find the newest number. The contained number is known to exist, or 0.
    Search(u64),
    /// Read the document with a number.
    Number(u64),
}

impl Default for SeriesReader {
    fn default() -> SeriesReader {
        SeriesReader::new(0)
    }
}

impl SeriesReader {
    /// Creates a reader that has read the document with a number before the node started, or none if it is 0.
    pub(super) fn new(number: u64) -> SeriesReader {
        SeriesReader { number, exists: number, is_searched: false, is_descending: false, next: None, reads: 0 }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the highest number that is known to exist.
    pub(super) fn exists(&self) -> u64 {
        self.exists
    }

    /// Returns whether the newest document that is known to exist was read.
    pub(super) fn is_known(&self) -> bool {
        self.is_searched && self.number == self.exists
    }

    pub(super) fn begin_round(&mut self) {
        (self.next, self.reads) = (Some(self.first()), 0);
    }

    fn first(&self) -> u64 {
        if self.exists > self.number + SKIPPED_MAX { self.exists } else { self.number + 1 }
    }

    /// Returns the next read of this round, or `None` after the last one.
    pub(super) fn next_read(&self) -> Option<SeriesRead> {
        let number = self.next?;
        Some(if self.is_searched { SeriesRead::Number(number) } else { SeriesRead::Search(self.number) })
    }

    /// Records the newest number that a search found.
    pub(super) fn searched(&mut self, newest: u64) {
        self.exists = self.exists.max(newest);
        self.is_searched = true;
        // Without an earlier document, only the newest one matters, unless it is damaged.
        self.is_descending = self.number == 0 && self.exists > 0;
        self.next = Some(if self.is_descending { self.exists } else { self.first() });
    }

    /// Records that a number exists, which was not found by reading the preceding ones.
    pub(super) fn exists_up_to(&mut self, newest: u64) {
        self.exists = self.exists.max(newest);
    }

    /// Records that a document was read. Returns whether it is the newest one that was read.
    pub(super) fn found(&mut self, number: u64) -> bool {
        let is_newest = number > self.number;
        self.number = self.number.max(number);
        self.exists = self.exists.max(number);
        self.advance(if self.is_descending { self.exists } else { number });
        self.is_descending = false;
        is_newest
    }

    /// Records that a document exists but cannot be decoded.
    pub(super) fn damaged(&mut self, number: u64) {
        self.exists = self.exists.max(number);
        if self.is_descending && number > self.number + 1 && self.reads < READS_MAX / 2 {
            self.advance(number - 2);
        } else {
            self.advance(if self.is_descending { self.exists } else { number });
            self.is_descending = false;
        }
    }

    /// Records that there is no document with a number.
    pub(super) fn missing(&mut self, number: u64) {
        if number > self.exists {
            self.next = None;
        } else {
            // A gap, or a read that did not see the newest state.
            self.advance(number);
        }
    }

    /// Ends the reads of this round, because a read failed.
    pub(super) fn failed(&mut self) {
        self.next = None;
    }

    fn advance(&mut self, number: u64) {
        self.reads += 1;
        self.next = (self.reads < READS_MAX).then_some(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a series whose documents are described by a function: `Some(true)` is intact, `Some(false)` is damaged.
    /// Returns the number of reads.
    fn read(reader: &mut SeriesReader, newest: u64, documents: impl Fn(u64) -> Option<bool>) -> u32 {
        reader.begin_round();
        let mut reads = 0;
        while let Some(next) = reader.next_read() {
            reads += 1;
            match next {
                SeriesRead::Search(known) => reader.searched(newest.max(known)),
                SeriesRead::Number(number) => match documents(number) {
                    Some(true) => drop(reader.found(number)),
                    Some(false) => reader.damaged(number),
                    None => reader.missing(number),
                },
            }
        }
        reads
    }

    #[test]
    fn a_reader_finds_the_newest_intact_document_and_then_reads_one_number_per_round() {
        for newest in 0..12_u64 {
            for damaged in 0..=newest {
                let documents = |number| (number >= 1 && number <= newest).then_some(number <= newest - damaged);
                let mut reader = SeriesReader::new(0);
                read(&mut reader, newest, documents);
                assert_eq!((reader.number(), reader.exists()), (newest - damaged, newest), "{damaged} are damaged");
                assert_eq!(reader.is_known(), damaged == 0);
                // A later document leads out.
                let documents = |number| if number == newest + 1 { Some(true) } else { documents(number) };
                read(&mut reader, newest, documents);
                assert_eq!(reader.number(), newest + 1);
                assert_eq!(read(&mut reader, newest, documents), 1);
                assert!(reader.is_known());
            }
        }
    }

    #[test]
    fn a_number_never_decreases_if_documents_disappear() {
        let mut reader = SeriesReader::new(7);
        read(&mut reader, 0, |_| None);
        assert_eq!((reader.number(), reader.is_known()), (7, true));
        // A gap: 8 is missing, but 9 exists.
        reader.exists_up_to(9);
        read(&mut reader, 0, |number| (number == 9).then_some(true));
        assert_eq!((reader.number(), reader.is_known()), (9, true));
    }
}
