//! A file that another machine changes, on a file system whose attributes the kernel caches. This test implements the
//! file system in user space (FUSE). `<linux/fuse.h>` describes the messages.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use zero_kv::client::ClientError;

use super::requirements::mounts;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::{Missing, missing};

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };
const KEY: u64 = 7;
const DEVICE: &str = "/dev/fuse";
/// The time for which the kernel may cache attributes, in seconds.
const VALID_S: u64 = 3600;
const FOLDER: u64 = 1;
const FILE: u64 = 2;

/// A folder with the file `storage.db`.
struct Remote {
    bytes: Vec<u8>,
    modified_s: u64,
}

impl Remote {
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, len_bytes) = if node == FOLDER { (0o40755, 4096) } else { (0o100_644, self.bytes.len() as u64) };
        let times = [self.modified_s; 3];
        let mut attributes = words(&[&[node, len_bytes, 8], &times[..]].concat());
        for field in [0_u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
            attributes.extend(field.to_ne_bytes());
        }
        attributes
    }

    /// Returns the response to a request, or an error number.
    fn response(&self, operation: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        const LOOKUP: u32 = 1;
        const GETATTR: u32 = 3;
        const OPEN: u32 = 14;
        const READ: u32 = 15;
        const STATFS: u32 = 17;
        const RELEASE: u32 = 18;
        const FLUSH: u32 = 25;
        const INIT: u32 = 26;
        const OPENDIR: u32 = 27;
        const RELEASEDIR: u32 = 29;
        match operation {
            INIT => {
                // Version 7.31, no read-ahead, no flags, and at most 128 KiB per message.
                let mut init = [7_u32, 31, 0, 0, 0, 1 << 17, 1, 0].map(u32::to_ne_bytes).concat();
                init.resize(64, 0);
                Ok(init)
            }
            LOOKUP if body == b"storage.db\0" => {
                Ok([words(&[FILE, 0, VALID_S, VALID_S, 0]), self.attributes(FILE)].concat())
            }
            LOOKUP => Err(rustix::io::Errno::NOENT.raw_os_error()),
            GETATTR => Ok([words(&[VALID_S, 0]), self.attributes(node)].concat()),
            OPEN | OPENDIR => Ok(words(&[1, 0])),
            READ => {
                let offset = u64::from_ne_bytes(body[8..16].try_into().unwrap()) as usize;
                let len_bytes = u32::from_ne_bytes(body[16..20].try_into().unwrap()) as usize;
                let rest = self.bytes.get(offset..).unwrap_or_default();
                Ok(rest[..len_bytes.min(rest.len())].to_vec())
            }
            STATFS => Ok(vec![0; 80]),
            RELEASE | FLUSH | RELEASEDIR => Ok(Vec::new()),
            _ => Err(rustix::io::Errno::NOSYS.raw_os_error()),
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Responds to the kernel until the file system is unmounted.
fn respond(mut device: &File, remote: &Mutex<Remote>) {
    const FORGET: u32 = 2;
    const INTERRUPT: u32 = 36;
    const BATCH_FORGET: u32 = 42;
    const HEADER_LEN_BYTES: usize = 40;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let len_bytes = match device.read(&mut buffer) {
            Ok(len_bytes) => len_bytes,
            // The file system is not mounted yet.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                thread::yield_now();
                continue;
            }
            // The file system was unmounted.
            Err(_) => return,
        };
        let (header, body) = buffer[..len_bytes].split_at(HEADER_LEN_BYTES);
        let operation = u32::from_ne_bytes(header[4..8].try_into().unwrap());
        if [FORGET, INTERRUPT, BATCH_FORGET].contains(&operation) {
            continue;
        }
        let node = u64::from_ne_bytes(header[16..24].try_into().unwrap());
        let (error, data) = match remote.lock().unwrap().response(operation, node, body) {
            Ok(data) => (0, data),
            Err(error) => (-error, Vec::new()),
        };
        let mut response = (16 + data.len() as u32).to_ne_bytes().to_vec();
        response.extend(error.to_ne_bytes());
        response.extend(&header[8..16]);
        response.extend(data);
        // Fails if the process that waits for the response was killed.
        let _ = device.write(&response);
    }
}

pub(crate) fn a_file_that_another_machine_changes_gives_errors_although_its_attributes_are_cached()
-> Result<(), Missing> {
    let mounter = mounts()?;
    let open = || File::options().read(true).write(true).open(DEVICE);
    let device = open().map_err(|error| missing("fuse", &format!("{DEVICE}: {error}")))?;
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    std::fs::create_dir(scene.path("disk")).unwrap();
    // Read-only, because reading a page from a writable file system invalidates the cached attributes.
    let options = "ro,fd=0,rootmode=40000,user_id=0,group_id=0";
    let mount = format!("mount -i -t fuse.test -o {options} remote disk");
    let mut probe = Command::new(mounter[0]);
    probe.args([mounter[1], "sh", "-c", &mount]).current_dir(scene.path("")).stdin(open().unwrap());
    let probed = probe.output().unwrap();
    if !probed.status.success() {
        return Err(missing("fuse", String::from_utf8_lossy(&probed.stderr).trim()));
    }

    let bytes = std::fs::read(scene.db()).unwrap();
    let remote = Arc::new(Mutex::new(Remote { bytes, modified_s: 1_700_000_000 }));
    let (kernel, shared) = (device.try_clone().unwrap(), Arc::clone(&remote));
    // The thread ends after the server.
    thread::spawn(move || respond(&kernel, &shared));
    let mut command = Command::new(mounter[0]);
    let script = format!("{mount} && exec \"$0\" --db disk/storage.db --socket s.sock < /dev/null");
    command.args([mounter[1], "sh", "-c", &script, env!("CARGO_BIN_EXE_kv_store")]);
    command.current_dir(scene.path("")).env("RUST_LOG", "info").stdin(device);
    let served = scene.run(command);
    let mut client = served.client();
    let value = SHAPE.value(1, KEY).unwrap();
    assert_eq!(client.get(KEY).unwrap().as_ref(), Some(&value));

    {
        let mut remote = remote.lock().unwrap();
        let value_at = remote.bytes.windows(value.len()).position(|window| window == value).unwrap();
        remote.bytes[value_at..][..value.len()].fill(b'#');
        remote.modified_s += 1;
    }
    // Opening the file discards its cached pages, but not its cached attributes.
    let table = format!("/proc/{}/root{}", served.id(), scene.path("disk/storage.db").display());
    File::open(table).unwrap();
    let overwritten = client.get(KEY);
    assert!(matches!(overwritten, Err(ClientError::Server { .. })), "{overwritten:?}");
    Ok(())
}
