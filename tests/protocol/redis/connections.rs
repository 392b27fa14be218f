//! The state of connections, lists of clients, INFO, and TCP.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::{ServedRows, ask, bulk, command, reply};
use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answers_to_gets};
use crate::helpers::waiting::{PATIENCE, eventually};

#[test]
fn hello_changes_the_protocol_version_and_reset_restores_it() {
    let served = ServedRows::numbers(10);
    let mut stream = served.connect();
    assert_eq!(ask(&mut stream, "GET 99"), "$-1\r\n");
    assert!(ask(&mut stream, "HELLO 3 SETNAME me").starts_with("%7\r\n$6\r\nserver\r\n$7\r\nzero-kv\r\n"));
    assert_eq!(ask(&mut stream, "GET 99"), "_\r\n");
    assert_eq!(ask(&mut stream, "MGET 99 1"), "*2\r\n_\r\n$10\r\nvalue of 1\r\n");
    assert_eq!(ask(&mut stream, "CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(ask(&mut stream, "RESET"), "+RESET\r\n");
    assert_eq!(ask(&mut stream, "CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(ask(&mut stream, "CONFIG GET save"), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
}

#[test]
fn a_list_of_many_clients_is_complete() {
    let served = ServedRows::numbers(10);
    let mut clients: Vec<UnixStream> = (0..400).map(|_| served.connect()).collect();
    for (number, stream) in clients.iter_mut().enumerate() {
        assert_eq!(ask(stream, &format!("CLIENT SETNAME client-{number}")), "+OK\r\n");
    }
    let listed = |list: &str| list.lines().filter(|line| line.starts_with("id=")).count();
    let list = ask(&mut clients[0], "CLIENT LIST");
    assert!(list.len() > 65_536 && (0..400).all(|number| list.contains(&format!(" name=client-{number} "))));
    assert_eq!(listed(&list), 400);
    let id = list.lines().find(|line| line.contains(" name=client-7 ")).unwrap();
    let id = id.strip_prefix("id=").unwrap().split(' ').next().unwrap();
    let one = ask(&mut clients[1], &format!("CLIENT LIST ID {id} {id}"));
    assert!(listed(&one) == 1 && one.contains(" name=client-7 ") && one.contains(" cmd=client|setname "), "{one}");
    clients.truncate(2);
    eventually("the other connections are closed", || listed(&ask(&mut clients[0], "CLIENT LIST")) == 2);
}

#[test]
fn info_counts_commands_and_keys() {
    let served = ServedRows::numbers(10);
    let mut stream = served.connect();
    let commands: Vec<u8> = (0..20).flat_map(|key| command(&format!("GET {key}"))).collect();
    stream.write_all(&commands).unwrap();
    (0..20).for_each(|_| drop(reply(&mut stream)));
    ask(&mut stream, "MGET 1 2 99");
    let info = ask(&mut stream, "INFO");
    for line in
        ["keyspace_hits:12", "keyspace_misses:11", "total_commands_processed:21", "db0:keys=10,", "key_kind:u64"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(!ask(&mut stream, "INFO stats").contains("db0:"));
    assert_eq!(ask(&mut stream, "INFO nothing"), "$0\r\n\r\n");
}

#[test]
fn tcp_and_unix_sockets_have_equal_replies() {
    let table = Table::of_rows(1000);
    let server = table.serve_with(&["--tcp", "127.0.0.1:0"]);
    let address = server.tcp();
    let mut redis = TcpStream::connect(address).unwrap();
    redis.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut redis, "GET 7").as_bytes(), bulk(&table.model[&7]));
    let info = ask(&mut redis, "CLIENT INFO");
    assert!(info.contains(&format!(" addr={} laddr={address} ", redis.local_addr().unwrap())), "{info}");
    let mut native = TcpStream::connect(address).unwrap();
    native.set_read_timeout(Some(PATIENCE)).unwrap();
    native.write_all(&gets(0..300)).unwrap();
    expect(&mut native, &answers_to_gets(&table.model, 0..300));
}

#[test]
fn an_address_beyond_loopback_requires_an_option() {
    let table = Table::of_rows(10);
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = table.command(&["--tcp", address]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("--tcp-exposed") && message.lines().count() == 1, "{message}");
        assert!(!table.socket().exists());
    }
    let exposed = table.command(&["--tcp", "0.0.0.0:0", "--tcp-exposed"]);
    assert_eq!(ask(&mut Server::of(exposed, &table.socket()).connect(), "PING"), "+PONG\r\n");
    let output = table.command(&["--tcp-exposed"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && message.contains("the server has no TCP socket: add --tcp ADDRESS"),
        "{message}"
    );
}
