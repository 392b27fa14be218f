//! The result of checking whether a mapped file is unchanged, after bytes were copied from it.

/// Whether a process may have written to a mapped file before bytes were copied from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No process has written to the file.
    Unchanged,
    /// The check has no result: the caller must examine the file.
    Unknown,
    /// The server did not confirm its lease before the deadline, so a process may have opened the file for writing
    /// meanwhile. The caller must examine the file, and can trust it only if every write changes its modification time.
    Expired,
    /// A process may have written to the file.
    Changed,
}
