//! Clients over TCP, with and without TLS.

use std::path::Path;
use std::time::Duration;

use zero_kv::client::{ClientError, Options, Pool, PoolOptions, TlsOptions};

use super::both::{AnyClient, CallResult, with_both};
use crate::helpers::random::random;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, Identity, TlsFiles};

with_both!(
    values_of_any_length_arrive_over_tcp_and_tls,
    many_requests_are_answered_while_responses_arrive,
    servers_without_a_trusted_certificate_are_rejected,
    a_port_without_tls_and_a_port_with_tls_are_told_apart,
    a_server_may_require_a_client_certificate,
    changed_certificates_of_a_client_are_used_for_its_next_connection,
    a_client_reconnects_after_a_restart_of_the_server,
    options_that_do_not_fit_the_address_are_rejected,
);

/// A server with a TLS port and a port without TLS.
struct Scene {
    table: Table,
    authority: Authority,
    files: TlsFiles,
    server: Server,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(Table::of_rows(100), |authority| authority.issue(), &[])
    }

    fn of(table: Table, issue: impl FnOnce(&Authority) -> Identity, options: &[&str]) -> Scene {
        let authority = Authority::new();
        let files = TlsFiles::write(table.folder.path(), &authority, &issue(&authority));
        let ca = files.ca.to_str().unwrap();
        let options: Vec<&str> = options.iter().map(|option| option.replace("CA", ca).leak() as &str).collect();
        let server = table.serve_with(&[&files.options()[..], &["--tcp", "127.0.0.1:0"], &options].concat());
        Scene { table, authority, files, server }
    }

    fn tls(&self) -> String {
        format!("zkv+tls://localhost:{}", self.server.tls().port())
    }

    fn tcp(&self) -> String {
        format!("zkv://127.0.0.1:{}", self.server.info().get("tcp").unwrap().rsplit(':').next().unwrap())
    }

    fn options(&self) -> Options {
        trusting(&self.files.ca)
    }

    fn get<C: AnyClient>(&self, address: &str, options: &Options) -> CallResult<Option<Vec<u8>>> {
        C::connect(address, options)?.get_number(7)
    }
}

fn trusting(ca: &Path) -> Options {
    with_tls(TlsOptions { ca_file: Some(ca.into()), ..TlsOptions::default() })
}

fn with_tls(tls: TlsOptions) -> Options {
    Options { tls, ..Options::default() }
}

/// Writes a certificate and its key into files, and returns the options of a client that uses them.
fn identified(folder: &Path, ca: &Path, identity: &Identity) -> TlsOptions {
    let (certificate, key) = (folder.join("client.crt"), folder.join("client.key"));
    std::fs::write(&certificate, &identity.certificate_pem).unwrap();
    std::fs::write(&key, identity.key_pem()).unwrap();
    TlsOptions {
        ca_file: Some(ca.into()),
        certificate_file: Some(certificate),
        key_file: Some(key),
        ..TlsOptions::default()
    }
}

#[track_caller]
fn expect_problem<T>(result: CallResult<T>, expected: &[&str]) {
    let Err(error) = result else { panic!("{expected:?} was expected") };
    let text = error.to_string();
    assert!(matches!(error, ClientError::Tls { .. } | ClientError::Configuration { .. }), "{error:?}");
    assert!(expected.iter().all(|expected| text.contains(expected)), "{text}: {expected:?}");
}

