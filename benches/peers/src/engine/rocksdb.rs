//! RocksDB, called through the C interface of Debian's library. Table files are written in key order and ingested. The
//! database is opened read-only, with mapped reads.
//!
//! Settings: a Bloom filter of 10 bits per key, a hash index in the blocks, no compression, blocks of 4 KiB, and one
//! iterator for all floors and scans. The block cache is as large as the files, but at most a quarter of the memory.
//! Reads do not verify checksums. Blocks are read from the mapping without a copy.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;

use anyhow::{Result, bail};

use super::{BATCH_KEYS, Engine, Opened, Table};
use crate::machine::{memory_total_bytes, package_version};
use crate::rows::{Rows, Sink};

/// Total length of the rows in one table file.
const FILE_LEN_BYTES: u64 = 256 << 20;

/// An object of the library, such as options, a database, or an iterator.
type Handle = *mut c_void;
type Fault = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_free(memory: *mut c_void);
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: u8);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_allow_mmap_reads(options: Handle, yes: u8);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(table: Handle);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, filter: Handle);
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_data_block_index_type(table: Handle, kind: c_int);
    fn rocksdb_block_based_options_set_format_version(table: Handle, version: c_int);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> Handle;
    fn rocksdb_cache_create_lru(capacity: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);
    fn rocksdb_envoptions_create() -> Handle;
    fn rocksdb_envoptions_destroy(options: Handle);
    fn rocksdb_sstfilewriter_create(environment: Handle, options: Handle) -> Handle;
    fn rocksdb_sstfilewriter_open(writer: Handle, path: *const c_char, fault: Fault);
    fn rocksdb_sstfilewriter_put(
        writer: Handle,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        fault: Fault,
    );
    fn rocksdb_sstfilewriter_finish(writer: Handle, fault: Fault);
    fn rocksdb_sstfilewriter_destroy(writer: Handle);
    fn rocksdb_ingestexternalfileoptions_create() -> Handle;
    fn rocksdb_ingestexternalfileoptions_set_move_files(options: Handle, yes: u8);
    fn rocksdb_ingestexternalfileoptions_destroy(options: Handle);
    fn rocksdb_ingest_external_file(
        db: Handle,
        paths: *const *const c_char,
        count: usize,
        options: Handle,
        fault: Fault,
    );
    fn rocksdb_open(options: Handle, path: *const c_char, fault: Fault) -> Handle;
    fn rocksdb_open_for_read_only_column_families(
        options: Handle,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Handle,
        families: *mut Handle,
        error_if_wal_file_exists: u8,
        fault: Fault,
    ) -> Handle;
    fn rocksdb_column_family_handle_destroy(family: Handle);
    fn rocksdb_close(db: Handle);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_readoptions_set_verify_checksums(options: Handle, yes: u8);
    fn rocksdb_get_pinned(db: Handle, options: Handle, key: *const u8, key_len: usize, fault: Fault) -> Handle;
    fn rocksdb_batched_multi_get_cf(
        db: Handle,
        options: Handle,
        family: Handle,
        count: usize,
        keys: *const *const u8,
        key_lens: *const usize,
        values: *mut Handle,
        faults: *mut *mut c_char,
        sorted: bool,
    );
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(db: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const u8, key_len: usize);
    fn rocksdb_iter_seek_for_prev(iterator: Handle, key: *const u8, key_len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> u8;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Handle, fault: Fault);
}

pub(super) fn engine() -> Engine {
    Engine {
        name: "RocksDB",
        version: package_version("librocksdb-dev"),
        ordered: true,
        batched: true,
        batched_floors: false,
        small: false,
        build: Some(build),
        open,
    }
}

/// A handle and the function that frees it.
struct Owned(Handle, unsafe extern "C" fn(Handle));

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle was created by the matching function, and is freed only once.
        unsafe { (self.1)(self.0) };
    }
}

/// Calls a function of the library that reports an error through a pointer. If the function stored an error there,
/// returns the error.
fn checked<T>(call: impl FnOnce(Fault) -> T) -> Result<T> {
    let mut fault = ptr::null_mut();
    let result = call(&mut fault);
    check_fault(fault)?;
    Ok(result)
}

/// Returns an error with the message that the library stored in `fault`, unless `fault` is null.
#[inline]
fn check_fault(fault: *mut c_char) -> Result<()> {
    let Some(fault) = NonNull::new(fault) else { return Ok(()) };
    // SAFETY: the library stores null or a zero-terminated string.
    let message = unsafe { CStr::from_ptr(fault.as_ptr()) }.to_string_lossy().into_owned();
    // SAFETY: the caller must free the string, and it is not used afterward.
    unsafe { rocksdb_free(fault.as_ptr().cast()) };
    bail!("RocksDB: {message}")
}

fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Returns the options of the database and its tables.
fn options(cache_len_bytes: usize) -> Owned {
    // SAFETY: each handle is new, has the type that the call requires, and is freed once: the
    // table options take ownership of the filter, and the cache is reference-counted.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one list of settings")]
    unsafe {
        let table = Owned(rocksdb_block_based_options_create(), rocksdb_block_based_options_destroy);
        let cache = Owned(rocksdb_cache_create_lru(cache_len_bytes), rocksdb_cache_destroy);
        rocksdb_block_based_options_set_filter_policy(table.0, rocksdb_filterpolicy_create_bloom_full(10.0));
        rocksdb_block_based_options_set_block_cache(table.0, cache.0);
        rocksdb_block_based_options_set_data_block_index_type(table.0, 1);
        rocksdb_block_based_options_set_format_version(table.0, 5);
        let options = Owned(rocksdb_options_create(), rocksdb_options_destroy);
        rocksdb_options_set_create_if_missing(options.0, 1);
        rocksdb_options_set_compression(options.0, 0);
        rocksdb_options_set_allow_mmap_reads(options.0, 1);
        rocksdb_options_set_block_based_table_factory(options.0, table.0);
        options
    }
}

fn build(rows: &Rows, folder: &Path) -> Result<()> {
    let options = options(8 << 20);
    let row_len_bytes = rows.len_bytes() / rows.count;
    let mut paths = Vec::new();
    for piece in rows.pieces(FILE_LEN_BYTES / row_len_bytes) {
        let path = c_path(&folder.join(format!("{}.ingest", paths.len())))?;
        // SAFETY: the function takes no arguments, and `Owned` frees the handle that it returns.
        let environment = Owned(unsafe { rocksdb_envoptions_create() }, rocksdb_envoptions_destroy);
        // SAFETY: both handles are valid; the writer copies the options.
        let writer = unsafe { rocksdb_sstfilewriter_create(environment.0, options.0) };
        let writer = Owned(writer, rocksdb_sstfilewriter_destroy);
        // SAFETY: the writer is valid; the path is zero-terminated.
        checked(|fault| unsafe { rocksdb_sstfilewriter_open(writer.0, path.as_ptr(), fault) })?;
        rows.each_of(piece, |key, value| {
            let key = key.to_be_bytes();
            // SAFETY: the writer is open; key and value have the stated lengths and are copied.
            checked(|fault| unsafe {
                rocksdb_sstfilewriter_put(writer.0, key.as_ptr(), 8, value.as_ptr(), value.len(), fault);
            })
        })?;
        // SAFETY: the writer is open.
        checked(|fault| unsafe { rocksdb_sstfilewriter_finish(writer.0, fault) })?;
        paths.push(path);
    }
    let folder = c_path(folder)?;
    // SAFETY: the options are valid; the path is zero-terminated.
    let db = checked(|fault| unsafe { rocksdb_open(options.0, folder.as_ptr(), fault) })?;
    let db = Owned(db, rocksdb_close);
    // SAFETY: the function takes no arguments, and `Owned` frees the handle that it returns.
    let ingest = unsafe { rocksdb_ingestexternalfileoptions_create() };
    let ingest = Owned(ingest, rocksdb_ingestexternalfileoptions_destroy);
    // SAFETY: the handle is valid.
    unsafe { rocksdb_ingestexternalfileoptions_set_move_files(ingest.0, 1) };
    let paths: Vec<_> = paths.iter().map(|path| path.as_ptr()).collect();
    // SAFETY: all handles are valid; the number of paths is right, and each path is zero-terminated.
    checked(|fault| unsafe { rocksdb_ingest_external_file(db.0, paths.as_ptr(), paths.len(), ingest.0, fault) })
}

/// An open database. Fields are dropped in this order, so the database is closed after the objects that use it.
struct RocksDb {
    iterator: Owned,
    family: Owned,
    db: Owned,
    read: Owned,
    _options: Owned,
}

