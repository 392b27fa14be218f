//! cdb, with Debian's libcdb (tinycdb), which maps the file as djb's library does.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

use anyhow::{Context, Result};

use super::{Engine, Opened, Table};
use crate::machine::package_version;
use crate::rows::{Rows, Sink};

const FILE: &str = "rows.cdb";

/// `struct cdb` of cdb.h.
#[repr(C)]
struct RawCdb {
    fd: c_int,
    file_len: c_uint,
    data_end: c_uint,
    map: *const u8,
    value_at: c_uint,
    value_len: c_uint,
    key_at: c_uint,
    key_len: c_uint,
}

/// `struct cdb_make` of cdb.h.
#[repr(C)]
struct RawMake {
    fd: c_int,
    data_at: c_uint,
    record_count: c_uint,
    buffer: [u8; 4096],
    buffer_at: *mut u8,
    records: [*mut c_void; 256],
}

#[link(name = "cdb")]
unsafe extern "C" {
    fn cdb_init(cdb: *mut RawCdb, fd: c_int) -> c_int;
    fn cdb_free(cdb: *mut RawCdb);
    fn cdb_find(cdb: *mut RawCdb, key: *const c_void, key_len: c_uint) -> c_int;
    fn cdb_get(cdb: *const RawCdb, len: c_uint, at: c_uint) -> *const c_void;
    fn cdb_make_start(make: *mut RawMake, fd: c_int) -> c_int;
    fn cdb_make_add(
        make: *mut RawMake,
        key: *const c_void,
        key_len: c_uint,
        value: *const c_void,
        value_len: c_uint,
    ) -> c_int;
    fn cdb_make_finish(make: *mut RawMake) -> c_int;
}

pub(super) fn engine() -> Engine {
    Engine {
        name: "cdb",
        version: package_version("libcdb-dev"),
        ordered: false,
        batched: false,
        batched_floors: false,
        small: true,
        build: Some(build),
        open,
    }
}

fn build(rows: &Rows, folder: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).create_new(true).open(folder.join(FILE))?;
    let mut make = MaybeUninit::<RawMake>::uninit();
    let make = make.as_mut_ptr();
    // SAFETY: cdb_make_start initializes the whole struct, which has the layout of cdb.h; the file stays open.
    check(unsafe { cdb_make_start(make, file.as_raw_fd()) })?;
    rows.each(|key, value| {
        let key = key.to_le_bytes();
        let value_len = c_uint::try_from(value.len())?;
        // SAFETY: the struct is initialized; key and value have the stated lengths and are copied.
        check(unsafe { cdb_make_add(make, key.as_ptr().cast(), 8, value.as_ptr().cast(), value_len) })
    })?;
    // SAFETY: the struct is initialized and not used afterward.
    check(unsafe { cdb_make_finish(make) })?;
    Ok(file.sync_all()?)
}

fn check(result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("libcdb"),
    }
}

struct Cdb {
    raw: RawCdb,
    _file: File,
}

fn open(_: &Rows, folder: &Path) -> Result<Box<dyn Opened>> {
    let file = File::open(folder.join(FILE))?;
    let mut raw = MaybeUninit::uninit();
    // SAFETY: the struct has the layout of cdb.h; the file stays open as long as the struct is used.
    check(unsafe { cdb_init(raw.as_mut_ptr(), file.as_raw_fd()) })?;
    // SAFETY: cdb_init succeeded, so it initialized the struct.
    let raw = unsafe { raw.assume_init() };
    Ok(Box::new(Cdb { raw, _file: file }))
}

impl Drop for Cdb {
    fn drop(&mut self) {
        // SAFETY: cdb_init initialized the struct, and nothing borrows from its mapping any more.
        unsafe { cdb_free(&mut self.raw) };
    }
}

impl Table for Cdb {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        let key = key.to_le_bytes();
        // SAFETY: cdb_init initialized the struct; the key has 8 bytes.
        match unsafe { cdb_find(&mut self.raw, key.as_ptr().cast(), 8) } {
            0 => sink.missing(),
            1.. => {
                // SAFETY: cdb_get checks position and length against the mapping, or returns null.
                let value = unsafe { cdb_get(&self.raw, self.raw.value_len, self.raw.value_at) };
                let value = NonNull::new(value.cast_mut().cast()).context("libcdb: a value outside the file")?;
                // SAFETY: cdb_get checked that these bytes are inside of the mapping, which lives as long as `self`.
                sink.found(unsafe { slice::from_raw_parts(value.as_ptr(), self.raw.value_len as usize) });
            }
            _ => check(-1)?,
        }
        Ok(())
    }
}
