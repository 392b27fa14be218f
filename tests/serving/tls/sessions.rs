//! Clients that resume a session instead of repeating the whole handshake.

use std::io::Write;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};

use crate::helpers::frames::expect;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles, connect_tls};

/// Connects, exchanges a command, and returns the kind of the handshake.
fn kind(server: &Server, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut stream = connect_tls(server, config);
    stream.write_all(b"PING\r\n").unwrap();
    expect(&mut stream, b"+PONG\r\n");
    stream.conn.handshake_kind()
}

#[test]
fn sessions_are_resumed_even_after_the_certificate_was_replaced() {
    let (table, authority) = (Table::of_rows(10), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    let configs = [&TLS12, &TLS13].map(|version| authority.clients(None, Some(version)));
    for config in &configs {
        assert_eq!(kind(&server, config), Some(HandshakeKind::Full));
        assert_eq!(kind(&server, config), Some(HandshakeKind::Resumed));
    }
    files.replace(&authority.issue());
    server.signal(Signal::HUP);
    server.outcome_of(1);
    for config in &configs {
        assert_eq!(kind(&server, config), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn no_session_is_resumed_after_the_authorities_of_clients_have_changed() {
    let (table, authority, removed) = (Table::of_rows(10), Authority::new(), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    std::fs::write(&files.ca, authority.pem() + &removed.pem()).unwrap();
    let server = table.serve_with(&[&files.options()[..], &["--tls-ca", files.ca.to_str().unwrap()]].concat());
    let (kept, rejected) = (authority.issue(), removed.issue());
    let [kept, rejected] = [&kept, &rejected].map(|identity| authority.clients(Some(identity), None));
    for config in [&kept, &rejected] {
        assert_eq!(kind(&server, config), Some(HandshakeKind::Full));
        assert_eq!(kind(&server, config), Some(HandshakeKind::Resumed));
    }
    std::fs::write(&files.ca, authority.pem()).unwrap();
    server.signal(Signal::HUP);
    server.outcome_of(1);
    assert_eq!(kind(&server, &kept), Some(HandshakeKind::Full));
    let mut stream = connect_tls(&server, &rejected);
    let _ = stream.write_all(b"PING\r\n");
    assert!(std::io::Read::read(&mut stream, &mut [0; 1]).is_err());
    server.wait_for("tls_handshakes_failed", 1);
}
