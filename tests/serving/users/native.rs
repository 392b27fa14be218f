//! Logins and permissions in the native protocol.

use std::io::{Read, Write};

use zero_kv::client::{Client, ClientError, Login, Options};

use super::*;
use crate::helpers::frames::{answer, expect, expect_end, gets, request};
use crate::helpers::reference_server::{EXISTS, GET, INFO, LONG, OPEN, PING, RANGE, range_body};
use crate::helpers::tables::answer_to_get;
use crate::helpers::typed_tables::{GET_COLUMNS, SCHEMA, SELECT, TypedTable, selection};
use crate::helpers::waiting::eventually;

#[test]
fn native_requests_need_a_login_and_permissions() {
    let scene = Scene::new(
        "user default off\nuser keys on nopass ~1* +@read +ping\nuser all on nopass ~* +@all\n\
         user ping on nopass +ping +info",
    );
    let body = range_body(0, 10, b"", b"");
    let all = [
        request(GET, 1).to_vec(),
        request(GET, 2).to_vec(),
        request(PING, 0).to_vec(),
        request(INFO, 0).to_vec(),
        request(OPEN, 0).to_vec(),
        request(7, 0).to_vec(),
        request(2, 1).to_vec(),
        long(RANGE, &body),
        long(GET, b"1"),
        request(99, 0).to_vec(),
        request(EXISTS, 1).to_vec(),
    ]
    .concat();
    let bare = |status: u32| answer(status, b"");
    let get = answer_to_get(&scene.table.model, 1);
    let mut stream = scene.tcp();
    stream.write_all(&all).unwrap();
    expect(&mut stream, &bare(UNAUTHENTICATED).repeat(11));
    stream.write_all(&[auth("keys", "x"), all.clone()].concat()).unwrap();
    let mut expected = [bare(0), get.clone(), bare(NOT_PERMITTED), bare(0)].concat();
    expected.extend(bare(NOT_PERMITTED).repeat(5));
    expected.extend([bare(2), bare(2), bare(0)].concat());
    expect(&mut stream, &expected);
    stream.write_all(&[auth("ping", "x"), all].concat()).unwrap();
    let mut expected = [bare(0), bare(NOT_PERMITTED).repeat(2), bare(0)].concat();
    expected.extend([bare(NOT_PERMITTED).repeat(6), bare(2), bare(NOT_PERMITTED)].concat());
    expect(&mut stream, &expected);
    // A login can follow any requests, in one write, and may be split at any byte.
    let requests = [auth("all", "x"), gets(1..300), auth("keys", "x"), gets([2]), auth("all", "x"), gets([2])].concat();
    let mut expected = bare(0);
    (1..300).for_each(|key| expected.extend(answer_to_get(&scene.table.model, key)));
    expected.extend([bare(0), bare(NOT_PERMITTED), bare(0), answer_to_get(&scene.table.model, 2)].concat());
    for part in [requests.len(), 1, 7] {
        for part in requests.chunks(part) {
            stream.write_all(part).unwrap();
        }
        expect(&mut stream, &expected);
    }
    // Malformed logins.
    stream.write_all(&[long(AUTH, b"all"), long(AUTH, b""), request(AUTH, 0).to_vec()].concat()).unwrap();
    expect(&mut stream, &bare(2).repeat(3));
    stream.write_all(&[&(LONG | AUTH).to_be_bytes()[..], &u32::MAX.to_be_bytes(), &[0; 8]].concat()).unwrap();
    expect_end(&mut stream, &bare(2));
}

