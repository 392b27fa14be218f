//! Tables in object stores, and access to their objects.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;
use tempfile::TempDir;
use zero_kv::bake::Keys;

use crate::helpers::rows::bake_text;
use crate::helpers::store_servers::{Bucket, StoreKind};
use crate::helpers::trials::Missing;

/// An empty table in a store, and a folder for files.
pub(crate) struct Store {
    pub(crate) files: TempDir,
    url: String,
    objects: Arc<dyn ObjectStore>,
    /// The path of the table in the store.
    prefix: &'static str,
    bucket: Option<Bucket>,
}

impl Store {
    pub(crate) fn folder() -> Store {
        let files = tempfile::tempdir().unwrap();
        let folder = files.path().join("published/users");
        std::fs::create_dir_all(&folder).unwrap();
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&folder).unwrap());
        Store { url: format!("file://{}", folder.display()), files, objects, prefix: "", bucket: None }
    }

    /// Returns a table on a server of this kind.
    pub(crate) fn on(kind: StoreKind) -> Result<Store, Missing> {
        let (bucket, prefix) = (Bucket::create(kind)?, "published/users");
        let (files, url, objects) = (tempfile::tempdir().unwrap(), bucket.url(prefix), bucket.objects());
        Ok(Store { files, url, objects, prefix, bucket: Some(bucket) })
    }

    /// Returns a table on the S3 server that the gate installs.
    pub(crate) fn s3() -> Result<Store, Missing> {
        Store::on(StoreKind::Moto)
    }

    /// Returns the table's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the environment variables with which programs reach the store.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        self.bucket.iter().flat_map(Bucket::variables).collect()
    }

    pub(crate) fn is_folder(&self) -> bool {
        self.bucket.is_none()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.bucket.as_ref().expect("a server").address
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Returns a command in the folder of files, with the credentials of the store.
    pub(crate) fn command(&self, program: &str) -> Command {
        // A test that runs in the background of a script inherits an ignored SIGINT.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP", program]).current_dir(self.files.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.variables());
        command
    }

    /// Returns a command of `zkv`. The word URL stands for the table's URL.
    pub(crate) fn zkv_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_zkv"));
        command.args(args.iter().map(|arg| if *arg == "URL" { &self.url } else { *arg }));
        command
    }

    /// Runs a command of `zkv`. The word URL stands for the table's URL.
    pub(crate) fn zkv(&self, args: &[&str]) -> Ran {
        Ran::new(self.zkv_command(args).output().unwrap())
    }

    /// Bakes `key,value` lines into a file.
    pub(crate) fn bake(&self, name: &str, text: &str) {
        bake_text(&self.path(name), Keys::U64, text);
    }

    /// Bakes rows that name a generation, and publishes the file.
    pub(crate) fn publish(&self, generation: u64) {
        self.bake("table.db", &format!("1,generation {generation}\n7,seven\n"));
        self.zkv(&["publish", "table.db", "--to", "URL"]).succeeds();
    }

    /// Returns the names of the table's objects in a folder, such as `data`.
    pub(crate) fn objects(&self, folder: &str) -> Vec<String> {
        use futures_util::TryStreamExt;

        let prefix = self.object_path(folder);
        let listed: Vec<_> = block_on(self.objects.list(Some(&prefix)).try_collect()).unwrap();
        let skipped = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let mut names: Vec<String> =
            listed.into_iter().map(|object| object.location.as_ref()[skipped..].to_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn read(&self, object: &str) -> Vec<u8> {
        let read = async { self.objects.get(&self.object_path(object)).await.unwrap().bytes().await.unwrap() };
        block_on(read).to_vec()
    }

    pub(crate) fn write(&self, object: &str, bytes: Vec<u8>) {
        block_on(self.objects.put(&self.object_path(object), bytes.into())).unwrap();
    }

    pub(crate) fn remove(&self, object: &str) {
        block_on(self.objects.delete(&self.object_path(object))).unwrap();
    }

    fn object_path(&self, object: &str) -> object_store::path::Path {
        format!("{}/{object}", self.prefix).into()
    }
}

/// Runs a request of the crate `object_store`.
fn block_on<T>(request: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(request)
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn new(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ran { out: text(&output.stdout), err: text(&output.stderr), output }
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> String {
        assert_eq!(self.output.status.code(), Some(0), "{self:?}");
        self.out
    }

    /// Asserts that the command succeeded, and returns its line of JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.succeeds();
        assert_eq!(out.lines().count(), 1, "{out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Asserts the exit status, that standard output is empty, and that standard error contains texts.
    #[track_caller]
    pub(crate) fn fails(&self, status: i32, texts: &[&str]) {
        assert_eq!((self.output.status.code(), &*self.out), (Some(status), ""), "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "{text:?} is not in {self:?}");
        }
    }
}
