//! Certificates that are replaced while the server runs.

use std::io::Write;
use std::process::Command;

use rustix::process::Signal;

use crate::helpers::frames::expect;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles, TlsStream, connect_tls, shake_hands};

struct Scene {
    table: Table,
    authority: Authority,
    files: TlsFiles,
}

impl Scene {
    fn new() -> Scene {
        let (table, authority) = (Table::of_rows(10), Authority::new());
        let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
        Scene { table, authority, files }
    }

    fn serve(&self) -> Server {
        self.table.serve_with(&self.files.options())
    }

    /// Connects a new client, and returns the certificate of the server.
    fn served_certificate(&self, server: &Server) -> Vec<u8> {
        certificate_of(&mut connect_tls(server, &self.authority.clients(None, None)))
    }
}

fn certificate_of(stream: &mut TlsStream) -> Vec<u8> {
    shake_hands(stream).unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

/// Returns what `zkv health` prints about a healthy server.
fn notes_of_health(server: &Server) -> String {
    let mut health = Command::new(env!("CARGO_BIN_EXE_zkv"));
    let health = health.arg("--socket").arg(server.socket()).arg("health").output().unwrap();
    assert!(health.status.success(), "{health:?}");
    String::from_utf8(health.stderr).unwrap()
}

fn ping(stream: &mut TlsStream) {
    stream.write_all(b"PING\r\n").unwrap();
    expect(stream, b"+PONG\r\n");
}

#[test]
fn changed_certificates_are_used_for_new_connections_and_old_connections_stay() {
    let scene = Scene::new();
    let server = scene.serve();
    let mut old = connect_tls(&server, &scene.authority.clients(None, None));
    ping(&mut old);
    for (reloads, is_signaled) in [(1, true), (2, false)] {
        let identity = scene.authority.issue();
        assert_ne!(scene.served_certificate(&server), *identity.certificate);
        scene.files.replace(&identity);
        if is_signaled {
            server.signal(Signal::HUP);
            server.outcome_of(1);
        }
        server.wait_for("tls_reloads", reloads);
        assert_eq!(scene.served_certificate(&server), *identity.certificate);
        ping(&mut old);
    }
    assert_eq!(server.number("tls_reloads_refused"), 0);
}

#[test]
fn files_that_cannot_be_used_leave_the_certificate_in_place_and_are_reported() {
    let scene = Scene::new();
    let server = scene.serve();
    let mut old = connect_tls(&server, &scene.authority.clients(None, None));
    let certificate = certificate_of(&mut old);
    let (good, other) = (std::fs::read(&scene.files.certificate).unwrap(), scene.authority.issue());
    let broken: [(&str, Option<&[u8]>, &str); 4] = [
        ("empty", Some(b""), "contains no certificate"),
        ("garbage", Some(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"), "cannot be parsed"),
        ("of another key", Some(other.certificate_pem.as_bytes()), "cannot be used together"),
        ("missing", None, "cannot be read"),
    ];
    for (attempt, (name, bytes, problem)) in (1..).zip(broken) {
        match bytes {
            Some(bytes) => std::fs::write(&scene.files.certificate, bytes).unwrap(),
            None => std::fs::remove_file(&scene.files.certificate).unwrap(),
        }
        server.signal(Signal::HUP);
        server.outcome_of(attempt);
        let refused = server.info().get("tls_refused").unwrap().to_owned();
        assert!(refused.contains(problem) && refused.contains("tls.crt"), "{name}: {refused}");
        assert!(server.number("tls_reloads_refused") >= attempt);
        assert_eq!(scene.served_certificate(&server), certificate, "{name}");
        ping(&mut old);
    }
    let text = notes_of_health(&server);
    assert!(text.contains("cannot be read"), "{text}");

    std::fs::write(&scene.files.certificate, good).unwrap();
    server.wait_for("tls_reloads", 1);
    assert_eq!(server.info().get("tls_refused"), Some(""));
    ping(&mut old);
}

#[test]
fn an_expired_certificate_is_reported_and_its_end_is_a_number() {
    let scene = Scene::new();
    let mut server = scene.serve();
    // 2200-01-01 00:00:00 UTC.
    assert_eq!(server.number("tls_certificate_expires_s"), 7_258_118_400);
    assert!(!notes_of_health(&server).contains("TLS"));
    scene.files.replace(&scene.authority.issue_until(2020));
    server.wait_for("tls_reloads", 1);
    server.wait_for_log("tls.crt: the certificate expired ");
    assert_eq!(server.number("tls_certificate_expires_s"), 1_577_836_800);
    assert!(notes_of_health(&server).contains("the TLS certificate expired "));
    assert!(shake_hands(&mut connect_tls(&server, &scene.authority.clients(None, None))).is_err());
}