#[test]
fn a_client_that_logs_in_keeps_its_user_when_it_reconnects() {
    let scene = Scene::new("user a on #HASH ~1* +@read\nuser b on nopass ~* +@all");
    let mut client = scene.server.client();
    assert!(client.get(2).unwrap().is_some());
    assert!(matches!(client.authenticate("a", "wrong"), Err(ClientError::LoginFailed { user, .. }) if user == "\"a\""));
    assert!(client.get(2).unwrap().is_some(), "a failed login changes nothing");
    client.authenticate("a", "secret").unwrap();
    let denied = |client: &mut Client| {
        let error = client.get(2).unwrap_err();
        assert!(matches!(&error, ClientError::NotPermitted { request, .. } if request == "key 2"), "{error}");
        assert!(matches!(client.info(), Err(ClientError::NotPermitted { .. })));
        assert!(client.get(1).unwrap().is_some());
    };
    denied(&mut client);
    assert!(matches!(client.direct(), Ok(_) | Err(_)), "direct mode has its own connection");
    // The server disconnects the client, which then logs in again.
    scene.replace_users("user b on nopass ~* +@all");
    scene.server.wait_for("connections_cut_user", 1);
    assert!(matches!(client.get(1), Err(ClientError::LoginFailed { .. })));
    scene.replace_users("user a on #HASH ~1* +@read\nuser b on nopass ~* +@all");
    eventually("the user exists again", || client.get(1).is_ok());
    denied(&mut client);
    let user = std::fs::metadata(format!("/proc/{}", scene.server.id())).unwrap();
    let server_user = Some(std::os::unix::fs::MetadataExt::uid(&user).to_string());
    let options = Options { server_user, login: Some(Login::new("a", "secret")), ..Options::default() };
    denied(&mut Client::connect_with(scene.server.socket(), &options).unwrap());
    assert!(!format!("{options:?}").contains("secret"));
}

#[test]
fn a_restricted_client_of_the_unix_socket_cannot_use_direct_mode() {
    let scene = Scene::new("user a on nopass ~* +@all -@admin\nuser b on nopass ~* +@all");
    for (user, status) in [("a", NOT_PERMITTED), ("b", 0)] {
        let mut unix = scene.server.connect();
        unix.write_all(&[auth(user, "x"), request(OPEN, 0).to_vec()].concat()).unwrap();
        expect(&mut unix, &answer(0, b""));
        let mut header = [0; 8];
        unix.read_exact(&mut header).unwrap();
        assert_eq!(header[..4], status.to_be_bytes(), "{user}");
    }
}

#[test]
fn columns_need_the_permission_for_get() {
    let typed = TypedTable::new("a:u32 b:text", [1_u64, 2], 3);
    let table = Table::of_rows(1);
    typed.write(&table.db());
    let scene = Scene::of(
        table,
        "user default off\nuser all on nopass ~* +@read\nuser keys on nopass ~1* +@read\nuser none on nopass +@read\n\
         user ping on nopass ~* +ping +info +exists",
    );
    let requests = [
        request(SCHEMA, 0).to_vec(),
        long(SELECT, &selection(typed.schema.id(), &[1])),
        request(GET_COLUMNS, 1).to_vec(),
        request(GET_COLUMNS, 2).to_vec(),
    ]
    .concat();
    let bare = |status: u32| answer(status, b"");
    let mut stream = scene.tcp();
    stream.write_all(&requests).unwrap();
    expect(&mut stream, &bare(UNAUTHENTICATED).repeat(4));
    stream.write_all(&[auth("ping", "x"), requests.clone()].concat()).unwrap();
    expect(&mut stream, &[bare(0), bare(NOT_PERMITTED).repeat(4)].concat());
    // No key is permitted.
    stream.write_all(&[auth("none", "x"), requests.clone()].concat()).unwrap();
    expect(&mut stream, &[bare(0), bare(NOT_PERMITTED).repeat(4)].concat());
    // A user of some keys learns the columns, and reads only the rows of these keys.
    let schema = answer(0, &typed.schema.encode());
    let rows = [1, 2].map(|key| typed.answer(&key, &[1]));
    stream.write_all(&[auth("keys", "x"), requests.clone()].concat()).unwrap();
    expect(&mut stream, &[bare(0), schema.clone(), bare(0), rows[0].clone(), bare(NOT_PERMITTED)].concat());
    stream.write_all(&[auth("all", "x"), requests].concat()).unwrap();
    expect(&mut stream, &[bare(0), schema, bare(0), rows.concat()].concat());
}
