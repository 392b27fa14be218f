//! Writes one section of a file front to back, and computes the checksums of its blocks.
//!
//! In: byte slices of any length. Out: the bytes in the file, and one checksum per block, computed from the bytes that
//! were passed in. Another thread can compute checksums and write while the caller produces the next bytes.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::panic;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use zerocopy::little_endian::U64;

use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum};

/// The maximum length of a write, a multiple of the block length. Each write ends at a multiple of this length in the
/// file, because the page cache then stores the written bytes in huge pages, if the file system supports them. A write
/// is short enough that its blocks are still in the processor's cache when their checksums are computed.
pub(super) const WRITE_LEN_BYTES: usize = 512 * BLOCK_LEN_BYTES;
/// The maximum number of full buffers that wait for the writing thread.
const WAITING_COUNT: usize = 2;

/// Writes one section front to back.
pub(super) struct SectionWriter {
    pending: Vec<u8>,
    /// The length of `pending` at which it is written.
    write_len_bytes: usize,
    /// The section's offset in the file.
    offset_bytes: u64,
    /// The number of bytes that `sink` has received from `pending`.
    passed_len_bytes: u64,
    sink: BlockSink,
}

enum BlockSink {
    Inline(BlockWriter),
    Thread(BlocksThread),
}

impl SectionWriter {
    /// Returns a writer that starts at an offset of the file. If `threads` is greater than 1, a background thread
    /// computes checksums and writes, unless the system cannot start a thread.
    pub(super) fn new(file: &File, offset_bytes: u64, threads: usize) -> io::Result<SectionWriter> {
        let blocks = || Ok::<_, io::Error>(BlockWriter::new(file.try_clone()?, offset_bytes));
        // Checksums and writes then overlap with the merge, which produces the next bytes.
        let thread = if threads > 1 { BlocksThread::start(blocks()?).ok() } else { None };
        let sink = match thread {
            Some(thread) => BlockSink::Thread(thread),
            None => BlockSink::Inline(blocks()?),
        };
        let (pending, write_len_bytes) = (Vec::with_capacity(WRITE_LEN_BYTES), write_len_bytes(offset_bytes));
        Ok(SectionWriter { pending, write_len_bytes, offset_bytes, passed_len_bytes: 0, sink })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.passed_len_bytes + self.pending.len() as u64
    }

    /// Returns the write buffer if it has room for `len_bytes` more bytes before the next write.
    #[inline(always)]
    pub(super) fn room(&mut self, len_bytes: usize) -> Option<&mut Vec<u8>> {
        (len_bytes <= self.write_len_bytes - self.pending.len()).then_some(&mut self.pending)
    }

    /// Appends bytes to the section. If the writing thread fails, a later call returns its error.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while bytes.len() > self.write_len_bytes - self.pending.len() {
            let (fits, rest) = bytes.split_at(self.write_len_bytes - self.pending.len());
            self.pending.extend_from_slice(fits);
            self.pass_on()?;
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the bytes that are still buffered, and returns the checksums of all blocks.
    pub(super) fn finish(mut self) -> io::Result<Vec<U64>> {
        self.pass_on()?;
        match self.sink {
            BlockSink::Inline(blocks) => Ok(blocks.into_sums()),
            BlockSink::Thread(mut thread) => Ok(thread.end()?.into_sums()),
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.passed_len_bytes += self.pending.len() as u64;
        self.write_len_bytes = write_len_bytes(self.offset_bytes + self.passed_len_bytes);
        match &mut self.sink {
            BlockSink::Inline(blocks) => blocks.write(&self.pending)?,
            BlockSink::Thread(thread) => self.pending = thread.pass_on(mem::take(&mut self.pending))?,
        }
        self.pending.clear();
        Ok(())
    }
}

/// Returns the length of a write at an offset of the file.
fn write_len_bytes(offset_bytes: u64) -> usize {
    WRITE_LEN_BYTES - (offset_bytes % WRITE_LEN_BYTES as u64) as usize
}

/// Writes the bytes of a section and computes the checksums of its blocks.
struct BlockWriter {
    file: File,
    offset_bytes: u64,
    sums: Vec<U64>,
    /// The bytes of the last block, if the block is not complete.
    incomplete: Vec<u8>,
}

impl BlockWriter {
    fn new(file: File, offset_bytes: u64) -> BlockWriter {
        BlockWriter { file, offset_bytes, sums: Vec::new(), incomplete: Vec::with_capacity(BLOCK_LEN_BYTES) }
    }

    fn add_sums(&mut self, bytes: &[u8]) {
        let missing_len_bytes = (BLOCK_LEN_BYTES - self.incomplete.len()) % BLOCK_LEN_BYTES;
        let (end, rest) = bytes.split_at(missing_len_bytes.min(bytes.len()));
        self.incomplete.extend_from_slice(end);
        if self.incomplete.len() == BLOCK_LEN_BYTES {
            self.sums.push(block_sum(&self.incomplete));
            self.incomplete.clear();
        }
        let blocks = rest.chunks_exact(BLOCK_LEN_BYTES);
        self.incomplete.extend_from_slice(blocks.remainder());
        self.sums.extend(blocks.map(block_sum));
    }

