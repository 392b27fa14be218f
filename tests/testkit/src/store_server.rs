//! An HTTP server that serves a folder, as a store that can only be read, and fails in the ways that a test chooses.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use rustix::net::sockopt::set_socket_linger;

use super::hostile_responses::{self, Hostile};

/// How the server responds to requests for some objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closes connections without a response.
    Dead,
    /// Sends no response until the fault ends.
    Stalled,
    /// Responds with this status.
    Status(u16),
    /// Responds as S3 does if the bucket does not exist.
    NoBucket,
    /// Resets the connection in the middle of the body.
    Reset,
    /// Closes the connection after [`CUT_LEN_BYTES`] of the body.
    Cut,
    /// Responds as if the object ended in the middle.
    Truncated,
    /// Changes one bit in the middle of the body.
    Flipped,
    /// Changes one bit of the byte at this offset of the object, in the first response that has it.
    FlippedAt(u64),
    /// Responds in a way that no store does.
    Hostile(Hostile),
}

/// The length after which [`Fault::Cut`] cuts bodies.
pub const CUT_LEN_BYTES: usize = 32 << 10;

/// The body of the response of S3 if the bucket does not exist.
const NO_BUCKET: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchBucket</Code>\
    <Message>The specified bucket does not exist</Message><BucketName>tables</BucketName>\
    <RequestId>4442587FB7D0A2F9</RequestId></Error>";

#[derive(Default)]
struct State {
    /// A part of the paths of the objects that the fault is about, and the fault.
    fault: Option<(String, Fault)>,
    /// The number of requests that the fault was applied to.
    fault_count: u64,
    /// The number of bytes of bodies that were sent.
    sent_bytes: u64,
    /// The time by which the server's clock is ahead of this machine's clock, in seconds.
    clock_offset_s: i64,
}

/// A server with its thread, which runs until the process ends.
pub struct StoreServer {
    address: String,
    state: Arc<Mutex<State>>,
}

impl StoreServer {
    /// Serves the files of a folder.
    pub fn start(folder: &Path) -> StoreServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = StoreServer { address: listener.local_addr().unwrap().to_string(), state: Arc::default() };
        let (state, folder) = (Arc::clone(&server.state), folder.to_path_buf());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, folder) = (Arc::clone(&state), folder.clone());
                thread::spawn(move || respond(stream, &folder, &state));
            }
        });
        server
    }

    /// Returns the URL of a table in the folder.
    pub fn url(&self, table: &str) -> String {
        format!("http://{}/{table}", self.address)
    }

    /// Makes requests fail whose path contains a text. The fault replaces the preceding one.
    pub fn fail(&self, path_part: &str, fault: Fault) {
        self.state.lock().unwrap().fault = Some((path_part.to_owned(), fault));
    }

    /// Ends the fault.
    pub fn recover(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// Sets the time by which the server's clock is ahead of this machine's clock.
    pub fn set_clock_offset_s(&self, offset_s: i64) {
        self.state.lock().unwrap().clock_offset_s = offset_s;
    }

    /// Returns the number of requests that failed because of a fault.
    pub fn fault_count(&self) -> u64 {
        self.state.lock().unwrap().fault_count
    }

    /// Returns the number of bytes of bodies that were sent.
    pub fn sent_bytes(&self) -> u64 {
        self.state.lock().unwrap().sent_bytes
    }
}

/// Serves the one request of a connection.
fn respond(stream: TcpStream, folder: &Path, state: &Mutex<State>) {
    let Some(request) = Request::read(&stream, folder) else { return };
    let (fault, clock_offset_s) = {
        let mut state = state.lock().unwrap();
        let path = request.path.to_str().unwrap();
        let fault = state.fault.clone().filter(|(part, _)| path.contains(part.as_str())).map(|(_, fault)| fault);
        let fault = fault.filter(|fault| request.meets(*fault));
        if let Some(Fault::FlippedAt(_)) = fault {
            state.fault = None;
        }
        state.fault_count += u64::from(fault.is_some());
        (fault, state.clock_offset_s)
    };
    match fault {
        Some(Fault::Dead) => return,
        Some(Fault::Stalled) => {
            while state.lock().unwrap().fault.as_ref().is_some_and(|(_, fault)| *fault == Fault::Stalled) {
                thread::yield_now();
            }
            return;
        }
        _ => {}
    }
    // A client may have ended.
    let sent_bytes = request.answer(stream, fault, clock_offset_s).unwrap_or_default();
    state.lock().unwrap().sent_bytes += sent_bytes;
}

