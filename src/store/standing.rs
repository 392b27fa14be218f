//! What is known about the bytes of a mapped file that were just read.

/// Whether a process may have written to a file while bytes of it were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No process has written to the file.
    Unchanged,
    /// The file must be examined.
    Unknown,
    /// The server holds the lease but has not confirmed it in time, so a process may have opened the file for writing
    /// by now. The file must be examined, and can be trusted only if every write changes its modification time.
    Expired,
    /// A process may have written to the file.
    Changed,
}
