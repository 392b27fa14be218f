//! Creates, opens, replaces, and removes the files of a folder. Every file that a program creates is created here.
//!
//! In: a folder, and names in it. Out: open files. Other users may be able to write to the folder, so they can put
//! anything at any name, at any time. Therefore, each call acts on names relative to the open folder, and follows no
//! symbolic link at a name, waits for no FIFO, and opens no device. A file is written only if this process created it,
//! or if [`Folder::continue_file`] or [`Folder::open_lock_file`] found that no other process could have. Links in the
//! path of the folder itself are followed, because the user of the program chose the path, unless another user has put
//! the link into a folder where others than its owner can write, or at the path of a folder that would be created.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::fchown;
use std::path::{Component, Path, PathBuf};

use nix::unistd::geteuid;
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, linkat, mkdirat, openat, readlinkat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// The mode of new files and the mode of new folders. The umask of the process applies to both.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);
/// The mode of lock files. Only the owner can open such a file, so no other user can lock it.
const LOCK_MODE: Mode = Mode::from_raw_mode(0o600);

/// Without `NONBLOCK`, opening a FIFO would wait for its other end. Without `NOCTTY`, a terminal could become the
/// controlling terminal of the process.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// How folders in a path are opened. A folder that is only passed through need not be readable.
const PASS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at a path.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::walk(path, false)
    }

    /// Creates the folder at a path, and the folders above it, unless they exist. Opens the folder.
    pub fn create_all(path: &Path) -> io::Result<Folder> {
        Folder::walk(path, true)
    }

    fn walk(path: &Path, is_created: bool) -> io::Result<Folder> {
        let fd = walk_from(openat(CWD, ".", PASS, Mode::empty())?, path, is_created, LINKS_MAX)?;
        Ok(Folder { fd, path: path.to_path_buf() })
    }

    /// Opens the folder of the file at a path. Returns the folder, and the name of the file in it.
    pub fn of(path: &Path) -> io::Result<(Folder, OsString)> {
        let text = path.as_os_str().as_bytes();
        // `Path::file_name` ignores these ends.
        if text.ends_with(b"/") || text.ends_with(b"/.") {
            let is_folder = if path.is_dir() { "is a folder" } else { "is the path of a folder" };
            return Err(invalid(format!("{is_folder}: name a file in it")));
        }
        let name = path.file_name().ok_or_else(|| invalid("is not the name of a file"))?;
        Ok((Folder::open(folder_of(path))?, name.to_owned()))
    }

    /// Opens a folder in this folder.
    pub fn subfolder(&self, name: &str) -> io::Result<Folder> {
        check_name(name.as_ref())?;
        let fd = openat(&self.fd, name, PASS | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| {
            match (error, self.stat(name)) {
                (Errno::NOTDIR | Errno::LOOP, Ok(found)) if kind(&found) == FileType::Symlink => linked(),
                _ => error.into(),
            }
        })?;
        Ok(Folder { fd, path: self.path.join(name) })
    }

    /// Creates a folder in this folder, unless it exists. Opens the folder.
    pub fn create_subfolder(&self, name: &str) -> io::Result<Folder> {
        check_name(name.as_ref())?;
        match mkdirat(&self.fd, name, FOLDER_MODE) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.subfolder(name)
    }

    /// Opens the same folder once more.
    pub fn try_clone(&self) -> io::Result<Folder> {
        Ok(Folder { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Returns the path that the folder was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names in the folder.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.fd, ".", flags, Mode::empty())?)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the attributes of whatever has a name, which may be a link.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        Ok(statat(&self.fd, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the file is not a regular file. The system's error.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_regular(name.as_ref(), OFlags::RDONLY)
    }

    /// Opens a regular file that belongs to this process's user or to root for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the file is not a regular file, or belongs to another user. The system's
    /// error.
    pub fn open_own_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.open_file(name)?;
        self.check_owner(&fstat(&file)?)?;
        Ok(file)
    }

    /// Reads a file as [`Folder::open_own_file`] opens it, but not more than `len_max_bytes`.
    pub fn read(&self, name: impl AsRef<OsStr>, len_max_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_own_file(name)?.take(len_max_bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > len_max_bytes {
            return Err(invalid(format!("has more than {len_max_bytes} bytes")));
        }
        Ok(bytes)
    }

    /// Returns whether the folder has a regular file of this name that belongs to this process's user or to root.
    pub fn has_own_file(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.stat(name) {
            Ok(found) => Ok(check_kind(&found).and_then(|()| self.check_owner(&found)).is_ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a name belongs to a folder. Returns false if nothing has the name.
    pub fn is_folder(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.stat(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(kind(&found?) == FileType::Directory),
        }
    }

    /// Creates a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if anything has the name. The system's error.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        check_name(name.as_ref())?;
        // With `EXCL`, a file that another user has put at the name is never written.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | SAFELY;
        Ok(File::from(openat(&self.fd, name.as_ref(), flags, FILE_MODE)?))
    }

    /// Creates a file without a name, which the system removes when it is closed.
    ///
    /// # Errors
    /// The system's error, for example if the file system does not support such files.
    pub fn create_unnamed(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, ".", flags, FILE_MODE)?))
    }

    /// Opens a file that an earlier process of this user created with [`Folder::create`], to continue writing it.
    /// Returns `None` if nothing has the name, or something else: a link, a file with several names, or a file whose
    /// owner, group, or mode is not that of a new file.
    pub fn continue_file(&self, name: impl AsRef<OsStr>) -> io::Result<Option<File>> {
        let Ok(file) = self.open_regular(name.as_ref(), OFlags::RDWR) else { return Ok(None) };
        let (found, new) = (fstat(&file)?, self.stat_of_new_file()?);
        let rights = |stat: &Stat| (stat.st_uid, stat.st_gid, stat.st_mode);
        Ok((found.st_nlink == 1 && rights(&found) == rights(&new)).then_some(file))
    }

    /// Opens a lock file, or creates it. Its mode lets only its owner open it. The process can lock the file, and must
    /// not write to it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the file can be no lock file: see [`check_lock_file`]. The system's error.
    pub fn open_lock_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        check_name(name.as_ref())?;
        let open = |flags: OFlags| openat(&self.fd, name.as_ref(), flags | SAFELY, LOCK_MODE);
        let file = match open(OFlags::WRONLY | OFlags::CREATE) {
            Ok(file) => File::from(file),
            // A lock needs no right to write.
            Err(Errno::ROFS | Errno::ACCESS) if let Ok(file) = open(OFlags::RDONLY) => File::from(file),
            Err(error) => {
                // The kind of the file explains the error better.
                self.stat(name).map_or(Ok(()), |found| self.check_lock_file(&found))?;
                return Err(error.into());
            }
        };
        let found = fstat(&file)?;
        self.check_lock_file(&found)?;
        if found.st_mode & 0o077 != 0 && found.st_uid == geteuid().as_raw() {
            match fchmod(&file, LOCK_MODE) {
                Err(Errno::ROFS) => {}
                changed => changed?,
            }
        }
        Ok(file)
    }

    /// Checks that a file can be a lock file: a regular file with one name, which belongs to this process's user or to
    /// root.
    fn check_lock_file(&self, found: &Stat) -> io::Result<()> {
        check_kind(found)?;
        self.check_owner(found)?;
        match found.st_nlink {
            0 | 1 => Ok(()),
            names => Err(invalid(format!("has {names} names (hard links), where 1 was expected"))),
        }
    }

    /// Gives a file a name, which replaces what has the name, and syncs nothing.
    pub fn write(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let new = self.new_file()?;
        new.file().write_all(bytes)?;
        new.replace(name.as_ref())
    }

    /// Writes a file, so that after a power loss the name has either the old file or the new one.
    pub fn write_durably(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        // The bytes must be on the disk before the name is, or a power loss could leave an empty file.
        let new = self.new_file()?;
        new.file().write_all(bytes)?;
        new.file().sync_all()?;
        new.replace(name.as_ref())?;
        self.sync()
    }

    /// Gives a file of another folder, or of this one, one more name in this folder. The name replaces what has it.
    pub fn replace_with_link(&self, from: &Folder, from_name: &str, name: &str) -> io::Result<()> {
        let hidden = with_hidden_name(|hidden| Ok(linkat(&from.fd, from_name, &self.fd, hidden, AtFlags::empty())?))?.1;
        let renamed = self.rename(&hidden, name);
        // A rename does nothing if both names are links to the same file.
        self.remove(&hidden)?;
        renamed
    }

    /// Returns whether a name in this folder and a name in another one belong to the same file.
    pub fn is_same_file(&self, name: &str, other: &Folder, other_name: &str) -> bool {
        let identity = |found: io::Result<Stat>| found.ok().map(|found| (found.st_dev, found.st_ino));
        let file = identity(self.stat(name));
        file.is_some() && file == identity(other.stat(other_name))
    }

    /// Returns whether this process may create files in the folder.
    pub fn is_writable(&self) -> bool {
        rustix::fs::accessat(&self.fd, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    /// Returns whether the folder was deleted, or another one has its path.
    pub fn is_replaced(&self) -> bool {
        let (opened, found) = (fstat(&self.fd), rustix::fs::stat(&self.path));
        !matches!((opened, found), (Ok(opened), Ok(found))
            if (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino))
    }

    /// Renames a file within the folder. The new name replaces what has it.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        check_name(to.as_ref())?;
        Ok(renameat(&self.fd, from.as_ref(), &self.fd, to.as_ref())?)
    }

    /// Removes a file or a link, if it exists.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.fd, name.as_ref(), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Checks that a new file may replace what has a name, which is a regular file, a link, or nothing.
    pub fn check_replaceable(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        let Ok(found) = self.stat(name) else { return Ok(()) };
        match kind(&found) {
            FileType::RegularFile => Ok(()),
            FileType::Directory => Err(invalid("is a folder: name a file in it")),
            // For example, /dev/stdout is a link into /proc. A rename would replace this link for all processes of the
            // system.
            FileType::Symlink => match readlinkat(&self.fd, name, Vec::new()) {
                Ok(target) if target.to_bytes().starts_with(b"/proc") => {
                    Err(invalid("is a link to a file of a process, so it is not replaced: name a file"))
                }
                _ => Ok(()),
            },
            _ => Err(invalid("is not a regular file, so it is not replaced")),
        }
    }

    /// Gives a new file the mode, the owner, and the group of the file that it is about to replace, as far as this
    /// process may. Other users never get more rights: if the group cannot be kept, the group gets the rights of
    /// everybody. Does nothing if nothing has the name, or not a regular file. In a folder where others than its owner
    /// can write, does nothing for the file of another user, who may have put it there to become the owner of the new
    /// file.
    pub fn keep_rights(&self, name: impl AsRef<OsStr>, new: &File) -> io::Result<()> {
        let Ok(old) = self.stat(name) else { return Ok(()) };
        let (folder, created) = (fstat(&self.fd)?, fstat(new)?);
        let is_shared = folder.st_mode & 0o022 != 0;
        let is_trusted = !is_shared || [0, geteuid().as_raw()].contains(&old.st_uid);
        if kind(&old) != FileType::RegularFile || !is_trusted {
            return Ok(());
        }
        let (owner, group) = (old.st_uid, Some(old.st_gid));
        let mut has_group = old.st_gid == created.st_gid;
        if owner != created.st_uid || !has_group {
            has_group |= fchown(new, Some(owner), group).is_ok() || fchown(new, None, group).is_ok();
        }
        let mode = old.st_mode & 0o777;
        let mode = if has_group { mode } else { mode & !0o070 | mode & (mode & 0o007) << 3 };
        if created.st_mode & 0o777 != mode {
            fchmod(new, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Returns whether a name belongs to an open file.
    pub fn has_file(&self, name: impl AsRef<OsStr>, file: &File) -> io::Result<bool> {
        let (named, open) = (self.stat(name)?, fstat(file)?);
        Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino))
    }

    /// Removes the hidden files that killed processes left. Only a process that knows that no other process writes to
    /// the folder may call this function.
    pub fn remove_hidden_files(&self) -> io::Result<()> {
        for name in self.names()?.into_iter().filter(|name| name.to_str().is_some_and(is_hidden_name)) {
            // A file that cannot be removed does no harm, and may belong to another user.
            let _ = self.remove(name);
        }
        Ok(())
    }

    /// Makes the names in the folder durable.
    pub fn sync(&self) -> io::Result<()> {
        self.to_sync()?.sync_all()
    }

    /// Opens the folder as a file that can be synced. Programs call this function before they write, if a folder that
    /// cannot be opened must be an error before the work, and not after it.
    pub fn to_sync(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, ".", flags, Mode::empty())?))
    }

    fn open_regular(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        check_name(name)?;
        // Even a successful open of a device has effects, so the kind of file is also checked before it is opened.
        check_kind(&self.stat(name)?)?;
        let file = File::from(openat(&self.fd, name, access | SAFELY, Mode::empty())?);
        check_kind(&fstat(&file)?)?;
        Ok(file)
    }

    fn stat_of_new_file(&self) -> io::Result<Stat> {
        Ok(fstat(self.new_file()?.file())?)
    }

    fn check_owner(&self, found: &Stat) -> io::Result<()> {
        let (owner, ours) = (found.st_uid, geteuid().as_raw());
        // Some network file systems give all files of a folder one owner.
        let is_ours = |new: Stat| new.st_uid == owner;
        if [0, ours].contains(&owner) || self.stat_of_new_file().is_ok_and(is_ours) {
            return Ok(());
        }
        Err(invalid(format!("belongs to user {owner}, where root or this process's user {ours} was expected")))
    }

    /// Gives an unnamed file a name.
    pub fn link_unnamed(&self, file: &File, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        // `AT_EMPTY_PATH` would need a capability that few processes have.
        Ok(linkat(CWD, proc_path(file), &self.fd, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn link(&self, from: &str, to: &OsStr) -> io::Result<()> {
        check_name(to)?;
        Ok(linkat(&self.fd, from, &self.fd, to, AtFlags::empty())?)
    }
}

/// The maximum number of links in a path in folders where everybody can write, which is also the kernel's maximum.
const LINKS_MAX: usize = 40;

/// Opens the folder at a path, which is relative to a folder or absolute. Creates folders if `is_created` is true.
/// Follows at most `links_max` links in folders where everybody can write.
fn walk_from(folder: OwnedFd, path: &Path, is_created: bool, links_max: usize) -> io::Result<OwnedFd> {
    let mut fd = folder;
    let mut components = path.components();
    while let Some(component) = components.next() {
        let is_output = is_created && components.as_path().as_os_str().is_empty();
        fd = match component {
            Component::Normal(name) => step(&fd, name, is_created, is_output, links_max)?,
            Component::ParentDir => openat(&fd, "..", PASS, Mode::empty())?,
            Component::RootDir => openat(CWD, "/", PASS, Mode::empty())?,
            _ => continue,
        };
    }
    Ok(fd)
}

/// Opens a folder in a folder. Creates it if it does not exist and `is_created` is true. `is_output` is true for the
/// folder that the program writes to, and false for those above it.
fn step(folder: &OwnedFd, name: &OsStr, is_created: bool, is_output: bool, links_max: usize) -> io::Result<OwnedFd> {
    let open = || openat(folder, name, PASS | OFlags::NOFOLLOW, Mode::empty());
    match open() {
        Err(Errno::NOENT) if is_created => {
            match mkdirat(folder, name, FOLDER_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(open()?)
        }
        Err(Errno::NOTDIR | Errno::LOOP) => follow(folder, name, is_output, links_max),
        opened => Ok(opened?),
    }
}

/// Opens the folder that a link in a folder leads to. Rejects a link in a folder where others than its owner can write,
/// unless it belongs to the owner of the folder, to root, or to this process's user. The kernel has the same rule for
/// folders with the sticky bit where everybody can write, if `fs.protected_symlinks` is set. Rejects a link at the path
/// of an output unless it belongs to root or to this process's user.
fn follow(folder: &OwnedFd, name: &OsStr, is_output: bool, links_max: usize) -> io::Result<OwnedFd> {
    let parent = fstat(folder)?;
    if parent.st_mode & 0o022 == 0 && !is_output {
        return Ok(openat(folder, name, PASS, Mode::empty())?);
    }
    // Another user may replace the link at any time, even after the check of its owner. Therefore, the link itself is
    // opened, and the target of the open link is followed.
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&link)?;
    if kind(&found) != FileType::Symlink {
        return Ok(openat(folder, name, PASS | OFlags::NOFOLLOW, Mode::empty())?);
    }
    let (owner, user) = (found.st_uid, geteuid().as_raw());
    let is_trusted = [0, user].contains(&owner) || !is_output && owner == parent.st_uid;
    if !is_trusted {
        let name = name.to_string_lossy();
        return Err(invalid(format!(
            "{name} is a symbolic link of user {owner}, and this program runs as user {user}, so the link is not \
             followed: name the folder that it leads to"
        )));
    }
    let links_left = links_max.checked_sub(1).ok_or(Errno::LOOP)?;
    let target = readlinkat(&link, "", Vec::new())?;
    let folder = folder.try_clone()?;
    walk_from(folder, Path::new(OsStr::from_bytes(target.to_bytes())), false, links_left)
}

/// Creates a file without a name in a folder, even if the file system does not support such files.
pub fn unnamed_file_in(folder: &Path) -> io::Result<File> {
    Folder::open(folder)?.new_file()?.into_unnamed()
}

/// Removes the file or the link at a path, if it exists.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    folder.remove(name)
}

/// Returns the folder of the file at `path`. If the path is only a name, the folder is `.`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Rejects a name that would lead out of the folder.
fn check_name(name: &OsStr) -> io::Result<()> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(invalid("is not the name of a file")),
        name if name.contains(&b'/') => Err(invalid("is not the name of a file")),
        _ => Ok(()),
    }
}

