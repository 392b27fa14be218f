//! An HTTP/1.1 server that serves a folder, with ranges and connections that stay open.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

/// Serves a folder until the process ends. Returns the address of the server.
pub(crate) fn serve(folder: &Path) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, folder) = (listener.local_addr()?.to_string(), folder.to_path_buf());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let folder = folder.clone();
            // A client may close its connection at any time.
            thread::spawn(move || drop(serve_connection(&stream, &folder)));
        }
    });
    Ok(address)
}

struct Request {
    path: PathBuf,
    is_head: bool,
    /// The first byte and the last byte that are requested.
    range: Option<(u64, u64)>,
}

fn serve_connection(mut stream: &TcpStream, folder: &Path) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(request) = read_request(&mut lines, folder)? {
        let Ok(mut file) = File::open(&request.path) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let len_bytes = file.metadata()?.len();
        let (first, last) = request.range.unwrap_or((0, len_bytes.max(1) - 1));
        let end = len_bytes.min(last + 1).max(first);
        let (status, range) = match request.range {
            Some(_) => {
                ("206 Partial Content", format!("Content-Range: bytes {first}-{}/{len_bytes}\r\n", end.max(1) - 1))
            }
            None => ("200 OK", String::new()),
        };
        let headers = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            end - first
        );
        stream.write_all(headers.as_bytes())?;
        if !request.is_head {
            file.seek(SeekFrom::Start(first))?;
            // Between a file and a socket, the kernel copies the bytes.
            io::copy(&mut file.take(end - first), &mut stream)?;
        }
    }
    Ok(())
}

/// Reads the next request. Returns `None` if the connection has ended.
fn read_request(lines: &mut impl Iterator<Item = io::Result<String>>, folder: &Path) -> io::Result<Option<Request>> {
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    let mut words = first.split(' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut request =
        Request { path: folder.join(path.trim_start_matches('/')), is_head: method == "HEAD", range: None };
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            return Ok(Some(request));
        }
        let range = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'));
        if let Some((first, last)) = range {
            request.range = first.parse().ok().zip(last.parse().ok());
        }
    }
    Ok(None)
}
