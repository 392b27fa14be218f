//! The reasons why publishing, fetching, or following a table fails.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::bounded_http::{NoBucket, TooBusy, cause_of};
use super::change::Change;
use super::limits::one_line;
use super::local_store::STORE;
use crate::bake::BakeError;
use crate::canary::CanaryError;
use crate::slots::SlotRange;
use crate::store::StoreError;

/// The reason why an operation on a published table fails.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages show what the fields are")]
pub enum PublishError {
    /// The URL of a table is malformed, or its scheme is not supported.
    #[error("{url}: {problem}")]
    Url { url: String, problem: String },
    /// A request to the object store failed, after retries.
    #[error("{}: {cause}{}", one_line(object), cause.remedy())]
    Store { object: String, cause: StoreFault },
    /// A document of the table is malformed, damaged, or of a newer format.
    #[error("{}: {}", one_line(object), one_line(problem))]
    Document { object: String, problem: String },
    /// Whether the store has created a document is unknown.
    #[error(
        "{}: it is unknown whether the document was created: {}: read the table (generations, topology) before you \
         repeat the command",
        one_line(object),
        one_line(problem)
    )]
    Unconfirmed { object: String, problem: String },
    /// The table has no generation, or not the requested one.
    #[error("{url}: {problem}")]
    NoGeneration { url: String, problem: String },
    /// Another publisher created a generation first.
    #[error(
        "{url}: generation {newest} is the newest one, expected {parent}: another publisher was first: check its rows \
         and publish again with the new parent"
    )]
    Parent { url: String, parent: u64, newest: u64 },
    /// A generation exceeds a quota of the table.
    #[error(
        "{url}: the new generation exceeds a quota of policy {number}: {}: publish fewer rows, or create another \
         policy",
        one_line(problem)
    )]
    Quota { url: String, number: u64, problem: String },
    /// A generation differs from the one before it in a way that is not allowed.
    #[error(
        "{url}: the new generation differs from generation {parent}: {}: check the input, or allow the change \"{}\"",
        one_line(problem),
        change.name()
    )]
    Change { url: String, parent: u64, change: Change, problem: String },
    /// A topology is not valid, or another one has its number.
    #[error("{url}: {}", one_line(problem))]
    Topology {
        /// The URL of the table, or the topology.
        url: String,
        problem: String,
    },
    /// The files of a generation do not cover every slot exactly once.
    #[error("the files do not cover every slot exactly once: {problem}")]
    Coverage { problem: String },
    /// A file has a key outside its slots.
    #[error("{}: row {row} has slot {slot}, expected a slot of {slots}: select the rows of these slots when baking",
             path.display())]
    Slot {
        path: PathBuf,
        /// The number of the first such row, counted from 0.
        row: usize,
        slot: u16,
        slots: SlotRange,
    },
    /// The stored bytes of an object, or a downloaded file, are not the published ones.
    #[error("{}: {}", one_line(object), one_line(problem))]
    Corrupt { object: String, problem: String },
    /// The rows of a shard cannot be baked.
    #[error("{0}")]
    Bake(#[from] BakeError),
    /// A baked file cannot be opened or is damaged.
    #[error("{0}")]
    File(#[from] StoreError),
    /// A local file or folder cannot be read or written.
    #[error("{}: {error}{}", path.display(), disk_remedy(error.kind()).unwrap_or_default())]
    Io {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A disk has too little free space.
    #[error(
        "{}: the disk has {available_bytes} free bytes, and the file needs {needed_bytes}, and {reserve_bytes} \
         must stay free: free space, or keep fewer generations",
        path.display()
    )]
    DiskFull {
        path: PathBuf,
        /// The free space, in bytes.
        available_bytes: u64,
        /// The space that the file needs, in bytes.
        needed_bytes: u64,
        /// The space that stays free, in bytes.
        reserve_bytes: u64,
    },
    /// A server rejected a generation.
    #[error("generation {generation} is rejected: {}", one_line(problem))]
    Rejected { generation: u64, problem: String },
    /// A line of a canary file is malformed, or a file does not satisfy a canary.
    #[error(transparent)]
    Canary(CanaryError),
    /// The operation was canceled.
    #[error("canceled")]
    Canceled,
}

impl From<CanaryError> for PublishError {
    fn from(error: CanaryError) -> Self {
        match error {
            CanaryError::Io { path, error } => PublishError::Io { path, error },
            error => PublishError::Canary(error),
        }
    }
}

impl PublishError {
    /// Returns a function that converts a system error into a [`PublishError::Io`] for the file or folder at `path`.
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> PublishError {
        move |error| PublishError::Io { path: path.to_path_buf(), error }
    }

    /// Returns whether the error may be one of a single object, which other objects of the store do not have: the
    /// object is malformed, or this process may not read it.
    pub(super) fn is_of_one_object(&self) -> bool {
        match self {
            PublishError::Document { .. } => true,
            PublishError::Store { cause, .. } => {
                matches!(cause, StoreFault::NotFound | StoreFault::Credentials(_) | StoreFault::Folder { .. })
            }
            _ => false,
        }
    }

