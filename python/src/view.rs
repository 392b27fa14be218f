//! Memory that Python reads without a copy, by its buffer protocol.
//!
//! The only file of this crate with `unsafe`.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use zero_kv::{Key, LookupError};

use crate::table::Snapshot;

/// Bytes that Python's buffer protocol lends, and what keeps them.
#[pyclass(frozen, module = "zero_kv._native")]
pub(crate) struct Memory {
    bytes: *mut [u8],
    owner: Owner,
}

enum Owner {
    /// The bytes are a value in this table, which nobody can change. They are only read.
    Table(#[expect(dead_code, reason = "keeps the bytes")] Snapshot),
    /// The bytes are a box's, of which there is nothing but `bytes`.
    Memory { is_readonly: bool },
}

// SAFETY: The bytes of a table are in a `Store`, which is `Send`; those of a box have no other owner.
unsafe impl Send for Memory {}
// SAFETY: Nothing in Rust reads or writes the bytes, whichever thread has a reference to this. What Python's code does with a
// buffer that it was lent is in its own hands, as with every object that lends one.
unsafe impl Sync for Memory {}

impl Memory {
    /// Lends the value of a key if nobody can change the table's memory, and otherwise copies it. `None` if the table
    /// does not have the key.
    pub(crate) fn of_value(table: Snapshot, key: Key<'_>) -> Result<Option<Memory>, LookupError> {
        let Some(private) = table.as_private() else {
            let value = table.get(key)?;
            return Ok(value.map(|value| Memory::of_box(value.into_boxed_slice(), true)));
        };
        let bytes = private.get(key)?.map(|value| ptr::from_ref(value).cast_mut());
        Ok(bytes.map(|bytes| Memory { bytes, owner: Owner::Table(table) }))
    }

    /// Gives bytes away: Python may write to them.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Memory {
        Memory::of_box(bytes.into_boxed_slice(), false)
    }

    fn of_box(bytes: Box<[u8]>, is_readonly: bool) -> Memory {
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
            // SAFETY: `of_box` made the pointer of a box, and only this drops it. Every buffer that Python was lent
            // has a reference to this object, so there is none any more.
            Owner::Memory { .. } => drop(unsafe { Box::from_raw(self.bytes) }),
        }
    }
}

#[pymethods]
impl Memory {
    /// # Safety
    /// `view` is what Python's protocol says: null, or memory for a `Py_buffer`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Memory { bytes, owner } = slf.get();
        let readonly = matches!(owner, Owner::Table(_) | Owner::Memory { is_readonly: true });
        // SAFETY: `view` is what Python gave, and `PyBuffer_FillInfo` refuses null. It takes a reference to the object,
        // which Python gives back with the buffer. As long as it has one the bytes stay where they are: a `Store` never
        // moves or unmaps bytes that it has lent, and a box is only freed when this object is. Those of a table are not
        // written to, for the buffer says so, and `PyBuffer_FillInfo` refuses who wants to.
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
