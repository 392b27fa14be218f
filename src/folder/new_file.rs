//! Files that have no name until they are complete.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;

use super::{Folder, proc_path};

/// A file that is being written.
///
/// If the file system supports unnamed files, the file has no name until it is complete, so the system removes it when
/// the process ends. Otherwise, the file has a random hidden name, and is removed when the value is dropped.
#[derive(Debug)]
pub struct NewFile {
    folder: Folder,
    file: File,
    /// The hidden name, as long as the file has one.
    hidden: Option<String>,
}

impl Folder {
    /// Creates an empty file in the folder, which gets its name later.
    pub fn new_file(&self) -> io::Result<NewFile> {
        let folder = self.try_clone()?;
        // An unnamed file is linked to a name through /proc, so /proc must be mounted.
        let unnamed = self.create_unnamed().and_then(|file| fs::metadata(proc_path(&file)).map(|_| file));
        let (file, hidden) = match unnamed {
            Ok(file) => (file, None),
            Err(_) => {
                let (file, hidden) = with_hidden_name(|hidden| self.create(hidden))?;
                (file, Some(hidden))
            }
        };
        Ok(NewFile { folder, file, hidden })
    }
}

impl NewFile {
    /// Returns the file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the folder of the file.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Gives the file its name, which replaces what has the name. Syncs nothing.
    pub fn replace(mut self, name: impl AsRef<OsStr>) -> io::Result<()> {
        if self.hidden.is_none() {
            let link = |hidden: &str| self.folder.link_unnamed(&self.file, hidden.as_ref());
            self.hidden = Some(with_hidden_name(link)?.1);
        }
        let hidden = self.hidden.as_deref().unwrap_or_default();
        self.folder.rename(hidden, name)?;
        self.hidden = None;
        Ok(())
    }

    /// Gives the file its name, unless anything has the name. Syncs nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if anything has the name. The system's error.
    pub fn create(self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match &self.hidden {
            Some(hidden) => self.folder.link(hidden, name.as_ref()),
            None => self.folder.link_unnamed(&self.file, name.as_ref()),
        }
    }

    #[cfg(test)]
    pub(super) fn with_hidden(mut self, file: File, hidden: String) -> NewFile {
        (self.file, self.hidden) = (file, Some(hidden));
        self
    }

    /// Returns the file, which gets no name.
    pub(super) fn into_unnamed(self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // The file was not needed, so an error here does no harm.
            let _ = self.folder.remove(hidden);
        }
    }
}

/// Calls `take` with random hidden names until one is not in use. Returns the name.
pub(super) fn with_hidden_name<T>(take: impl Fn(&str) -> io::Result<T>) -> io::Result<(T, String)> {
    loop {
        let hidden = format!("{PREFIX}{:016x}{:016x}{SUFFIX}", random_number(), random_number());
        match take(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            taken => return Ok((taken?, hidden)),
        }
    }
}

/// Returns a number that others cannot predict, so they cannot occupy a name that contains it.
pub fn random_number() -> u64 {
    RandomState::new().hash_one(())
}

const PREFIX: &str = ".zero-kv.";
const SUFFIX: &str = ".tmp";

/// Returns whether a name has the form of the hidden names of new files. A process that is killed can leave such a file.
pub fn is_hidden_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}
