//! Servers with the interface of an object store, on this machine.
//!
//! The tests share one server of each kind. A server ends when its standard input ends, so it cannot outlive the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use tempfile::TempDir;

use super::programs::in_target_folder;
use super::trials::{Missing, missing};

/// A program that serves object storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoreKind {
    /// The S3 server of the Python package moto, which keeps objects in memory.
    Moto,
    /// The S3 server of the crate s3s-fs, which keeps objects in a folder.
    S3s,
    /// Azurite, Microsoft's server of Azure's blobs for tests.
    Azurite,
}

/// The running servers. [`stop_servers`] stops them.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// The credentials that every Azurite accepts, from its documentation.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Starts moto's S3 server on a free port.
const MOTO_PROGRAM: &str = "
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('http://%s:%s' % server.get_host_and_port(), flush=True)
sys.stdin.read()
server.stop()
";

/// Runs a server until standard input ends.
const UNTIL_INPUT_ENDS: &str = "exec 3<&0; \"$@\" </dev/null 3<&- & cat <&3 >/dev/null; kill $!";

/// Creates a container of Azurite. The address and the name are its arguments. Only requests with a signature may do so.
const CONTAINER_PROGRAM: &str = "
import base64, email.utils, hashlib, hmac, sys, urllib.request
address, name, account, key = sys.argv[1:]
date = email.utils.formatdate(usegmt=True)
path = f'/{account}/{name}'
signed = 'PUT' + 12 * '\\n' + f'x-ms-date:{date}\\nx-ms-version:2021-08-06\\n/{account}{path}\\nrestype:container'
signature = base64.b64encode(hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()).decode()
headers = {'x-ms-date': date, 'x-ms-version': '2021-08-06', 'Content-Length': '0',
           'Authorization': f'SharedKey {account}:{signature}'}
urllib.request.urlopen(urllib.request.Request(f'http://{address}{path}?restype=container', method='PUT', headers=headers))
";

struct Running {
    kind: StoreKind,
    child: Child,
    address: SocketAddr,
    /// The folder of the objects.
    folder: TempDir,
}

impl StoreKind {
    /// Returns the installed program, relative to the target folder, and how to install it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            StoreKind::Moto => ("moto/bin/python", ".ci/run"),
            StoreKind::S3s => ("s3s-fs/bin/s3s-fs", ".ci/install-stores"),
            StoreKind::Azurite => ("azurite/node_modules/.bin/azurite-blob", ".ci/install-stores"),
        }
    }

    /// Returns the program's path.
    pub fn installed(self) -> Result<PathBuf, Missing> {
        let (program, installer) = self.program();
        let path = in_target_folder(program);
        let name = format!("{self:?}").to_lowercase();
        path.exists()
            .then_some(path)
            .ok_or_else(|| missing(&name, &format!("{name} is not installed ({installer} does it)")))
    }

    /// Returns the command that serves the objects of a folder on a free port, and prints its URL.
    fn command(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(if self == StoreKind::Moto { program.as_os_str() } else { "sh".as_ref() });
        match self {
            StoreKind::Moto => {
                return {
                    command.args(["-B", "-c", MOTO_PROGRAM]);
                    command
                };
            }
            _ => command.args(["-c", UNTIL_INPUT_ENDS, "sh"]).arg(program),
        };
        match self {
            StoreKind::Moto => {}
            StoreKind::S3s => {
                command.args(["--host", "127.0.0.1", "--port", "0", "--access-key", "key", "--secret-key", "secret"]);
                command.arg(folder).env("RUST_LOG", "s3s_fs=info");
            }
            StoreKind::Azurite => {
                command.args(["--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck"]);
                command.arg("--disableTelemetry").arg("--location").arg(folder);
            }
        }
        command
    }

    fn start(self) -> Result<Running, Missing> {
        let (program, folder) = (self.installed()?, tempfile::tempdir().unwrap());
        let mut command = self.command(&program, folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, address) = line.rsplit_once("http://")?;
            let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(address.len());
            // Azurite first prints the port that it was given.
            address[..end].parse().ok().filter(|address: &SocketAddr| address.port() != 0)
        });
        let address = address.unwrap_or_else(|| panic!("{self:?} did not print its address"));
        // The server must not wait for a reader of its log.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Running { kind: self, child, address, folder })
    }
}

/// A bucket or container of a server.
pub struct Bucket {
    kind: StoreKind,
    pub address: SocketAddr,
    name: String,
}

impl Bucket {
    /// Creates a bucket on the server of this kind, which is started if it is not running.
    pub fn create(kind: StoreKind) -> Result<Bucket, Missing> {
        static BUCKETS: AtomicU32 = AtomicU32::new(0);
        let name = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let mut servers = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if !servers.iter().any(|server| server.kind == kind) {
            servers.push(kind.start()?);
        }
        let server = servers.iter().find(|server| server.kind == kind).unwrap();
        let address = server.address;
        match kind {
            StoreKind::Moto => put_bucket(address, &name),
            StoreKind::S3s => std::fs::create_dir(server.folder.path().join(&name)).unwrap(),
            StoreKind::Azurite => {
                let mut create = Command::new("python3");
                create.args(["-c", CONTAINER_PROGRAM, &address.to_string(), &name, AZURITE_ACCOUNT, AZURITE_KEY]);
                assert!(create.status().unwrap().success(), "the container was not created");
            }
        }
        Ok(Bucket { kind, address, name })
    }

    /// Returns the URL of a table in the bucket.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.kind == StoreKind::Azurite { "az" } else { "s3" };
        format!("{scheme}://{}/{path}", self.name)
    }

    /// Returns the environment variables with which programs reach the server.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let url = format!("http://{}", self.address);
        let text = str::to_owned;
        match self.kind {
            StoreKind::Azurite => {
                vec![("AZURE_STORAGE_USE_EMULATOR", text("true")), ("AZURITE_BLOB_STORAGE_URL", url)]
            }
            StoreKind::Moto | StoreKind::S3s => vec![
                ("AWS_ENDPOINT_URL", url),
                ("AWS_ALLOW_HTTP", text("true")),
                ("AWS_ACCESS_KEY_ID", text("key")),
                ("AWS_SECRET_ACCESS_KEY", text("secret")),
                ("AWS_REGION", text("us-east-1")),
            ],
        }
    }

    /// Returns access to the bucket's objects.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        // The crate selects no provider of cryptography.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}", self.address);
        match self.kind {
            StoreKind::Azurite => {
                let builder = MicrosoftAzureBuilder::new().with_account(AZURITE_ACCOUNT).with_access_key(AZURITE_KEY);
                let builder = builder.with_endpoint(format!("{url}/{AZURITE_ACCOUNT}")).with_allow_http(true);
                Arc::new(builder.with_container_name(&self.name).build().unwrap())
            }
            StoreKind::Moto | StoreKind::S3s => {
                let builder = AmazonS3Builder::new().with_endpoint(url).with_allow_http(true).with_region("us-east-1");
                let builder = builder.with_access_key_id("key").with_secret_access_key("secret");
                Arc::new(builder.with_bucket_name(&self.name).build().unwrap())
            }
        }
    }
}

/// Creates a bucket of a server that checks no signatures.
fn put_bucket(address: SocketAddr, name: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("PUT /{name} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

pub fn stop_servers() {
    for mut server in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        drop(server.child.stdin.take());
        let _ = server.child.wait();
    }
}
