//! Clients that log in over TCP, with and without TLS.

use std::path::PathBuf;

use rustix::process::Signal;
use zero_kv::bake::Keys;
use zero_kv::client::{Cache, ClientError, Login, Options, Pool, PoolOptions, TlsOptions};

use super::both::{AnyClient, with_both};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles};
use crate::helpers::waiting::eventually;

with_both!(
    each_connection_logs_in_once,
    a_password_file_is_read_for_each_connection,
    logins_that_fail_say_why,
    a_call_whose_login_fails_logs_in_once,
    a_user_needs_a_permission_for_each_key,
    cached_values_over_tls_are_forgotten_when_the_table_is_replaced,
    cached_values_are_forgotten_when_the_permissions_of_the_user_change,
);

/// A users file with two users: `a` with the password `secret`, and `b` with the password `other`. `b` may read only
/// the keys that start with 1.
const USERS: &str = "user default off\n\
    user a on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* +@all\n\
    user b on #d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa ~1* +@read\n";

/// A server with users.
struct Scene {
    table: Table,
    files: TlsFiles,
    server: Server,
}

impl Scene {
    fn new() -> Scene {
        let (table, authority) = (Table::of_rows(100), Authority::new());
        let files = TlsFiles::write(table.folder.path(), &authority, &authority.issue());
        std::fs::write(table.folder.path().join("users.acl"), USERS).unwrap();
        let server = Scene::serve(&table, &files, "127.0.0.1:0");
        Scene { table, files, server }
    }

    /// Replaces the users file by one in which the user `b` may read only the keys that start with a digit, or does not
    /// exist.
    fn permit(&self, digit: Option<u64>) {
        let new = self.table.folder.path().join("new.acl");
        let users = match digit {
            Some(digit) => USERS.replace("~1*", &format!("~{digit}*")),
            None => USERS.lines().filter(|line| !line.starts_with("user b")).map(|line| format!("{line}\n")).collect(),
        };
        std::fs::write(&new, users).unwrap();
        std::fs::rename(new, self.table.folder.path().join("users.acl")).unwrap();
    }

    fn serve(table: &Table, files: &TlsFiles, tls: &str) -> Server {
        let users = table.folder.path().join("users.acl");
        let [_, _, rest @ ..] = files.options();
        table.serve_with(&[&["--tls", tls, "--users", users.to_str().unwrap()], &rest[..]].concat())
    }

    fn address(&self, user: &str) -> String {
        format!("zkv+tls://{user}localhost:{}", self.server.tls().port())
    }

    fn password_file(&self, password: &str) -> PathBuf {
        let path = self.table.folder.path().join("password");
        std::fs::write(&path, password).unwrap();
        path
    }

    fn options(&self, login: Login) -> Options {
        let tls = TlsOptions { ca_file: Some(self.files.ca.clone()), ..TlsOptions::default() };
        Options { login: Some(login), tls, ..Options::default() }
    }
}

fn each_connection_logs_in_once<C: AnyClient>() {
    let mut scene = Scene::new();
    let options = scene.options(Login::new("a", "secret"));
    let mut client = C::connect(scene.address(""), &options).unwrap();
    for _ in 0..3 {
        assert!(client.get_number(7).unwrap().is_some());
    }
    assert_eq!(scene.server.number("requests_auth"), 1);
    let port = format!("127.0.0.1:{}", scene.server.tls().port());
    scene.server.kill();
    scene.server = Scene::serve(&scene.table, &scene.files, &port);
    assert!(client.get_number(7).unwrap().is_some());
    assert_eq!(scene.server.number("requests_auth"), 1);
    let log = scene.server.log();
    assert!(!log.contains("secret"), "{log}");
}

