//! A folder of this machine as an object store.
//!
//! In: the paths of objects. Out: files below the folder. Other users may be able to write to the folder or to folders
//! in it, and must not lead a publisher or an operator to files elsewhere. Therefore, each operation walks from the
//! open folder to the object one name at a time, and follows no symbolic link. Only regular files are objects.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::sync::Semaphore;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::folder::{Folder, NewFile};

/// The name of the store in the crate's errors.
pub(super) const STORE: &str = "folder";
/// The number of names in the longest path of an object: `data/JOB/FILE`. Listings do not go deeper.
const DEPTH_MAX: usize = 3;
/// The length of a read.
const CHUNK_LEN_BYTES: u64 = 8 << 20;

/// The maximum time of an operation that reads. A network file system that hangs would otherwise block a node, which
/// has other things to do.
const READ_MAX: Duration = Duration::from_secs(30);
/// The maximum number of operations at a time. Each one that hangs keeps a thread.
const OPERATIONS_MAX: usize = 64;

/// An object store in a folder.
#[derive(Clone, Debug)]
pub(super) struct LocalStore {
    root: Arc<PathBuf>,
    operations: Arc<Semaphore>,
    read_max: Duration,
}

impl LocalStore {
    /// Uses the folder at a path, which need not exist yet.
    pub(super) fn new(root: PathBuf) -> LocalStore {
        LocalStore { root: Arc::new(root), operations: Arc::new(Semaphore::new(OPERATIONS_MAX)), read_max: READ_MAX }
    }

    /// Opens the folder of the store. Each operation opens it, so a store can be used as soon as it is mounted.
    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.root
    }

    fn root(&self) -> Result<Folder> {
        // Objects can be missing, but a missing folder means that the store is not available.
        Folder::open(&self.root)
            .map_err(|error| generic(io::Error::new(error.kind(), format!("{}: {error}", self.root.display()))))
    }

    /// Fails if the folder of the store is missing, cannot be opened, or hangs.
    pub(super) async fn check(&self) -> Result<()> {
        let store = self.clone();
        self.reading(move || store.root().map(drop)).await
    }

    /// Returns the folder of an object, and the object's name in it.
    fn folder_of(&self, location: &Path) -> Result<(Folder, String)> {
        self.walk(location, Folder::subfolder)
    }

    /// Returns the folder of an object, which is created if it does not exist, and the object's name in it.
    fn create_folder_of(&self, location: &Path) -> Result<(Folder, String)> {
        self.walk(location, Folder::create_subfolder)
    }

    fn walk(&self, location: &Path, next: fn(&Folder, &str) -> io::Result<Folder>) -> Result<(Folder, String)> {
        let (folders, name) = location.as_ref().rsplit_once('/').unwrap_or(("", location.as_ref()));
        let mut folder = self.root()?;
        for name in folders.split('/').filter(|name| !name.is_empty()) {
            folder = next(&folder, name).map_err(|error| fault(location, in_folder(&folder, name, error)))?;
        }
        Ok((folder, name.to_owned()))
    }

    fn open(&self, location: &Path) -> Result<(File, ObjectMeta)> {
        let (folder, name) = self.folder_of(location)?;
        let file = folder.open_file(&name).map_err(|error| fault(location, error))?;
        let found = file.metadata().map_err(|error| fault(location, error))?;
        let meta = object_meta(location.clone(), found.mtime(), found.mtime_nsec(), found.len());
        Ok((file, meta))
    }

    fn put_file(&self, location: &Path, payload: &PutPayload, mode: &PutMode) -> Result<()> {
        let (folder, name) = self.create_folder_of(location)?;
        let put = || -> io::Result<()> {
            let new = folder.new_file()?;
            payload.iter().try_for_each(|bytes| new.file().write_all(bytes))?;
            new.file().sync_all()?;
            match mode {
                PutMode::Create => new.create(&name)?,
                _ => new.replace(&name)?,
            }
            folder.sync()
        };
        put().map_err(|error| fault(location, error))
    }

    /// Lists the objects below a folder.
    fn list_all(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
        let mut objects = Vec::new();
        let listed = self.walk(&prefix.clone().join("object"), Folder::subfolder);
        match listed {
            Ok((folder, _)) => list_into(&folder, prefix, &mut objects)?,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(objects)
    }

    /// Returns the names in a folder of the store that belong to something else than a regular file, such as a link or
    /// another folder. These are no objects.
    pub(super) fn names_of_no_objects(&self, prefix: &Path) -> Result<Vec<String>> {
        let (folder, _) = match self.walk(&prefix.clone().join("object"), Folder::subfolder) {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            folder => folder?,
        };
        let names = folder.names().map_err(|error| fault(prefix, error))?;
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let is_regular = |name: &String| {
            // A file may have been deleted meanwhile.
            folder.stat(name).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) != FileType::RegularFile)
        };
        Ok(names.filter(is_regular).collect())
    }

    fn delete_file(&self, location: &Path) -> Result<()> {
        let (folder, name) = self.folder_of(location)?;
        let delete = || folder.open_file(&name).and_then(|_| folder.remove(&name));
        delete().map_err(|error| fault(location, error))
    }
}