    /// Returns the kind of the failure, as metrics and statuses name it.
    pub fn kind(&self) -> FailureKind {
        match self {
            PublishError::Store { cause, .. } => match cause {
                StoreFault::Credentials(_) => FailureKind::Credentials,
                StoreFault::NotFound => FailureKind::Missing,
                StoreFault::Folder { .. } => FailureKind::Disk,
                StoreFault::NoBucket | StoreFault::Busy(_) | StoreFault::Other(_) => FailureKind::Store,
            },
            PublishError::Unconfirmed { .. } => FailureKind::Store,
            PublishError::NoGeneration { .. } => FailureKind::Missing,
            PublishError::Document { .. }
            | PublishError::Canary(_)
            | PublishError::Corrupt { .. }
            | PublishError::Coverage { .. }
            | PublishError::File(_) => FailureKind::Corrupt,
            PublishError::DiskFull { .. } | PublishError::Io { .. } => FailureKind::Disk,
            PublishError::Rejected { .. } => FailureKind::Rejected,
            _ => FailureKind::Other,
        }
    }
}

/// The kind of a failure, as metrics and statuses count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The store cannot be reached, or returns errors.
    Store,
    /// The store rejects the credentials.
    Credentials,
    /// An object is missing.
    Missing,
    /// A document or a file is damaged, or of a format that this version cannot read.
    Corrupt,
    /// The disk is full, or cannot be read or written.
    Disk,
    /// The server rejected the file, for example because of a canary.
    Rejected,
    /// Any other failure.
    Other,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [FailureKind; 7] = [
        FailureKind::Store,
        FailureKind::Credentials,
        FailureKind::Missing,
        FailureKind::Corrupt,
        FailureKind::Disk,
        FailureKind::Rejected,
        FailureKind::Other,
    ];

    /// Returns the name of the kind in metrics and statuses.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Store => "store",
            FailureKind::Credentials => "credentials",
            FailureKind::Missing => "missing",
            FailureKind::Corrupt => "corrupt",
            FailureKind::Disk => "disk",
            FailureKind::Rejected => "rejected",
            FailureKind::Other => "other",
        }
    }
}

/// The cause of a failed request to an object store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreFault {
    /// The object does not exist.
    #[error("not found")]
    NotFound,
    /// The bucket or container does not exist, so nothing is known of its objects.
    #[error("the bucket does not exist")]
    NoBucket,
    /// The store rejected the credentials, or they lack a permission.
    #[error("{0}")]
    Credentials(String),
    /// The store asks for a pause that is longer than the operation may take.
    #[error("{0}")]
    Busy(String),
    /// The folder of a local store cannot be read or written.
    #[error("{problem}")]
    Folder {
        /// The cause.
        problem: String,
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// The store cannot be reached, or returned an error.
    #[error("{0}")]
    Other(String),
}

/// Texts in errors about credentials: the word itself, and the paths of the services that provide credentials on
/// virtual machines of AWS, Google Cloud, and Azure.
const CREDENTIAL_WORDS: [&str; 4] =
    ["credential", "/latest/api/token", "/computeMetadata/", "/metadata/identity/oauth2/token"];

impl StoreFault {
    pub(super) fn new(error: &object_store::Error) -> StoreFault {
        let (chain, cause) = messages(error);
        match error {
            error if cause_of::<NoBucket>(error).is_some() => StoreFault::NoBucket,
            error if cause_of::<TooBusy>(error).is_some() => StoreFault::Busy(cause),
            object_store::Error::NotFound { .. } => StoreFault::NotFound,
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                StoreFault::Credentials(cause)
            }
            // The crate reports failures to obtain credentials as generic errors. Without credentials in the
            // environment, it requests some from a service of the machine.
            _ if CREDENTIAL_WORDS.iter().any(|word| chain.contains(word)) => {
                StoreFault::Credentials(format!("credentials cannot be obtained: {cause}"))
            }
            _ => match folder_error(error) {
                Some(kind) => StoreFault::Folder { problem: cause, kind },
                None => StoreFault::Other(cause),
            },
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            StoreFault::NotFound => ": check the URL, and that the bucket or the folder exists",
            StoreFault::NoBucket => ": check the URL and the endpoint, and whether the bucket was deleted",
            StoreFault::Busy(_) => ": repeat the command later, or let it wait longer",
            StoreFault::Credentials(_) => {
                ": check the credentials (for S3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and their permissions: \
                 without the permission to list, S3 reports missing objects as forbidden"
            }
            StoreFault::Folder { kind, .. } => {
                disk_remedy(*kind).unwrap_or(": check the URL, and the disk and the file system of the folder")
            }
            StoreFault::Other(_) => ": check the URL, the endpoint, and the network",
        }
    }
}

/// Returns the kind of the system's error if a local folder is the store, or [`io::ErrorKind::Other`] if the error is
/// not the system's.
fn folder_error(error: &object_store::Error) -> Option<io::ErrorKind> {
    let object_store::Error::Generic { store: STORE, source } = error else { return None };
    let mut cause: &(dyn std::error::Error + 'static) = source.as_ref();
    loop {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return Some(io::ErrorKind::Other),
        }
    }
}

fn disk_remedy(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::StorageFull => Some(": free space on the disk"),
        io::ErrorKind::QuotaExceeded => Some(": free space, or raise the quota"),
        io::ErrorKind::ReadOnlyFilesystem => Some(": mount the file system for writing, or use another folder"),
        io::ErrorKind::NotADirectory => Some(": expected a folder: remove what has this name, or use another folder"),
        io::ErrorKind::PermissionDenied => Some(": check the owner and the permissions of the folder and its files"),
        _ => None,
    }
}

/// Returns the messages of an error and of all its causes, and the message of the last cause as one line. The other
/// messages have the times and the retries of a request.
fn messages(error: &dyn std::error::Error) -> (String, String) {
    let (mut chain, mut last) = (error.to_string(), error);
    while let Some(cause) = last.source() {
        chain = format!("{chain}: {cause}");
        last = cause;
    }
    (chain, one_line(&last.to_string()))
}