    /// Returns the checksums of all blocks, including the last block, which may be shorter.
    fn into_sums(mut self) -> Vec<U64> {
        if !self.incomplete.is_empty() {
            self.sums.push(block_sum(&self.incomplete));
        }
        self.sums
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add_sums(bytes);
        self.file.write_all_at(bytes, self.offset_bytes)?;
        self.offset_bytes += bytes.len() as u64;
        Ok(())
    }
}

/// A thread that runs a [`BlockWriter`].
struct BlocksThread {
    /// Sends full buffers to the thread. After the last buffer, this field is `None`.
    full: Option<SyncSender<Vec<u8>>>,
    /// Receives empty buffers from the thread, for reuse.
    empty: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<BlockWriter>>>,
}

impl BlocksThread {
    fn start(mut blocks: BlockWriter) -> io::Result<BlocksThread> {
        let (full, to_write) = sync_channel::<Vec<u8>>(WAITING_COUNT);
        let (written, empty) = sync_channel(WAITING_COUNT + 1);
        for _ in 0..=WAITING_COUNT {
            // The channel has room for all of these buffers, so this call does not block.
            let _ = written.send(Vec::with_capacity(WRITE_LEN_BYTES));
        }
        let work = move || {
            for bytes in to_write {
                blocks.write(&bytes)?;
                // After the last write, the receiver may be closed.
                let _ = written.send(bytes);
            }
            Ok(blocks)
        };
        let thread = thread::Builder::new().name("write".to_owned()).spawn(work)?;
        Ok(BlocksThread { full: Some(full), empty, thread: Some(thread) })
    }

    fn pass_on(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let sent = self.full.as_ref().is_some_and(|full| full.send(bytes).is_ok());
        match self.empty.recv() {
            Ok(buffer) if sent => Ok(buffer),
            // The thread ends early only with an error.
            _ => Err(self.end().err().unwrap_or_else(|| io::Error::other("the writing thread has ended"))),
        }
    }

    /// Waits until the thread has written all buffers, and returns the thread's [`BlockWriter`].
    fn end(&mut self) -> io::Result<BlockWriter> {
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            Some(Err(payload)) => panic::resume_unwind(payload),
            None => Err(io::Error::other("an earlier write has failed")),
        }
    }
}

impl Drop for BlocksThread {
    /// Joins the thread, so that it does not write to the file after the bake has failed.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&[u8]], threads: usize) -> (Vec<u8>, Vec<U64>) {
        let file = tempfile::tempfile().unwrap();
        let mut section = SectionWriter::new(&file, 64, threads).unwrap();
        pieces.iter().for_each(|piece| section.push(piece).unwrap());
        let len_bytes = section.len_bytes() as usize;
        let sums = section.finish().unwrap();
        let mut bytes = vec![0; len_bytes];
        file.read_exact_at(&mut bytes, 64).unwrap();
        (bytes, sums)
    }

    #[test]
    fn a_section_and_its_checksums_do_not_depend_on_threads() {
        let long: Vec<u8> = (0..9 * WRITE_LEN_BYTES as u32 + 5).map(|i| (i.wrapping_mul(40_503) >> 11) as u8).collect();
        let (mut pieces, mut at) = (Vec::new(), 0);
        for len in [0, 1, 7, WRITE_LEN_BYTES, WRITE_LEN_BYTES - 8, 3 * WRITE_LEN_BYTES + 1, 100_000].iter().cycle() {
            if at == long.len() {
                break;
            }
            let end = (at + len).min(long.len());
            pieces.push(&long[at..end]);
            at = end;
        }
        let sums: Vec<U64> = long.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
        for threads in [1, 2] {
            assert!(written(&pieces, threads) == (long.clone(), sums.clone()), "{threads} threads");
            assert_eq!(written(&[], threads), (vec![], vec![]));
        }
    }

    #[test]
    fn a_write_error_is_returned_by_push_or_finish() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read-only");
        std::fs::write(&path, b"").unwrap();
        for threads in [1, 2] {
            let mut section = SectionWriter::new(&File::open(&path).unwrap(), 0, threads).unwrap();
            let piece = vec![1; WRITE_LEN_BYTES / 2];
            let pushed = (0..100).find_map(|_| section.push(&piece).err()).expect("an error within 100 writes");
            assert_eq!(pushed.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()), "{threads} threads");
            assert!(section.finish().is_err(), "{threads} threads");
            let mut section = SectionWriter::new(&File::open(&path).unwrap(), 0, threads).unwrap();
            section.push(&piece).unwrap();
            assert!(section.finish().is_err(), "{threads} threads");
        }
    }
}