/// Appends the objects in a folder and in the folders below it. Other users may have put anything there: what this
/// process may not read is no object, and does not hide the others.
fn list_into(folder: &Folder, prefix: &Path, objects: &mut Vec<ObjectMeta>) -> Result<()> {
    for name in folder.names().map_err(|error| fault(prefix, error))? {
        // Names that no path of an object can have are not those of objects.
        let Some(name) = name.to_str() else { continue };
        let Ok(location) = Path::parse(format!("{prefix}/{name}")) else { continue };
        let found = match folder.stat(name) {
            Err(error) if is_no_object(&error) => continue,
            found => found.map_err(|error| fault(&location, error))?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                let nanoseconds = i64::try_from(found.st_mtime_nsec).unwrap_or_default();
                objects.push(object_meta(location, found.st_mtime, nanoseconds, found.st_size as u64));
            }
            FileType::Directory if location.parts().count() < DEPTH_MAX => {
                let below = folder.subfolder(name).and_then(|below| below.names().map(|_| below));
                match below {
                    Err(error) if is_no_object(&error) => continue,
                    below => list_into(&below.map_err(|error| fault(&location, error))?, &location, objects)?,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether a file or a folder in a listed folder is missing, because it was deleted or replaced after the
/// folder was read, or is one that other users do not let this process read.
fn is_no_object(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};

    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory | InvalidInput)
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn object_meta(location: Path, seconds: i64, nanoseconds: i64, size: u64) -> ObjectMeta {
    let last_modified = DateTime::from_timestamp(seconds, nanoseconds as u32).unwrap_or_default();
    ObjectMeta { location, last_modified, size, e_tag: None, version: None }
}

/// Names the folder that an error is about.
fn in_folder(parent: &Folder, name: &str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => error,
        kind => io::Error::new(kind, format!("{}: {error}", parent.path().join(name).display())),
    }
}

fn fault(location: &Path, error: io::Error) -> Error {
    let path = location.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        _ => generic(error),
    }
}

fn generic(error: io::Error) -> Error {
    Error::Generic { store: STORE, source: error.into() }
}

fn not_supported(operation: &str) -> Error {
    Error::NotSupported { source: format!("a folder does not support {operation}").into() }
}

impl LocalStore {
    /// Runs an operation that can wait for the disk on another thread.
    async fn blocking<T: Send + 'static>(&self, operation: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let permit = Arc::clone(&self.operations).acquire_owned().await;
        let operation = move || {
            let result = operation();
            drop(permit);
            result
        };
        tokio::task::spawn_blocking(operation).await.unwrap_or_else(|error| Err(generic(io::Error::other(error))))
    }

    /// Runs an operation that reads, for a limited time. A thread that hangs is left behind.
    async fn reading<T: Send + 'static>(&self, operation: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let hangs = |_| {
            let (root, max_s) = (self.root.display(), self.read_max.as_secs());
            let problem = format!("{root}: no response within {max_s} s: check the file system");
            Err(generic(io::Error::new(io::ErrorKind::TimedOut, problem)))
        };
        tokio::time::timeout(self.read_max, self.blocking(operation)).await.unwrap_or_else(hangs)
    }

    /// Reads a range of a file as it is requested, and ends early if the file does.
    fn chunks(&self, file: File, location: Path, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
        let (file, store) = (Arc::new(file), self.clone());
        let read = move |range: Range<u64>| {
            let (file, store, location) = (Arc::clone(&file), store.clone(), location.clone());
            async move {
                let len_bytes = CHUNK_LEN_BYTES.min(range.end - range.start);
                let start = range.start;
                let bytes = store.reading(move || {
                    let mut bytes = vec![0; len_bytes as usize];
                    let read_bytes = read_at(&file, &mut bytes, start).map_err(|error| fault(&location, error))?;
                    bytes.truncate(read_bytes);
                    Ok(Bytes::from(bytes))
                });
                let bytes = bytes.await?;
                let rest = range.start + bytes.len() as u64..range.end;
                Ok((!bytes.is_empty()).then_some((bytes, rest)))
            }
        };
        stream::try_unfold(range, read).boxed()
    }
}