fn values_of_any_length_arrive_over_tcp_and_tls<C: AnyClient>() {
    let value = |len: usize| (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    let lengths = [0, 1, 100, 4096, 16_383, 16_384, 16_385, 65_536, 70_000, 1 << 20, 3_500_001];
    let scene = Scene::of(Table::new((0..).zip(lengths.map(value))), Authority::issue, &[]);
    for address in [scene.tcp(), scene.tls()] {
        let options = if address.contains("tls") { scene.options() } else { Options::default() };
        let mut client = C::connect(&address, &options).unwrap();
        for (key, len) in (0..).zip(lengths) {
            assert!(client.get_number(key).unwrap().unwrap() == value(len), "{address}: {len} bytes");
        }
        assert_eq!(client.get_number(99).unwrap(), None);
        let rows = client.rows(true).unwrap();
        assert_eq!(rows.len(), lengths.len());
        assert!(rows.iter().zip(lengths.iter().rev()).all(|((_, found), len)| *found == value(*len)));
    }
    assert_eq!(scene.server.number("tls_handshakes"), 1);
}

fn many_requests_are_answered_while_responses_arrive<C: AnyClient>() {
    let table =
        Table::new((0..2000_u64).map(|key| (key, format!("{key}").repeat(1 + key as usize % 500).into_bytes())));
    let scene = Scene::of(table, Authority::issue, &[]);
    let (seed, mut found) = (0x715, 0);
    println!("seed {seed}");
    let mut random = random(seed);
    let keys: Vec<u64> = (0..30_000).map(|_| random() % 2500).collect();
    let mut client = C::connect(scene.tls(), &scene.options()).unwrap();
    let visit = |position: usize, value: Option<&[u8]>| {
        assert!(value == scene.table.model.get(&keys[position]).map(Vec::as_slice), "key {}", keys[position]);
        found += 1;
    };
    client.get_many_with(&keys, visit).unwrap();
    assert_eq!(found, keys.len());
}

fn servers_without_a_trusted_certificate_are_rejected<C: AnyClient>() {
    let scene = Scene::new();
    assert!(scene.get::<C>(&scene.tls(), &scene.options()).unwrap().is_some());
    assert!(scene.get::<C>(&scene.tls().replace("localhost", "127.0.0.1"), &scene.options()).unwrap().is_some());
    let foreign = scene.table.folder.path().join("foreign.crt");
    std::fs::write(&foreign, Authority::new().pem()).unwrap();
    expect_problem(
        scene.get::<C>(&scene.tls(), &trusting(&foreign)),
        &["is not signed by an authority in ", "foreign.crt", "--tls-ca [TlsOptions::ca_file]"],
    );
    // The connection reached a server, but nothing was sent.
    assert_eq!(scene.server.number("requests_get"), 2);

    let named = |name: &str| {
        let server_name = Some(name.to_owned());
        with_tls(TlsOptions { ca_file: Some(scene.files.ca.clone()), server_name, ..TlsOptions::default() })
    };
    expect_problem(
        scene.get::<C>(&scene.tls(), &named("db.example")),
        &["is for", "localhost", "where db.example was expected", "--tls-server-name [TlsOptions::server_name]"],
    );
    expect_problem(scene.get::<C>(&scene.tls(), &named("a b")), &["\"a b\" cannot be the name of a server"]);
    let other = Scene::of(Table::of_rows(100), |authority| authority.issue_for(&["db.example"], 2001, 2200), &[]);
    let server_name = Some("db.example".to_owned());
    let tls = TlsOptions { ca_file: Some(other.files.ca.clone()), server_name, ..TlsOptions::default() };
    assert!(other.get::<C>(&other.tls(), &with_tls(tls)).unwrap().is_some());

    for (from, until, expected) in [(2001, 2002, "expired"), (2190, 2200, "valid only in")] {
        let issue = |authority: &Authority| authority.issue_for(&["localhost"], from, until);
        let scene = Scene::of(Table::of_rows(1), issue, &[]);
        expect_problem(scene.get::<C>(&scene.tls(), &scene.options()), &[expected, " days", "clock"]);
    }
}

fn a_port_without_tls_and_a_port_with_tls_are_told_apart<C: AnyClient>() {
    let scene = Scene::new();
    // Each connection is retried, as if the server were stopping.
    let options = |tls: TlsOptions| Options { retries: 0, tls, ..Options::default() };
    let plain = scene.tcp().replace("zkv://", "zkv+tls://");
    let error = scene.get::<C>(&plain, &options(scene.options().tls)).unwrap_err().to_string();
    assert!(error.contains("this port does not use TLS: use zkv://"), "{error}");
    let encrypted = scene.tls().replace("zkv+tls://", "zkv://");
    let error = scene.get::<C>(&encrypted, &options(TlsOptions::default())).unwrap_err().to_string();
    assert!(error.contains("this port uses TLS: use zkv+tls://"), "{error}");
}

fn a_server_may_require_a_client_certificate<C: AnyClient>() {
    let scene = Scene::of(Table::of_rows(100), Authority::issue, &["--tls-ca", "CA"]);
    let folder = scene.table.folder.path();
    expect_problem(
        scene.get::<C>(&scene.tls(), &scene.options()),
        &["may require a client certificate", "TlsOptions::certificate_file", "TlsOptions::key_file"],
    );
    for invalid in [Authority::new().issue(), scene.authority.issue_until(2002)] {
        let tls = identified(folder, &scene.files.ca, &invalid);
        expect_problem(scene.get::<C>(&scene.tls(), &with_tls(tls)), &["rejected this client's certificate"]);
    }
    let tls = identified(folder, &scene.files.ca, &scene.authority.issue());
    assert!(scene.get::<C>(&scene.tls(), &with_tls(tls.clone())).unwrap().is_some());
    // Files that cannot be used.
    std::fs::write(folder.join("other.key"), scene.authority.issue().key_pem()).unwrap();
    let other_key = TlsOptions { key_file: Some(folder.join("other.key")), ..tls.clone() };
    expect_problem(scene.get::<C>(&scene.tls(), &with_tls(other_key)), &["client.crt", "cannot be used together"]);
    let no_key = TlsOptions { key_file: None, ..tls.clone() };
    expect_problem(scene.get::<C>(&scene.tls(), &with_tls(no_key)), &["name both"]);
    let missing = TlsOptions { ca_file: Some(folder.join("missing")), ..tls.clone() };
    expect_problem(scene.get::<C>(&scene.tls(), &with_tls(missing)), &["missing", "No such file"]);
    let no_pem = TlsOptions { certificate_file: Some(scene.table.db()), ..tls };
    expect_problem(scene.get::<C>(&scene.tls(), &with_tls(no_pem)), &["storage.db", "PEM was expected"]);
}

fn changed_certificates_of_a_client_are_used_for_its_next_connection<C: AnyClient>() {
    let scene = Scene::of(Table::of_rows(100), Authority::issue, &["--tls-ca", "CA", "--idle-timeout", "1"]);
    let tls = identified(scene.table.folder.path(), &scene.files.ca, &scene.authority.issue());
    let mut client = C::connect(scene.tls(), &with_tls(tls.clone())).unwrap();
    assert!(client.get_number(7).unwrap().is_some());
    // A certificate that the server rejects shows that the client reads its files again.
    identified(scene.table.folder.path(), &scene.files.ca, &Authority::new().issue());
    scene.server.wait_for("connections_cut_idle", 1);
    expect_problem(client.get_number(7), &["rejected this client's certificate"]);
    identified(scene.table.folder.path(), &scene.files.ca, &scene.authority.issue());
    assert!(client.get_number(7).unwrap().is_some());
    // A certificate without its key, as between two replacements, leaves the previous files in use.
    std::fs::write(tls.key_file.unwrap(), scene.authority.issue().key_pem()).unwrap();
    scene.server.wait_for("connections_cut_idle", 2);
    assert!(client.get_number(7).unwrap().is_some());
}

fn a_client_reconnects_after_a_restart_of_the_server<C: AnyClient>() {
    let mut scene = Scene::new();
    let options = Options { reconnect_timeout: Duration::from_secs(60), ..scene.options() };
    let mut client = C::connect(scene.tls(), &options).unwrap();
    let port = format!("127.0.0.1:{}", scene.server.tls().port());
    let [_, _, rest @ ..] = scene.files.options();
    for _ in 0..2 {
        assert!(client.get_number(7).unwrap().is_some());
        scene.server.kill();
        scene.server = scene.table.serve_with(&[&["--tls", &port], &rest[..]].concat());
    }
    assert!(client.get_number(7).unwrap().is_some());
}

fn options_that_do_not_fit_the_address_are_rejected<C: AnyClient>() {
    let scene = Scene::new();
    for address in [scene.tcp(), scene.table.socket().to_str().unwrap().to_owned()] {
        expect_problem(scene.get::<C>(&address, &scene.options()), &["an address that starts with zkv+tls://"]);
    }
    let options = Options { server_user: Some("root".to_owned()), ..scene.options() };
    expect_problem(scene.get::<C>(&scene.tls(), &options), &["cannot be determined over TCP", "--server-user"]);
    let error = scene.get::<C>("zkv://no-such-host.invalid:1", &Options::default()).unwrap_err().to_string();
    assert!(error.contains("the address of host \"no-such-host.invalid\" cannot be found"), "{error}");
    let error = scene.get::<C>("zkv://localhost", &Options::default()).unwrap_err();
    assert!(matches!(error, ClientError::Address(_)), "{error}");
    drop(scene.server);
    // No process listens on this port: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let result = C::connect(format!("zkv://127.0.0.1:{port}"), &Options::default());
    let error = result.map(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error}");
    assert!(error.to_string().ends_with("is kv_store running, and on this port?"), "{error}");
}

#[test]
fn a_pool_keeps_its_connections_over_tls() {
    let scene = Scene::new();
    let options = PoolOptions { client: scene.options(), ..PoolOptions::default() };
    let pool = Pool::connect_with(scene.tls(), &options).unwrap();
    for _ in 0..10 {
        // A server sends session tickets after a handshake, which do not make an idle connection unusable.
        assert!(pool.get().unwrap().get(7).unwrap().is_some());
    }
    assert_eq!(scene.server.number("tls_handshakes"), 1);
    let (mut first, mut second) = (pool.get().unwrap(), pool.get().unwrap());
    assert!(first.get(7).unwrap().is_some() && second.get(7).unwrap().is_some());
    drop((first, second));
    assert_eq!(scene.server.number("tls_handshakes"), 2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = zero_kv::client::AsyncPool::connect_with(scene.tls(), &options).await.unwrap();
        for _ in 0..10 {
            assert!(pool.get().await.unwrap().get(7).await.unwrap().is_some());
        }
    });
    assert_eq!(scene.server.number("tls_handshakes"), 3);
}

#[test]
fn direct_mode_needs_the_unix_socket() {
    let scene = Scene::new();
    let error = zero_kv::client::Client::connect(scene.tcp()).unwrap().direct().unwrap_err();
    assert!(matches!(error, ClientError::Direct { .. }), "{error}");
    assert!(error.to_string().contains("only over its Unix socket"), "{error}");
}
