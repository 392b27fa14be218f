//! CLIENT KILL and MONITOR, compared with a real Redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::served::*;
use super::tools::assert_same_everywhere;
use crate::helpers::frames::{connect, expect, expect_end};
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::{Missing, require};
use crate::helpers::waiting::eventually;

/// Sends a command and reads one line of the reply, without its end.
fn exchange(stream: &mut (impl Read + Write), command: &str) -> String {
    stream.write_all(&line(command)).unwrap();
    read_line(stream)
}

fn read_line(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

/// Opens connections that have sent a command.
fn clients(socket: &Path, count: usize) -> Vec<UnixStream> {
    let open = |_| {
        let mut stream = connect(socket);
        assert_eq!(exchange(&mut stream, "PING"), "+PONG");
        stream
    };
    (0..count).map(open).collect()
}

pub(crate) fn errors_of_client_kill_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    assert_same_everywhere(
        redis.socket(),
        served.socket(),
        &[
            "CLIENT KILL; CLIENT KILL x; CLIENT KILL a b; CLIENT KILL ID; CLIENT KILL ID 99 ID; CLIENT KILL NOPE x",
            "CLIENT KILL ID 999999; CLIENT KILL ID x; CLIENT KILL ID 0; CLIENT KILL ID -1",
            "CLIENT KILL TYPE nope; CLIENT KILL TYPE pubsub; CLIENT KILL TYPE master; CLIENT KILL TYPE REPLICA",
            "CLIENT KILL ADDR 1:1; CLIENT KILL LADDR 1:1; CLIENT KILL USER nobody; CLIENT KILL USER default ADDR 1:1",
            "CLIENT KILL SKIPME maybe; CLIENT KILL ID 999999 SKIPME no; CLIENT KILL ID 999999 TYPE normal ADDR 1:1",
        ],
    );
    Ok(())
}

pub(crate) fn client_kill_ends_the_same_connections_as_in_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&["--workers", "2"]);
    for socket in [redis.socket(), served.socket()] {
        let address = format!("{}:0", socket.display());
        let mut admin = clients(socket, 1).remove(0);
        // By ID.
        let mut others = clients(socket, 6);
        let id = exchange(&mut others[3], "CLIENT ID")[1..].to_owned();
        assert_eq!(exchange(&mut admin, &format!("CLIENT KILL ID {id}")), ":1");
        expect_end(&mut others.remove(3), b"");
        assert_eq!(exchange(&mut admin, &format!("CLIENT KILL ID {id} ADDR {address}")), ":0");
        // By type, without the client itself, inside a transaction.
        for (command, reply) in [("MULTI", "+OK"), ("CLIENT KILL TYPE normal", "+QUEUED"), ("EXEC", "*1")] {
            assert_eq!(exchange(&mut admin, command), reply);
        }
        assert_eq!(read_line(&mut admin), ":5");
        others.iter_mut().for_each(|other| expect_end(other, b""));
        // By address, with the client itself.
        let mut others = clients(socket, 2);
        assert_eq!(exchange(&mut admin, &format!("CLIENT KILL LADDR {address} USER default SKIPME no")), ":3");
        others.push(admin);
        others.iter_mut().for_each(|ended| expect_end(ended, b""));
        // With only an address. Redis ends the oldest connection with this address.
        let mut admin = clients(socket, 1).remove(0);
        assert_eq!(exchange(&mut admin, &format!("CLIENT KILL {address}")), "+OK");
        expect_end(&mut admin, b"");
    }
    let mut client = clients(served.socket(), 1).remove(0);
    assert_eq!(exchange(&mut client, "CLIENT KILL MAXAGE 1000000"), ":0");
    assert_eq!(exchange(&mut client, "CLIENT KILL MAXAGE 0"), "-ERR maxage should be greater than 0");
    assert_eq!(exchange(&mut client, "CLIENT KILL MAXAGE x"), "-ERR maxage is not an integer or out of range");
    assert_eq!(served.number("connections_cut_killed"), 1 + 5 + 3 + 1);
    served.expect_logged("which this client ended with CLIENT KILL", 1);
    Ok(())
}

pub(crate) fn only_administrators_can_kill_and_monitor() {
    let (_table, served) = serve(&[]);
    let mut tcp = std::net::TcpStream::connect(served.tcp()).unwrap();
    for command in ["CLIENT KILL TYPE normal SKIPME no", "MONITOR"] {
        let reply = exchange(&mut tcp, command);
        assert!(reply.starts_with("-NOPERM ") && reply.contains("connect to the Unix socket"), "{reply}");
    }
    let id = exchange(&mut tcp, "CLIENT ID")[1..].to_owned();
    let mut admin = clients(served.socket(), 1).remove(0);
    assert_eq!(exchange(&mut admin, &format!("CLIENT KILL ADDR {}", tcp.local_addr().unwrap())), ":1");
    expect_end(&mut tcp, b"");
    assert_eq!(exchange(&mut admin, &format!("CLIENT KILL ID {id}")), ":0");
}

/// Returns the lines that a monitor gets while another client sends `bytes`, without times and addresses.
pub(crate) fn monitored(socket: &Path, bytes: &[u8]) -> Vec<String> {
    let mut monitor = connect(socket);
    assert_eq!(exchange(&mut monitor, "MONITOR"), "+OK");
    converse(connect(socket), &[bytes, &line("ECHO end"), &line("QUIT")].concat());
    let address = format!(" [0 unix:{}] ", socket.display());
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("\"end\"")) {
        let line = read_line(&mut monitor);
        let (time, command) = line.split_once(&address).unwrap_or_else(|| panic!("{line}"));
        let (seconds, microseconds) = time.strip_prefix('+').unwrap().split_once('.').unwrap();
        assert!(seconds.parse::<u64>().unwrap() > 1_000_000_000 && microseconds.len() == 6, "{line}");
        lines.push(command.to_owned());
    }
    lines
}