fn check_kind(found: &Stat) -> io::Result<()> {
    match kind(found) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(linked()),
        _ => Err(invalid("is not a regular file")),
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn linked() -> io::Error {
    invalid("is a symbolic link, which is not followed")
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}

/// Returns the path by which this process can open a file again, if /proc is mounted.
pub fn proc_path(file: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests;

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

fn with_hidden_name<T>(take: impl Fn(&str) -> io::Result<T>) -> io::Result<(T, String)> {
    with_free_name(|| format!("{PREFIX}{:016x}{:016x}{SUFFIX}", random_number(), random_number()), take)
}

/// Calls `take` with random names until one is not in use. Returns the name.
pub fn with_free_name<T>(
    random_name: impl Fn() -> String,
    take: impl Fn(&str) -> io::Result<T>,
) -> io::Result<(T, String)> {
    loop {
        let name = random_name();
        match take(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            taken => return Ok((taken?, name)),
        }
    }
}

/// Returns a number that others cannot predict, so they cannot occupy a name that contains it.
pub fn random_number() -> u64 {
    RandomState::new().hash_one(())
}

const PREFIX: &str = ".zero-kv.";
const SUFFIX: &str = ".tmp";

/// Returns whether a name has the form of the hidden names of new files. A killed process can leave such a file.
pub fn is_hidden_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}