/// Fills a buffer from an offset of a file. Returns the number of bytes before the end of the file.
fn read_at(file: &File, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
    let mut read_bytes = 0;
    while read_bytes < bytes.len() {
        match file.read_at(&mut bytes[read_bytes..], offset_bytes + read_bytes as u64) {
            Ok(0) => break,
            Ok(len_bytes) => read_bytes += len_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read_bytes)
}

impl Display for LocalStore {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "the folder {}", self.root.display())
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (store, location) = (self.clone(), location.clone());
        match options.mode {
            PutMode::Update(_) => Err(not_supported("updates of an object's version")),
            mode => {
                self.blocking(move || store.put_file(&location, &payload, &mode)).await?;
                Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (store, location) = (self.clone(), location.clone());
        self.blocking(move || {
            let (folder, name) = store.create_folder_of(&location)?;
            let new = folder.new_file().map_err(|error| fault(&location, error))?;
            let file = Arc::new(new.file().try_clone().map_err(|error| fault(&location, error))?);
            Ok(Box::new(LocalUpload { store, location, name, file, new: Some(new), end_bytes: 0 }) as Box<_>)
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (store, opened) = (self.clone(), location.clone());
        let (file, meta) = self.reading(move || store.open(&opened)).await?;
        options.check_preconditions(&meta)?;
        let range = match options.range {
            None => 0..meta.size,
            Some(GetRange::Bounded(range)) => range.start.min(meta.size)..range.end.min(meta.size),
            Some(GetRange::Offset(start)) => start.min(meta.size)..meta.size,
            Some(GetRange::Suffix(len_bytes)) => meta.size.saturating_sub(len_bytes)..meta.size,
        };
        let payload = GetResultPayload::Stream(self.chunks(file, location.clone(), range.clone()));
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let deleted = store.clone();
                let delete = move || {
                    let location = location?;
                    deleted.delete_file(&location)?;
                    Ok(location)
                };
                store.blocking(delete).await
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let listed = async move {
            // The caller limits the time of a listing, which reads many folders.
            let listed = store.clone();
            store.blocking(move || listed.list_all(&prefix)).await
        };
        let objects = |listed: Result<Vec<ObjectMeta>>| match listed {
            Ok(objects) => stream::iter(objects.into_iter().map(Ok)).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        };
        stream::once(listed).flat_map(objects).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(not_supported("listings of one level"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(not_supported("copies"))
    }
}

/// An upload whose parts are written to a file, which gets its name when it is complete.
#[derive(Debug)]
struct LocalUpload {
    store: LocalStore,
    location: Path,
    name: String,
    file: Arc<File>,
    /// `None` after the upload is complete or was given up.
    new: Option<NewFile>,
    end_bytes: u64,
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (file, location, start_bytes) = (Arc::clone(&self.file), self.location.clone(), self.end_bytes);
        self.end_bytes += data.content_length() as u64;
        let store = self.store.clone();
        let write = move || {
            let mut at_bytes = start_bytes;
            for bytes in &data {
                file.write_all_at(bytes, at_bytes).map_err(|error| fault(&location, error))?;
                at_bytes += bytes.len() as u64;
            }
            Ok(())
        };
        Box::pin(async move { store.blocking(write).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (location, name) = (self.location.clone(), self.name.clone());
        let new = self.new.take().ok_or_else(|| not_supported("a second completion of an upload"))?;
        let place = move || {
            let place = || -> io::Result<()> {
                let folder = new.folder().try_clone()?;
                new.file().sync_all()?;
                new.replace(&name)?;
                folder.sync()
            };
            place().map_err(|error| fault(&location, error))
        };
        self.store.blocking(place).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        self.new = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use futures_util::TryStreamExt;
    use object_store::ObjectStoreExt;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    /// A store in a folder beside a folder that is not part of it.
    fn scene() -> (TempDir, LocalStore, tokio::runtime::Runtime) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("store/data/job")).unwrap();
        fs::create_dir_all(folder.path().join("victim/sub")).unwrap();
        fs::write(folder.path().join("victim/file"), "precious").unwrap();
        fs::write(folder.path().join("victim/sub/file"), "precious").unwrap();
        let store = LocalStore::new(folder.path().join("store"));
        (folder, store, tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
    }

    fn list(store: &LocalStore, runtime: &tokio::runtime::Runtime, prefix: &str) -> Vec<String> {
        let objects = runtime.block_on(store.list(Some(&Path::from(prefix))).try_collect::<Vec<_>>()).unwrap();
        let mut names: Vec<String> = objects.into_iter().map(|object| object.location.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_that_hangs_fails_reads_and_keeps_few_threads() {
        let (_folder, mut store, runtime) = scene();
        store.read_max = Duration::from_millis(1);
        // Operations that hang until the end of the test.
        let (hangs, has_ended) = std::sync::mpsc::channel::<()>();
        let has_ended = Arc::new(std::sync::Mutex::new(has_ended));
        let started = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for _ in 0..2 * OPERATIONS_MAX {
            let (has_ended, started) = (Arc::clone(&has_ended), Arc::clone(&started));
            let hanging = store.reading(move || {
                started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let _ = has_ended.lock().unwrap().recv();
                Ok(())
            });
            let error = runtime.block_on(hanging).unwrap_err().to_string();
            assert!(error.contains("no response within"), "{error}");
        }
        let path = Path::from("pins/1.json");
        for error in [runtime.block_on(store.get(&path)).unwrap_err(), runtime.block_on(store.head(&path)).unwrap_err()]
        {
            assert!(error.to_string().contains("no response within"), "{error}");
        }
        assert!(started.load(std::sync::atomic::Ordering::Relaxed) <= OPERATIONS_MAX);
        // The file system responds again.
        drop(hangs);
        store.read_max = READ_MAX;
        assert!(matches!(runtime.block_on(store.get(&path)), Err(Error::NotFound { .. })));
    }

    #[test]
    fn objects_are_put_read_listed_and_deleted() {
        let (folder, store, runtime) = scene();
        let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let (one, two) = (Path::from("pins/1.json"), Path::from("data/job/2"));
        runtime.block_on(async {
            store.put_opts(&one, "first".into(), once.clone()).await.unwrap();
            let second = store.put_opts(&one, "second".into(), once.clone()).await;
            assert!(matches!(second, Err(Error::AlreadyExists { .. })), "{second:?}");
            assert_eq!(store.get(&one).await.unwrap().bytes().await.unwrap(), "first");
            store.put(&one, "third".into()).await.unwrap();
            assert_eq!(store.get_range(&one, 1..3).await.unwrap(), "hi");
            assert_eq!(store.get_range(&one, 3..30).await.unwrap(), "rd");
            assert_eq!(store.head(&one).await.unwrap().size, 5);
            let mut upload = store.put_multipart(&two).await.unwrap();
            let parts = [upload.put_part("abc".into()), upload.put_part("de".into())];
            // Parts may be written in any order.
            for part in parts.into_iter().rev() {
                part.await.unwrap();
            }
            assert!(matches!(store.head(&two).await, Err(Error::NotFound { .. })), "an incomplete upload has no name");
            upload.complete().await.unwrap();
            assert_eq!(store.get(&two).await.unwrap().bytes().await.unwrap(), "abcde");
            let mut aborted = store.put_multipart(&Path::from("data/job/3")).await.unwrap();
            aborted.put_part("abc".into()).await.unwrap();
            aborted.abort().await.unwrap();
        });
        assert_eq!(list(&store, &runtime, ""), ["data/job/2", "pins/1.json"]);
        assert_eq!(list(&store, &runtime, "data"), ["data/job/2"]);
        assert_eq!(list(&store, &runtime, "none"), [""; 0]);
        runtime.block_on(async {
            store.delete(&two).await.unwrap();
            assert!(matches!(store.delete(&two).await, Err(Error::NotFound { .. })));
            assert!(matches!(store.get(&two).await, Err(Error::NotFound { .. })));
        });
        assert_eq!(fs::read_dir(folder.path().join("store/data/job")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_outside_the_folder_is_listed_read_written_or_deleted_through_links() {
        let (folder, store, runtime) = scene();
        let (root, victim) = (folder.path().join("store"), folder.path().join("victim"));
        symlink(&victim, root.join("data/linked")).unwrap();
        symlink("../../victim", root.join("status")).unwrap();
        symlink(victim.join("file"), root.join("data/job/file")).unwrap();
        symlink(victim.join("new"), root.join("data/job/dangling")).unwrap();
        assert_eq!(list(&store, &runtime, ""), [""; 0]);
        let linked = ["data/linked/file", "data/linked/sub/file", "status/file", "data/job/file", "data/job/dangling"];
        for object in linked {
            let path = Path::from(object);
            runtime.block_on(async {
                let errors = [
                    store.get(&path).await.map(drop).unwrap_err(),
                    store.delete(&path).await.unwrap_err(),
                    store.get_range(&path, 0..1).await.map(drop).unwrap_err(),
                ];
                for error in errors {
                    let Error::Generic { source, .. } = error else { panic!("{object}: {error}") };
                    assert!(source.to_string().contains("is a symbolic link, which is not followed"), "{source}");
                }
                if !object.starts_with("data/job") {
                    assert!(store.put(&path, "new".into()).await.is_err(), "{object}");
                    assert!(store.put_multipart(&path).await.is_err(), "{object}");
                } else {
                    store.put(&path, "new".into()).await.unwrap();
                }
            });
        }
        for file in ["file", "sub/file"] {
            assert_eq!(fs::read(victim.join(file)).unwrap(), b"precious");
        }
        assert_eq!(fs::read_dir(victim).unwrap().count(), 2);
    }

    #[test]
    fn special_files_are_no_objects_and_block_nobody() {
        let (folder, store, runtime) = scene();
        let pins = folder.path().join("store/pins");
        fs::create_dir(&pins).unwrap();
        mknodat(CWD, pins.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(pins.join("socket")).unwrap();
        fs::create_dir(pins.join("folder")).unwrap();
        assert_eq!(list(&store, &runtime, "pins"), [""; 0]);
        for name in ["fifo", "socket", "folder"] {
            let error = runtime.block_on(store.get(&Path::from(format!("pins/{name}")))).map(drop).unwrap_err();
            let Error::Generic { source, .. } = error else { panic!("{name}: {error}") };
            assert_eq!(source.to_string(), "is not a regular file", "{name}");
        }
    }

    #[test]
    fn a_missing_folder_is_not_a_missing_object() {
        let store = LocalStore::new("/no/such/folder".into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(store.get(&Path::from("pins/1.json"))).map(drop).unwrap_err();
        let Error::Generic { source, .. } = &error else { panic!("{error}") };
        assert!(source.to_string().contains("/no/such/folder: No such file or directory"), "{source}");
        let error = source.downcast_ref::<io::Error>().expect("the system's error is the source");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn folders_that_are_too_deep_are_not_listed() {
        let (folder, store, runtime) = scene();
        let mut path = folder.path().join("store");
        for _ in 0..40 {
            path.push("d");
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        }
        assert_eq!(list(&store, &runtime, "d"), ["d/d/file", "d/file"]);
    }
}
