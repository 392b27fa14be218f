//! One table, served by `kv_store` over both kinds of socket, and by Redis.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::helpers::frames::connect;
use crate::helpers::redis_server::{Redis, command};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Model, Table};
use crate::helpers::tls::{Authority, TlsFiles};
use crate::helpers::trials::Missing;

/// The number of rows whose values name their keys. A few more rows have unusual values.
pub(crate) const PLAIN_ROWS: u64 = 1000;

pub(crate) const EMPTY: u64 = 1000;
pub(crate) const ALL_BYTES: u64 = 1001;
pub(crate) const LONG: u64 = 1002;
pub(crate) const NUMBER: u64 = 1003;
pub(crate) const LINE_END: u64 = 1004;

pub(crate) fn rows() -> Model {
    let plain = (0..PLAIN_ROWS).map(|key| (key, format!("value_content_at_key_{key}").into_bytes()));
    plain
        .chain([
            (EMPTY, Vec::new()),
            (ALL_BYTES, (0..=255).collect()),
            (LONG, (0..100_000u32).map(|at| b'a' + (at % 26) as u8).collect()),
            (NUMBER, b"12345".to_vec()),
            (LINE_END, b"\r\n$3\r\nyes\r\n".to_vec()),
            (u64::MAX, b"last".to_vec()),
        ])
        .collect()
}

/// Serves [`rows`] over both kinds of socket. Returns the server with the table, whose folder the server needs.
pub(crate) fn serve(options: &[&str]) -> (Table, Server) {
    let table = Table::new(rows());
    let server = table.serve_with(&[&["--tcp", "127.0.0.1:0"], options].concat());
    (table, server)
}

/// A server of [`rows`] that uses TLS.
pub(crate) struct TlsServed {
    pub(crate) server: Server,
    table: Table,
    files: TlsFiles,
}

impl TlsServed {
    /// Returns the paths of the authority's certificate, of a client's certificate, and of the client's key.
    pub(crate) fn client_files(&self) -> [String; 3] {
        let folder = self.table.socket().parent().unwrap().to_path_buf();
        [self.files.ca.clone(), folder.join("client.crt"), folder.join("client.key")]
            .map(|path| path.to_str().unwrap().to_owned())
    }
}

/// Serves [`rows`] with TLS, and issues the certificate of a client.
pub(crate) fn serve_tls(requires_certificates: bool) -> TlsServed {
    let (table, authority) = (Table::new(rows()), Authority::new());
    let folder = table.socket().parent().unwrap().to_path_buf();
    let files = TlsFiles::write(&folder, &authority, &authority.issue());
    let client = authority.issue();
    std::fs::write(folder.join("client.crt"), &client.certificate_pem).unwrap();
    std::fs::write(folder.join("client.key"), client.key_pem()).unwrap();
    let ca = ["--tls-ca", files.ca.to_str().unwrap()];
    let options = [&files.options()[..], if requires_certificates { &ca } else { &[] }].concat();
    TlsServed { server: table.serve_with(&options), table, files }
}

/// Starts a Redis with the rows of [`rows`].
pub(crate) fn redis() -> Result<Redis, Missing> {
    let redis = Redis::start()?;
    let rows: Vec<(String, Vec<u8>)> = rows().into_iter().map(|(key, value)| (key.to_string(), value)).collect();
    redis.fill(rows.iter().map(|(key, value)| (key.as_bytes(), &value[..])));
    Ok(redis)
}

/// Returns a line of words, which are separated by one space each, as a command.
pub(crate) fn line(text: &str) -> Vec<u8> {
    command(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Sends bytes, and returns all replies until the server closes the connection, which the bytes must cause.
pub(crate) fn converse(mut stream: UnixStream, bytes: &[u8]) -> Vec<u8> {
    let mut replies = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        // A server may close the connection before it has read everything, so writing can fail.
        scope.spawn(move || writer.write_all(bytes).and_then(|()| writer.flush()).is_ok());
        // A reset is equivalent to the end of the stream: the server had unread bytes.
        let _ = stream.read_to_end(&mut replies);
        let _ = stream.shutdown(Shutdown::Both);
    });
    replies
}

/// Returns the replies to commands, one per line, on a new connection.
pub(crate) fn ask(socket: &std::path::Path, commands: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = commands.iter().flat_map(|text| line(text)).collect();
    bytes.extend(line("QUIT"));
    converse(connect(socket), &bytes)
}