fn a_password_file_is_read_for_each_connection<C: AnyClient>() {
    let scene = Scene::new();
    let file = scene.password_file("secret\n");
    let options = scene.options(Login::with_password_file("a", &file));
    assert!(C::connect(scene.address("a@"), &options).unwrap().get_number(7).unwrap().is_some());
    scene.password_file("secret\r\n");
    assert!(C::connect(scene.address(""), &options).unwrap().get_number(7).unwrap().is_some());
    for (password, expected) in [("secret\n\n", "the login of user \"a\" failed"), ("\n", "is empty")] {
        scene.password_file(password);
        let error = C::connect(scene.address("a@"), &options).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_file(&file).unwrap();
    let error = C::connect(scene.address("a@"), &options).map(|_| ()).unwrap_err();
    assert!(matches!(error, ClientError::Configuration { .. }), "{error:?}");
    assert!(error.to_string().contains("cannot be read: No such file"), "{error}");
}

fn logins_that_fail_say_why<C: AnyClient>() {
    let scene = Scene::new();
    let error = |address: &str, login: Option<Login>| {
        let options = Options { login, ..scene.options(Login::new("a", "secret")) };
        match C::connect(address, &options).and_then(|mut client| client.get_number(7)) {
            Ok(_) => panic!("an error was expected"),
            Err(error) => error,
        }
    };
    for (user, password) in [("a", "wrong-password"), ("nobody", "secret")] {
        let failed = error(&scene.address(""), Some(Login::new(user, password)));
        assert!(matches!(&failed, ClientError::LoginFailed { .. }), "{failed}");
        assert!(!failed.to_string().contains(password) && !format!("{failed:?}").contains(password), "{failed:?}");
    }
    let missing = error(&scene.address(""), None).to_string();
    assert!(missing.contains("requires a login for key 7: name the user in the address"), "{missing}");
    let different = error(&scene.address("b@"), Some(Login::new("a", "secret"))).to_string();
    assert!(different.contains("the user in the address differs"), "{different}");
    let invalid = error(&scene.address(""), Some(Login::new("a\0b", "secret"))).to_string();
    assert!(invalid.contains("a user's name has 1 to 4096 bytes other than 0"), "{invalid}");
    let long = error(&scene.address(""), Some(Login::new("a", [b'x'; 4097]))).to_string();
    assert!(long.contains("a password of 4097 bytes"), "{long}");
}

fn a_call_whose_login_fails_logs_in_once<C: AnyClient>() {
    for cache in [None, Some(Cache::new(1 << 20))] {
        let mut scene = Scene::new();
        let file = scene.password_file("secret");
        let options = Options { cache, ..scene.options(Login::with_password_file("a", &file)) };
        let mut client = C::connect(scene.address(""), &options).unwrap();
        assert!(client.get_number(7).unwrap().is_some());
        let port = format!("127.0.0.1:{}", scene.server.tls().port());
        scene.server.kill();
        scene.server = Scene::serve(&scene.table, &scene.files, &port);
        scene.password_file("wrong-password");
        let error = client.get_number(7).unwrap_err();
        assert!(matches!(error, ClientError::LoginFailed { .. }), "{error}");
        assert_eq!(scene.server.number("logins_failed"), 1, "with the options {options:?}");
    }
}

fn a_user_needs_a_permission_for_each_key<C: AnyClient>() {
    let scene = Scene::new();
    let mut client = C::connect(scene.address(""), &scene.options(Login::new("b", "other"))).unwrap();
    assert!(client.get_number(1).unwrap().is_some());
    for refused in [client.get_number(7).map(|_| ()), client.rows(false).map(|_| ()), client.reload().map(|_| ())] {
        let error = refused.unwrap_err();
        assert!(matches!(error, ClientError::NotPermitted { .. }), "{error}");
        assert!(error.to_string().contains("ask the server's administrator"), "{error}");
    }
    assert!(client.get_number(1).unwrap().is_some(), "the connection is still usable");
    assert_eq!(scene.server.number("requests_auth"), 1);
}

#[test]
fn each_connection_of_a_pool_logs_in() {
    let scene = Scene::new();
    let options = PoolOptions { client: scene.options(Login::new("a", "secret")), ..PoolOptions::default() };
    let pool = Pool::connect_with(scene.address(""), &options).unwrap();
    let mut lent = [pool.get().unwrap(), pool.get().unwrap(), pool.get().unwrap()];
    for _ in 0..2 {
        assert!(lent.iter_mut().all(|client| client.get(7).unwrap().is_some()));
    }
    assert_eq!(scene.server.number("requests_auth"), 3);
}

fn cached_values_over_tls_are_forgotten_when_the_table_is_replaced<C: AnyClient>() {
    let scene = Scene::new();
    let cache = Cache::new(1 << 20);
    let options = Options { cache: Some(cache.clone()), ..scene.options(Login::new("a", "secret")) };
    let mut client = C::connect(scene.address(""), &options).unwrap();
    let mut expected = scene.table.model.get(&7).cloned();
    for generation in 2..6 {
        assert_eq!(client.get_number(7).unwrap(), expected);
        let before = scene.server.number("requests_get");
        for _ in 0..3 {
            assert_eq!(client.get_number(7).unwrap(), expected);
        }
        assert_eq!(scene.server.number("requests_get"), before);
        let new = scene.table.db().with_extension("new");
        bake_text(&new, Keys::U64, format!("7,{generation}\n"));
        std::fs::rename(new, scene.table.db()).unwrap();
        scene.server.signal(Signal::HUP);
        scene.server.wait_for("generation", generation);
        expected = Some(generation.to_string().into_bytes());
        eventually("the cached value is forgotten", || client.get_number(7).unwrap() == expected);
        assert_eq!(cache.len(), 1);
    }
}

fn cached_values_are_forgotten_when_the_permissions_of_the_user_change<C: AnyClient>() {
    let scene = Scene::new();
    let cache = Cache::new(1 << 20);
    let connect = |user: &str, password: &str| {
        let options = Options { cache: Some(cache.clone()), ..scene.options(Login::new(user, password)) };
        C::connect(scene.address(""), &options).unwrap()
    };
    let (mut limited, mut unlimited) = (connect("b", "other"), connect("a", "secret"));
    let value = |key: u64| scene.table.model.get(&key).cloned();
    let is_refused = |client: &mut C, key| match client.get_number(key) {
        Err(ClientError::NotPermitted { .. }) => true,
        found => {
            assert_eq!(found.unwrap(), value(key));
            false
        }
    };
    // The users share a cache, but not its values.
    assert!([10, 20].into_iter().all(|key| !is_refused(&mut unlimited, key)));
    for (permitted, refused) in [(10, 20), (20, 10), (10, 20)] {
        scene.permit(Some(permitted / 10));
        eventually("the user may read other keys", || !is_refused(&mut limited, permitted));
        // The call that reads the notice does not store its value.
        eventually("a permitted key is cached", || {
            let before = scene.server.number("requests_get");
            assert!((0..3).all(|_| !is_refused(&mut limited, permitted)));
            scene.server.number("requests_get") == before
        });
        assert!((0..3).all(|_| is_refused(&mut limited, refused)), "a key that is not permitted is not cached");
        assert!([10, 20].into_iter().all(|key| !is_refused(&mut unlimited, key)));
    }
    // A user who is removed is disconnected, and has no cached values.
    scene.permit(None);
    eventually("the user is disconnected", || limited.get_number(10).is_err());
    assert!((0..3).all(|_| limited.get_number(10).is_err()));
    assert!([10, 20].into_iter().all(|key| !is_refused(&mut unlimited, key)));
}