pub(crate) fn monitors_see_the_same_commands_as_in_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&["--workers", "2"]);
    let all_bytes: Vec<u8> = (0..=255).collect();
    let conversations: Vec<Vec<u8>> = vec![
        (0..100).flat_map(|key| line(&format!("GET {key}"))).collect(),
        b"get 1\r\nGET 7 \r\n\"g\\x65t\" \"\"\r\n".to_vec(),
        ["MGET 1 2 3", "EXISTS 1 2", "GETRANGE 1 0 3", "NOPE 1", "GET", "SET 1", "KEYS nothing*"].map(line).concat(),
        ["MULTI", "GET 1", "ECHO 2", "EXEC", "MULTI", "PING", "DISCARD", "EXEC", "MULTI", "EXEC"].map(line).concat(),
        ["AUTH default pw", "AUTH pw", "HELLO 3 AUTH default pw SETNAME me", "HELLO 9", "HELLO 2"].map(line).concat(),
        ["CONFIG GET save", "CONFIG HELP", "CLIENT ID", "CLIENT LIST", "INFO nothing", "SELECT 0"].map(line).concat(),
        ["COMMAND COUNT", "SLOWLOG GET", "WATCH 1", "UNWATCH", "RESET", "CLIENT KILL ID 999999"].map(line).concat(),
        crate::helpers::redis_server::command(&[b"ECHO", &all_bytes]),
    ];
    for conversation in conversations {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| monitored(socket, &conversation));
        assert_eq!(found, expected, "{}", conversation.escape_ascii());
    }
    Ok(())
}

pub(crate) fn a_client_leaves_monitor_mode_as_in_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for socket in [redis.socket(), served.socket()] {
        for hello in [None, Some("HELLO 3")] {
            let (mut monitor, mut other) = (connect(socket), clients(socket, 1).remove(0));
            if let Some(hello) = hello {
                monitor.write_all(&line(hello)).unwrap();
                while !read_line(&mut monitor).contains("modules") {}
                read_line(&mut monitor);
            }
            assert_eq!(exchange(&mut monitor, "MONITOR"), "+OK");
            // A second MONITOR has no reply.
            monitor.write_all(&line("MONITOR")).unwrap();
            assert_eq!(exchange(&mut other, "ECHO shown"), "$5");
            read_line(&mut other);
            assert!(read_line(&mut monitor).ends_with(r#""ECHO" "shown""#));
            assert_eq!(exchange(&mut monitor, "PING"), "+PONG");
            assert!(read_line(&mut monitor).ends_with(r#""PING""#));
            let list = Reply::all(&ask(socket, &["CLIENT LIST"]))[0].text();
            assert!(list.lines().any(|line| line.contains("flags=O") && line.contains("cmd=ping")), "{list}");
            assert!(read_line(&mut monitor).ends_with(r#""QUIT""#));
            assert_eq!(exchange(&mut monitor, "RESET"), "+RESET");
            assert_eq!(exchange(&mut other, "PING"), "+PONG");
            assert_eq!(exchange(&mut monitor, "PING"), "+PONG");
            monitor.write_all(&line("QUIT")).unwrap();
            expect_end(&mut monitor, b"+OK\r\n");
        }
    }
    let replies = Reply::all(&ask(served.socket(), &["MULTI", "MONITOR", "EXEC", "MONITOR x"]));
    let expected = Reply::all(&ask(redis.socket(), &["MULTI", "MONITOR", "EXEC", "MONITOR x"]));
    assert_eq!(replies, expected);
    Ok(())
}

pub(crate) fn a_monitor_that_reads_too_slowly_is_disconnected() {
    let (_table, served) = serve(&["--workers", "2"]);
    let mut monitor = connect(served.socket());
    assert_eq!(exchange(&mut monitor, "MONITOR"), "+OK");
    let anonymous_bytes = served.anonymous_bytes();
    let batch = line(&format!("ECHO {}", "x".repeat(4000))).repeat(500);
    let mut other = clients(served.socket(), 1).remove(0);
    let reply = format!("$4000\r\n{}\r\n", "x".repeat(4000)).repeat(500);
    eventually("the monitor is disconnected", || {
        std::thread::scope(|scope| {
            let mut writer = other.try_clone().unwrap();
            let batch = &batch;
            scope.spawn(move || writer.write_all(batch).unwrap());
            expect(&mut other, reply.as_bytes());
        });
        assert!(served.anonymous_bytes() < anonymous_bytes + (100 << 20));
        served.number("connections_cut_slow") == 1
    });
    served.expect_logged("a client in MONITOR mode reads too slowly", 1);
    // The client gets lines that were sent before, and then the end of the connection.
    let _ = monitor.read_to_end(&mut Vec::new());
    assert_eq!(exchange(&mut other, "PING"), "+PONG");
}

pub(crate) fn redis_cli_monitors() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    let mut cli = Command::new("redis-cli");
    cli.arg("-s").arg(served.socket()).arg("MONITOR").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut cli = cli.spawn().unwrap();
    let mut lines = BufReader::new(cli.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "OK");
    ask(served.socket(), &["GET 1"]);
    assert!(lines.next().unwrap().ends_with(r#""GET" "1""#));
    cli.kill().unwrap();
    cli.wait().unwrap();
    Ok(())
}
