//! Lends memory to Python through Python's buffer protocol, without a copy.
//!
//! This is the only file of the crate with `unsafe` code.
//!
//! Reasons and evidence: `docs/decisions/python-buffers.md`.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use zero_kv::Lookup;
use zero_kv::{Key, LookupError};

use crate::table_version::TableVersion;

/// Bytes that Python reads through the buffer protocol, and their owner.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Memory {
    bytes: *mut [u8],
    owner: Owner,
}

enum Owner {
    /// The bytes are a value in this table, which nobody can change. They are never written.
    Table(#[expect(dead_code, reason = "keeps the bytes in memory")] TableVersion),
    /// The bytes are a leaked box, and `bytes` is the only pointer to it.
    Memory { is_readonly: bool },
}

// SAFETY: The bytes of a table are in a `Store`, which is `Send`. The bytes of a box have no other owner.
unsafe impl Send for Memory {}
// SAFETY: No Rust code reads or writes the bytes through a shared reference to this object. Python code is responsible
// for its concurrent use of the buffer, as with every object that has the buffer protocol.
unsafe impl Sync for Memory {}

impl Memory {
    /// Borrows the value of a key if nobody can change the table's memory, and otherwise copies it. Returns `None` if
    /// the table does not have the key.
    pub(crate) fn from_value(table: TableVersion, key: Key<'_>) -> Result<Option<Memory>, LookupError> {
        let Some(private) = table.as_private() else {
            let value = table.get(key)?;
            return Ok(value.map(|value| Memory::from_box(value.into_boxed_slice(), true)));
        };
        let bytes = private.get(key)?.map(|value| ptr::from_ref(value).cast_mut());
        Ok(bytes.map(|bytes| Memory { bytes, owner: Owner::Table(table) }))
    }

    /// Takes ownership of bytes that Python may write to.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Memory {
        Memory::from_box(bytes.into_boxed_slice(), false)
    }

    fn from_box(bytes: Box<[u8]>, is_readonly: bool) -> Memory {
        Memory { bytes: Box::into_raw(bytes), owner: Owner::Memory { is_readonly } }
    }

    pub(crate) fn into_view(self, py: Python<'_>) -> PyResult<Bound<'_, PyMemoryView>> {
        PyMemoryView::from(Bound::new(py, self)?.as_any())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.owner {
            Owner::Table(_) => {}
            // SAFETY: `from_box` created the pointer from a box, and only this statement frees it. Every Python buffer
            // of these bytes holds a reference to this object, so no buffer exists anymore.
            Owner::Memory { .. } => drop(unsafe { Box::from_raw(self.bytes) }),
        }
    }
}

/// Passes the elements of a writable buffer in C order to `write`. Returns `None` if the buffer is read-only or not in C
/// order.
///
/// While `write` runs, no other code may access the buffer. Python code is responsible for that, as for every object with
/// a buffer that a C function fills without Python's global lock.
pub(crate) fn with_elements<T: Element, R>(buffer: &PyBuffer<T>, write: impl FnOnce(&mut [T]) -> R) -> Option<R> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return None;
    }
    if buffer.item_count() == 0 {
        return Some(write(&mut []));
    }
    let elements = ptr::slice_from_raw_parts_mut(buffer.buf_ptr().cast::<T>(), buffer.item_count());
    // SAFETY: `PyBuffer::get` has checked that the items are aligned values of type `T`, every bit pattern of which is
    // valid. The buffer has `item_count` of them, one after another, because it is contiguous. The exporter keeps them in
    // place while `buffer` exists. The buffer is writable, and the documentation of this function excludes other
    // accesses.
    Some(write(unsafe { &mut *elements }))
}

#[pymethods]
impl Memory {
    /// Lends the bytes to Python through the buffer protocol.
    ///
    /// # Safety
    /// As Python's buffer protocol requires, `view` is null or points to memory for a `Py_buffer`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Memory { bytes, owner } = slf.get();
        let readonly = matches!(owner, Owner::Table(_) | Owner::Memory { is_readonly: true });
        // SAFETY: `view` comes from Python, and `PyBuffer_FillInfo` rejects null. The function takes a reference to
        // this object, which Python drops together with the buffer. While the reference exists, the bytes stay in
        // place: a `Store` never moves or unmaps its bytes, and a box is freed only with this object. The bytes of a
        // table are never written, because the buffer is read-only and `PyBuffer_FillInfo` rejects requests for a
        // writable one.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.cast::<c_void>(),
                bytes.len() as ffi::Py_ssize_t,
                readonly.into(),
                flags,
            )
        };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