struct Request {
    is_head: bool,
    /// The path in the request.
    target: String,
    path: PathBuf,
    /// The first byte and the last byte that are requested.
    range: Option<(u64, u64)>,
}

impl Request {
    fn read(stream: &TcpStream, folder: &Path) -> Option<Request> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next()?.ok()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        assert!(!path.contains(".."), "{path}");
        let mut request = Request {
            is_head: method == "HEAD",
            target: path.to_owned(),
            path: folder.join(path.trim_start_matches('/')),
            range: None,
        };
        for line in lines {
            let line = line.ok()?.to_ascii_lowercase();
            if line.is_empty() {
                return Some(request);
            }
            if let Some(range) = line.strip_prefix("range: bytes=") {
                let (first, last) = range.split_once('-')?;
                request.range = Some((first.parse().ok()?, last.parse().ok()?));
            }
        }
        None
    }

    /// Returns whether a fault applies to the request.
    fn meets(&self, fault: Fault) -> bool {
        match fault {
            Fault::FlippedAt(offset) => {
                !self.is_head && self.range.is_none_or(|(first, last)| (first..=last).contains(&offset))
            }
            _ => true,
        }
    }

    /// Sends the response. Returns the number of bytes of the body that were sent.
    fn answer(&self, mut stream: TcpStream, fault: Option<Fault>, clock_offset_s: i64) -> std::io::Result<u64> {
        let file = File::open(&self.path);
        let status = match fault {
            Some(Fault::Status(status)) => Some(status),
            Some(Fault::NoBucket) => Some(404),
            _ => file.is_err().then_some(404),
        };
        if let Some(status) = status {
            // The response to HEAD has no body.
            let body = if fault == Some(Fault::NoBucket) && !self.is_head { NO_BUCKET } else { "" };
            let len_bytes = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} Fault\r\nContent-Length: {len_bytes}\r\nConnection: close\r\n\r\n{body}"
            )?;
            return Ok(0);
        }
        if let Some(Fault::Hostile(hostile)) = fault.filter(|_| !self.is_head) {
            let object = std::fs::read(&self.path)?;
            return hostile_responses::respond(hostile, stream, &self.target, self.range, &object);
        }
        let file = file?;
        let metadata = file.metadata()?;
        let mut len_bytes = metadata.len();
        if fault == Some(Fault::Truncated) {
            len_bytes /= 2;
        }
        let (first, last) = self.range.unwrap_or((0, len_bytes.max(1) - 1));
        let end = len_bytes.min(last + 1).max(first);
        let mut body = vec![0; (end - first) as usize];
        file.read_exact_at(&mut body, first)?;
        if let (Some(Fault::Flipped), Some(byte)) = (fault, body.len().checked_sub(1).map(|last| last / 2)) {
            body[byte] ^= 0x10;
        }
        if let Some(Fault::FlippedAt(offset)) = fault {
            body[(offset - first) as usize] ^= 0x10;
        }
        let status = if self.range.is_some() { "206 Partial Content" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len())?;
        if self.range.is_some() {
            write!(stream, "Content-Range: bytes {first}-{}/{len_bytes}\r\n", end.max(1) - 1)?;
        }
        let date = |time| http_date(time, clock_offset_s);
        write!(stream, "Date: {}\r\nLast-Modified: {}\r\n", date(SystemTime::now()), date(metadata.modified()?))?;
        write!(stream, "Connection: close\r\n\r\n")?;
        match fault {
            _ if self.is_head => return Ok(0),
            Some(Fault::Reset) => {
                body.truncate(body.len() / 2);
                stream.write_all(&body)?;
                set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
            }
            Some(Fault::Cut) => {
                body.truncate(CUT_LEN_BYTES);
                stream.write_all(&body)?;
            }
            _ => stream.write_all(&body)?,
        }
        Ok(body.len() as u64)
    }
}

/// Returns a time by another clock in the format of HTTP headers.
fn http_date(time: SystemTime, clock_offset_s: i64) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let time = chrono::DateTime::from_timestamp(seconds + clock_offset_s, 0).unwrap();
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
