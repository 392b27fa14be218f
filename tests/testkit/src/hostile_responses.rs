//! HTTP responses that no store sends, but whoever answers in its place can.

use std::io::Write;
use std::net::TcpStream;

/// How a response is hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// An error whose body has escape sequences, line ends, and this many bytes.
    ErrorBody(u16, usize),
    /// An error whose body never ends.
    EndlessErrorBody,
    /// An error whose header announces 2^62 bytes.
    HugeErrorBody,
    /// The requested bytes with the right headers, and then more without end.
    EndlessBody,
    /// The right headers, and a body that never ends and has no length.
    EndlessChunks,
    /// Headers without end.
    EndlessHeaders,
    /// The requested range with this header `Content-Range`.
    ContentRange(&'static str),
    /// This header `Content-Length`, and no body.
    ContentLength(&'static str),
    /// The whole object instead of the requested range.
    WholeObject,
    /// A redirect to the same object, without end.
    RedirectLoop,
    /// A response that says that its body is compressed.
    Compressed,
    /// Bytes that are not HTTP.
    NotHttp,
}

/// Sends a response to a request for `body`, which is a part of an object or the whole object. Returns the number of
/// bytes that the client took.
pub fn respond(
    hostile: Hostile,
    mut stream: TcpStream,
    path: &str,
    range: Option<(u64, u64)>,
    object: &[u8],
) -> std::io::Result<u64> {
    const LINE: &[u8] = b"<Error>\x1b[2J\r\nforged: log line\x07 \xff\xe2\x80\xae</Error>";
    let (first, last) = range.unwrap_or((0, object.len().max(1) as u64 - 1));
    let part = &object[(first as usize).min(object.len())..(last as usize + 1).min(object.len())];
    let content_range = format!("bytes {first}-{last}/{}", object.len());
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let mut head = |status: &str, headers: &[(&str, &str)]| {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        stream.write_all(format!("HTTP/1.1 {status}\r\n{headers}").as_bytes())?;
        Ok::<(), std::io::Error>(())
    };
    let len = part.len().to_string();
    let closing = ("Connection", "close\r\n");
    match hostile {
        Hostile::ErrorBody(status, len_bytes) => {
            head(&format!("{status} Hostile"), &[("Content-Length", &len_bytes.to_string()), closing])?;
            let body: Vec<u8> = LINE.iter().copied().cycle().take(len_bytes).collect();
            stream.write_all(&body)?;
            Ok(len_bytes as u64)
        }
        Hostile::EndlessErrorBody => {
            head("403 Hostile", &[closing])?;
            Ok(endless(&mut stream, &LINE.repeat(1000)))
        }
        Hostile::HugeErrorBody => {
            head("403 Hostile", &[("Content-Length", "4611686018427387904"), closing])?;
            stream.write_all(LINE)?;
            stream.write_all(LINE)?;
            Ok(0)
        }
        Hostile::EndlessBody => {
            head(status, &[("Content-Length", "4398046511104"), ("Content-Range", &content_range), closing])?;
            stream.write_all(part)?;
            Ok(endless(&mut stream, &[b'z'; 64 << 10]))
        }
        Hostile::EndlessChunks => {
            head(status, &[("Content-Range", &content_range), ("Transfer-Encoding", "chunked"), closing])?;
            let chunk = [b"10000\r\n", &[b'z'; 0x10000][..], b"\r\n"].concat();
            Ok(endless(&mut stream, &chunk))
        }
        Hostile::EndlessHeaders => {
            head(status, &[])?;
            Ok(endless(&mut stream, &b"X-Header: value\r\n".repeat(1000)))
        }
        Hostile::ContentRange(value) => {
            head("206 Partial Content", &[("Content-Length", &len), ("Content-Range", value), closing])?;
            stream.write_all(part)?;
            Ok(part.len() as u64)
        }
        Hostile::ContentLength(value) => {
            head(status, &[("Content-Length", value), ("Content-Range", &content_range), closing])?;
            Ok(0)
        }
        Hostile::WholeObject => {
            head("200 OK", &[("Content-Length", &object.len().to_string()), closing])?;
            stream.write_all(object)?;
            Ok(object.len() as u64)
        }
        Hostile::RedirectLoop => {
            head("302 Found", &[("Content-Length", "0"), ("Location", path), closing])?;
            Ok(0)
        }
        Hostile::Compressed => {
            let encoded = [("Content-Encoding", "gzip"), ("Content-Length", &len), ("Content-Range", &content_range)];
            head(status, &[&encoded[..], &[closing]].concat())?;
            stream.write_all(part)?;
            Ok(part.len() as u64)
        }
        Hostile::NotHttp => {
            stream.write_all(b"\x1b[2J\xff\x00 SSH-2.0 \r\n\r\n")?;
            Ok(0)
        }
    }
}

/// Sends bytes until the client closes the connection. Returns the number of bytes that were sent.
fn endless(stream: &mut TcpStream, bytes: &[u8]) -> u64 {
    let mut sent_bytes = 0;
    while stream.write_all(bytes).is_ok() {
        sent_bytes += bytes.len() as u64;
    }
    sent_bytes
}
