//! Options that make the server listen for clients that use TLS.

use crate::helpers::servers::{Server, failure_message};
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles};

#[test]
fn other_machines_are_allowed_if_clients_need_certificates_or_if_the_options_allow_it() {
    let (table, authority) = (Table::of_rows(10), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let mut options = files.options();
    options[1] = "0.0.0.0:0";
    let message = failure_message(table.command(&options), 1);
    for part in
        ["0.0.0.0:0", "clients need neither a certificate nor a password", "--tls-ca", "--users", "--tcp-exposed"]
    {
        assert!(message.contains(part), "{message}");
    }
    for allowed in [&["--tcp-exposed"][..], &["--tls-ca", files.ca.to_str().unwrap()]] {
        let server = table.serve_with(&[&options[..], allowed].concat());
        assert!(server.tls().ip().is_unspecified());
    }
    // The plain port stays subject to its own rule.
    let plain = [&options[..], &["--tls-ca", files.ca.to_str().unwrap(), "--tcp", "0.0.0.0:0"]].concat();
    assert!(failure_message(table.command(&plain), 1).contains("there is no password"));
}

#[test]
fn users_that_need_no_password_are_reported_for_a_server_with_only_a_tls_port() {
    let (table, authority) = (Table::of_rows(10), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let users = table.folder.path().join("users.acl");
    for (text, warnings) in [("user a on nopass", 1), ("user default off", 0)] {
        std::fs::write(&users, text).unwrap();
        let server = table.serve_with(&[&files.options()[..], &["--users", users.to_str().unwrap()]].concat());
        server.expect_logged("add the line: user default off", warnings);
    }
}

#[test]
fn an_unusable_file_is_an_error_that_names_it() {
    let (table, authority) = (Table::of_rows(10), Authority::new());
    let folder = table.socket().parent().unwrap().to_path_buf();
    let files = TlsFiles::write(&folder, &authority, &authority.issue());
    let other = folder.join("other");
    let [certificate, key, other] = [&files.certificate, &files.key, &other].map(|path| path.to_str().unwrap());
    std::fs::write(other, authority.issue().key_pem()).unwrap();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--tls-cert", "absent.crt", "--tls-key", key], &["absent.crt: cannot be read"]),
        (&["--tls-cert", key, "--tls-key", key], &["tls.key: contains no certificate"]),
        (&["--tls-cert", certificate, "--tls-key", certificate], &["tls.crt: contains no private key"]),
        (&["--tls-cert", certificate, "--tls-key", other], &["tls.crt and ", "other cannot be used together"]),
        (&["--tls-cert", certificate, "--tls-key", key, "--tls-ca", key], &["tls.key: contains no certificate"]),
        (&["--tls-cert", folder.to_str().unwrap(), "--tls-key", key], &["expected a regular file"]),
    ];
    for (options, parts) in cases {
        let message = failure_message(table.command(&[&["--tls", "127.0.0.1:0"], options].concat()), 1);
        for part in parts {
            assert!(message.contains(part), "{options:?}: {message}");
        }
    }
}

#[test]
fn the_address_needs_a_certificate_and_a_key_and_they_need_the_address() {
    let table = Table::of_rows(10);
    for (options, missing) in [
        (&["--tls", "127.0.0.1:0"][..], "--tls-cert"),
        (&["--tls", "127.0.0.1:0", "--tls-cert", "c"], "--tls-key"),
        (&["--tls-cert", "c"], "--tls <ADDRESS>"),
        (&["--tls-ca", "c"], "--tls <ADDRESS>"),
        (&["--tls-handshake-timeout", "5"], "--tls <ADDRESS>"),
    ] {
        let message = failure_message(table.command(options), 2);
        assert!(message.contains(missing), "{options:?}: {message}");
    }
}

#[test]
fn a_key_that_everybody_can_read_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let (table, authority) = (Table::of_rows(10), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    for (mode, count) in [(0o600, 0), (0o640, 0), (0o644, 1)] {
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(mode)).unwrap();
        let server: Server = table.serve_with(&files.options());
        assert_eq!(server.logged("every user of this machine can read the private key"), count, "{mode:o}");
    }
}