fn open(_: &Rows, folder: &Path) -> Result<Box<dyn Opened>> {
    let files_len_bytes: u64 =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len())).sum::<std::io::Result<u64>>()?;
    let options = options(files_len_bytes.min(memory_total_bytes()? / 4) as usize);
    let path = c_path(&PathBuf::from(folder))?;
    let (name, mut family) = (c"default".as_ptr(), ptr::null_mut());
    // SAFETY: the options are valid; path and name are zero-terminated; there are one name, one set of options, and
    // room for one column family.
    let db = checked(|fault| unsafe {
        rocksdb_open_for_read_only_column_families(
            options.0,
            path.as_ptr(),
            1,
            &name,
            &options.0,
            &mut family,
            0,
            fault,
        )
    })?;
    let db = Owned(db, rocksdb_close);
    let family = Owned(family, rocksdb_column_family_handle_destroy);
    // SAFETY: the function takes no arguments, and `Owned` frees the handle that it returns.
    let read = Owned(unsafe { rocksdb_readoptions_create() }, rocksdb_readoptions_destroy);
    // SAFETY: the handle is valid.
    unsafe { rocksdb_readoptions_set_verify_checksums(read.0, 0) };
    // SAFETY: both handles are valid, and outlive the iterator.
    let iterator = Owned(unsafe { rocksdb_create_iterator(db.0, read.0) }, rocksdb_iter_destroy);
    Ok(Box::new(RocksDb { iterator, family, db, read, _options: options }))
}

/// Passes a value of the library to `sink`, and then frees the value.
#[inline]
fn take(value: Handle, sink: &mut impl Sink) {
    if value.is_null() {
        return sink.missing();
    }
    let value = Owned(value, rocksdb_pinnableslice_destroy);
    let mut len_bytes = 0;
    // SAFETY: the slice is not null and has not been freed.
    let bytes = unsafe { rocksdb_pinnableslice_value(value.0, &mut len_bytes) };
    // SAFETY: the slice has this many bytes until it is freed.
    sink.found(unsafe { slice::from_raw_parts(bytes, len_bytes) });
}

impl Table for RocksDb {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        let key = key.to_be_bytes();
        // SAFETY: both handles are valid; the key is 8 bytes long.
        let value = checked(|fault| unsafe { rocksdb_get_pinned(self.db.0, self.read.0, key.as_ptr(), 8, fault) })?;
        take(value, sink);
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        let mut bytes = [[0; 8]; BATCH_KEYS];
        let mut places = [ptr::null(); BATCH_KEYS];
        let mut values = [ptr::null_mut(); BATCH_KEYS];
        let mut faults = [ptr::null_mut(); BATCH_KEYS];
        for (i, key) in keys.iter().enumerate() {
            bytes[i] = key.to_be_bytes();
            places[i] = bytes[i].as_ptr();
        }
        let (places, count) = (places[..keys.len()].as_ptr(), keys.len());
        let (values_at, faults_at) = (values[..count].as_mut_ptr(), faults[..count].as_mut_ptr());
        // SAFETY: the handles are valid; all arrays have this many elements, and each key has 8 bytes.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.db.0,
                self.read.0,
                self.family.0,
                count,
                places,
                [8; BATCH_KEYS].as_ptr(),
                values_at,
                faults_at,
                false,
            );
        }
        faults[..count].iter().try_for_each(|fault| check_fault(*fault))?;
        values[..count].iter().for_each(|value| take(*value, sink));
        Ok(())
    }

    #[inline]
    fn floor(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        let key = key.to_be_bytes();
        // SAFETY: the iterator is valid; the key is 8 bytes long.
        unsafe { rocksdb_iter_seek_for_prev(self.iterator.0, key.as_ptr(), 8) };
        match self.is_at_row() {
            true => self.take_row(sink),
            false => sink.missing(),
        }
        self.iterator_fault()
    }

    fn scan(&mut self, start: u64, rows: u64, sink: &mut impl Sink) -> Result<()> {
        let key = start.to_be_bytes();
        // SAFETY: the iterator is valid; the key is 8 bytes long.
        unsafe { rocksdb_iter_seek(self.iterator.0, key.as_ptr(), 8) };
        for _ in 0..rows {
            if !self.is_at_row() {
                break;
            }
            self.take_row(sink);
            // SAFETY: the iterator is valid, and is at a row.
            unsafe { rocksdb_iter_next(self.iterator.0) };
        }
        self.iterator_fault()
    }
}

impl RocksDb {
    #[inline]
    fn is_at_row(&self) -> bool {
        // SAFETY: the iterator is valid.
        unsafe { rocksdb_iter_valid(self.iterator.0) != 0 }
    }

    /// Passes the value of the iterator's row to `sink`. The iterator must be at a row.
    #[inline]
    fn take_row(&self, sink: &mut impl Sink) {
        let mut len_bytes = 0;
        // SAFETY: the iterator is valid, and is at a row.
        let bytes = unsafe { rocksdb_iter_value(self.iterator.0, &mut len_bytes) };
        // SAFETY: the value has this many bytes until the iterator moves.
        sink.found(unsafe { slice::from_raw_parts(bytes, len_bytes) });
    }

    fn iterator_fault(&self) -> Result<()> {
        // SAFETY: the iterator is valid.
        checked(|fault| unsafe { rocksdb_iter_get_error(self.iterator.0, fault) })
    }
}
