//! Tests that a panic, wherever it happens, ends only its own connection.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zerocopy::IntoBytes;

use super::tests::connections_over;
use super::*;
use crate::bake::{Options, bake_csv};
use crate::protocol::native::{Op, Request};
use crate::server::sockets::Descriptors;

/// A stream that panics after `calls_left` calls, and sends at most 5000 bytes per call.
struct PanickingStream {
    stream: UnixStream,
    calls_left: usize,
}

impl PanickingStream {
    fn call(&mut self) -> Pin<&mut UnixStream> {
        self.calls_left = self.calls_left.checked_sub(1).expect("no more calls");
        Pin::new(&mut self.stream)
    }
}

impl AsyncRead for PanickingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.call().poll_read(cx, buffer)
    }
}

impl AsyncWrite for PanickingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.call().poll_write(cx, &bytes[..bytes.len().min(5000)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.call().poll_write(cx, pieces.iter().find(|piece| !piece.is_empty()).expect("something to send"))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call().poll_shutdown(cx)
    }
}

impl ClientStream for PanickingStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.socket()
    }

    fn poll_send_with(&self, _: &mut Context<'_>, _: &[u8], _: &Descriptors) -> Poll<io::Result<usize>> {
        unreachable!("no descriptors are passed in this test")
    }
}

/// Returns one pipeline for each protocol, with requests for short and long values.
fn pipelines() -> [Vec<u8>; 2] {
    let keys = || (0..200_u64).map(|i| i % 12);
    let native = keys().flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect();
    let redis = keys().flat_map(|key| format!("GET {key}\r\n").into_bytes()).collect();
    [native, redis]
}

async fn get_and_check(client: &mut UnixStream, key: u64, value: &str) {
    client.write_all(Request::new(Op::Get, key).as_bytes()).await.unwrap();
    let mut answer = vec![0; 8 + value.len()];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer[8..], value.as_bytes());
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let value = |key: u64| format!("{key}").repeat(1 + key as usize * key as usize * 500);
    let csv: String = (0..10).map(|key| format!("{key},{}\n", value(key))).collect();
    let db = folder.path().join("storage.db");
    bake_csv(csv.as_bytes(), &db, &Options::default()).unwrap();
    let connections = connections_over(&db);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    panics::install_hook();
    runtime.block_on(async {
        let connect = |calls_left: usize| {
            let (client, stream) = UnixStream::pair().unwrap();
            connections.worker.counters().connection_opened();
            connections.open(PanickingStream { stream, calls_left }, Peer::default()).spawn();
            client
        };
        let mut other = connect(usize::MAX);
        let pinned = || connections.worker.pin().count();
        let mut panics = 0;
        // The panic happens in the first read, or in a later write. About half of the writes send pending responses.
        for (calls_left, requests) in (0..40).flat_map(|calls_left| pipelines().map(|requests| (calls_left, requests)))
        {
            let client = connect(calls_left);
            let (mut reader, mut writer) = client.into_split();
            let mut answers = Vec::new();
            // The connection may end before all requests are sent. Reading the responses then ends in an error.
            let _ = writer.write_all(&requests).await;
            let _ = timeout(PATIENCE, reader.read_to_end(&mut answers)).await.unwrap();
            panics += 1;
            assert_eq!(
                connections.worker.server.statistics.totals.panics.load(Ordering::Relaxed),
                panics,
                "{calls_left}"
            );
            get_and_check(&mut other, 9, &value(9)).await;
            get_and_check(&mut other, 3, &value(3)).await;
            assert_eq!(
                (connections.worker.counters().connections(), connections.redis_clients.count(), pinned()),
                (1, 0, 2),
                "{calls_left}"
            );
        }
        timeout(PATIENCE, connections.worker.stop()).await.expect("no responses are pending");
    });
}
