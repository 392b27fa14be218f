//! A plain HTTP server of a folder, which supports ranges.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Serves a folder until the process ends.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    /// The number of bytes of bodies that were sent.
    sent_bytes: Arc<AtomicU64>,
}

impl HttpServer {
    pub(crate) fn start(folder: PathBuf) -> HttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sent_bytes) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let sent = Arc::clone(&sent_bytes);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (folder, sent) = (folder.clone(), Arc::clone(&sent));
                // A client may close its connection at any time.
                thread::spawn(move || drop(serve(stream, &folder, &sent)));
            }
        });
        HttpServer { address, sent_bytes }
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, folder: &Path, sent_bytes: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8_lossy(&head);
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Ok(file) = fs::read(folder.join(path.trim_start_matches('/'))) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let lines = head.lines().map(str::to_lowercase);
        let range = lines.filter_map(|line| line.strip_prefix("range: bytes=").map(str::to_owned)).next();
        let range = range.as_ref().and_then(|range| range.split_once('-'));
        let range = range.map(|(first, last)| (first.parse().unwrap(), last.parse::<usize>().unwrap()));
        let (status, first, last) = match range {
            Some((first, last)) => ("206 Partial Content", first, last.min(file.len() - 1)),
            None => ("200 OK", 0, file.len() - 1),
        };
        let (len, total) = (last + 1 - first, file.len());
        let range =
            if range.is_some() { format!("Content-Range: bytes {first}-{last}/{total}\r\n") } else { String::new() };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{range}\r\n")?;
        if method == "GET" {
            stream.write_all(&file[first..=last])?;
            sent_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}
