//! Tables in object stores, and access to their objects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;
use tempfile::TempDir;
use zero_kv::bake::Keys;

use crate::helpers::rows::bake_text;
use crate::helpers::trials::{Missing, missing};

/// The servers that tests share.
static MOTO: Mutex<Option<Moto>> = Mutex::new(None);

/// Starts moto's S3 server on a free port. It ends when its standard input ends, so it cannot outlive the tests.
const MOTO_PROGRAM: &str = "
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
server.stop()
";

struct Moto {
    child: Child,
    address: SocketAddr,
}

impl Moto {
    fn start() -> Result<Moto, Missing> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let python = target.join("moto/bin/python");
        if !python.exists() {
            return Err(missing("moto", "moto is not installed (.ci/run does it)"));
        }
        let mut command = Command::new(python);
        command.args(["-B", "-c", MOTO_PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().replace(' ', ":").parse().unwrap_or_else(|_| panic!("moto printed {line:?}"));
        Ok(Moto { child, address })
    }
}

/// Returns the address of moto, which is started if it is not running.
fn moto() -> Result<SocketAddr, Missing> {
    let mut moto = MOTO.lock().unwrap_or_else(PoisonError::into_inner);
    if moto.is_none() {
        *moto = Some(Moto::start()?);
    }
    Ok(moto.as_ref().unwrap().address)
}

pub(crate) fn stop_servers() {
    if let Some(mut moto) = MOTO.lock().unwrap_or_else(PoisonError::into_inner).take() {
        drop(moto.child.stdin.take());
        let _ = moto.child.wait();
    }
}

/// An empty table in a store, and a folder for files.
pub(crate) struct Store {
    pub(crate) files: TempDir,
    url: String,
    objects: Arc<dyn ObjectStore>,
    /// The path of the table in the store.
    prefix: &'static str,
    /// The address of the S3 server, and a bucket.
    s3: Option<(SocketAddr, String)>,
}

impl Store {
    pub(crate) fn folder() -> Store {
        let files = tempfile::tempdir().unwrap();
        let folder = files.path().join("published/users");
        std::fs::create_dir_all(&folder).unwrap();
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&folder).unwrap());
        Store { url: format!("file://{}", folder.display()), files, objects, prefix: "", s3: None }
    }

    pub(crate) fn s3() -> Result<Store, Missing> {
        static BUCKETS: AtomicU32 = AtomicU32::new(0);
        let address = moto()?;
        let bucket = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let mut stream = TcpStream::connect(address).unwrap();
        let head =
            format!("PUT /{bucket} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        // The crate selects no provider of cryptography.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::new().with_endpoint(format!("http://{address}")).with_allow_http(true);
        let builder = builder.with_region("us-east-1").with_access_key_id("key").with_secret_access_key("secret");
        Ok(Store {
            files: tempfile::tempdir().unwrap(),
            url: format!("s3://{bucket}/published/users"),
            objects: Arc::new(builder.with_bucket_name(&bucket).build().unwrap()),
            prefix: "published/users",
            s3: Some((address, bucket)),
        })
    }

    /// Returns the table's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.s3.as_ref().expect("S3").0
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
        if let Some((address, _)) = &self.s3 {
            command.env("AWS_ENDPOINT_URL", format!("http://{address}")).env("AWS_ALLOW_HTTP", "true");
            command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
            command.env("AWS_REGION", "us-east-1");
        }
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
