//! The tables that rollbacks serve, saved for restarts.
//!
//! In: the file of a previous generation, and the digest of the table that a rollback replaced. Out: a copy with a name
//! that contains this digest, `NAME.instead-of-DIGEST`. While the copy exists, the replaced table is refused: a server
//! whose file has this digest serves the copy instead.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::folder::{Folder, folder_of};
use crate::store::{Pace, reopened};

/// The part of a copy's name between the name of the table's file and the digest of the replaced table.
const INFIX: &str = ".instead-of-";
const DIGITS: usize = 32;
/// The number of bytes that are copied between two reports of progress.
const WINDOW_BYTES: u64 = 1 << 20;

/// The saved tables of one path.
#[derive(Clone, Debug)]
pub(in crate::server) struct SavedTables {
    folder: PathBuf,
    prefix: OsString,
}

impl SavedTables {
    /// Names the saved tables of the path `db`. They are in its folder, unless `folder` is another one.
    pub(in crate::server) fn new(db: &Path, folder: Option<&Path>) -> SavedTables {
        let mut prefix = db.file_name().unwrap_or_default().to_owned();
        prefix.push(INFIX);
        SavedTables { folder: folder.unwrap_or_else(|| folder_of(db)).to_path_buf(), prefix }
    }

    fn name(&self, replaced: u128) -> OsString {
        OsString::from_vec([self.prefix.as_bytes(), format!("{replaced:032x}").as_bytes()].concat())
    }

    /// Returns the path of the table that is served instead of the table with this digest, even if nothing was saved.
    pub(super) fn path(&self, replaced: u128) -> PathBuf {
        self.folder.join(self.name(replaced))
    }

    /// Returns whether a table was saved instead of the table with this digest. A file of another user does not count,
    /// because everybody may be able to write to the folder.
    pub(super) fn has(&self, replaced: u128) -> bool {
        Folder::open(&self.folder).and_then(|folder| folder.has_own_file(self.name(replaced))).unwrap_or(false)
    }

    /// Copies a table, which is then served instead of the table with this digest. Only this process's user can read
    /// the copy, because the table's own file may be readable only to few.
    pub(super) fn save(&self, table: &File, replaced: u128, pace: &Pace) -> io::Result<()> {
        let folder = Folder::open(&self.folder)?;
        let new = folder.new_file()?;
        new.file().set_permissions(Permissions::from_mode(0o600))?;
        let (mut table, mut copy) = (reopened(table)?, new.file());
        while io::copy(&mut (&mut table).take(WINDOW_BYTES), &mut copy)? > 0 {
            if !pace.goes_on() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the server stops"));
            }
        }
        new.file().sync_all()?;
        new.replace(self.name(replaced))?;
        folder.sync()
    }

    /// Removes all saved tables of the path.
    pub(super) fn remove(&self) {
        let Ok(folder) = Folder::open(&self.folder) else { return };
        for name in folder.names().into_iter().flatten() {
            let digits = name.as_bytes().strip_prefix(self.prefix.as_bytes());
            if digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit)) {
                // A table that stays takes disk space, but is served only instead of the table that it replaced.
                let _ = folder.remove(name);
            }
        }
    }
}
