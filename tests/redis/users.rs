//! Users: `kv_store` and a real Redis load the same users file, and get the same commands. `kv_store` gets them over
//! TCP, because connections to its Unix socket have all permissions.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use zero_kv::bake::Keys;

use super::served::*;
use crate::helpers::frames::connect;
use crate::helpers::redis_py::any_python;
use crate::helpers::redis_server::{Redis, command, fill};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::PATIENCE;

/// The passwords are `secret` for alice and off, `root` for admin, and `a` and `b` for two.
const USERS: &str = "\
user default off
user alice on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~user:* +@read
user reader on nopass allkeys +@read -keys
user one on nopass ~* +acl|whoami
user admin on #4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2 ~* &* +@all
user off off #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* +@all
user nothing on nopass
user two on #ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb \
#3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d ~x:* ~y:* +@all -@admin
";

/// `kv_store` and Redis with the same users and rows, and the folder of their files.
struct Both {
    redis: Redis,
    served: Server,
    folder: tempfile::TempDir,
}

impl Both {
    fn start(users: &str) -> Result<Both, Missing> {
        let folder = tempfile::tempdir().unwrap();
        let rows = ["user:1", "user:2", "x:1", "z"];
        let (db, socket, file) =
            (folder.path().join("storage.db"), folder.path().join("s.sock"), folder.path().join("users.acl"));
        std::fs::write(&file, users).unwrap();
        let redis = Redis::start_with(&["--aclfile", file.to_str().unwrap()])?;
        let mut stream = connect(redis.socket());
        stream.write_all(&line("AUTH admin root")).unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        fill(stream, rows.iter().map(|key| (key.as_bytes(), &b"value"[..])));
        let text: Vec<u8> = rows.iter().flat_map(|key| format!("{key},value\n").into_bytes()).collect();
        bake_text(&db, Keys::BYTES, text);
        let mut command = kv_store(&db, &socket);
        command.args(["--tcp", "127.0.0.1:0", "--users"]).arg(&file);
        let served = Server::of(command, &socket);
        Ok(Both { redis, served, folder })
    }

    /// Sends the same bytes to both servers, and compares the replies.
    #[track_caller]
    fn assert_same(&self, bytes: &[u8]) {
        let bytes = [bytes, &line("QUIT")].concat();
        let expected = without_identity(&converse(connect(self.redis.socket()), &bytes));
        let found = without_identity(&converse_over_tcp(self.served.tcp(), &bytes));
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(3000)].escape_ascii().to_string();
        assert!(
            found == expected,
            "to   \"{}\"\nours  \"{}\"\nRedis \"{}\"",
            shown(&bytes),
            shown(&found),
            shown(&expected)
        );
    }
}

/// Sends bytes, and returns all replies until the server closes the connection.
fn converse_over_tcp(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut replies = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        // A server may close the connection before it has read everything, so writing can fail.
        scope.spawn(move || writer.write_all(bytes).is_ok());
        let _ = stream.read_to_end(&mut replies);
        let _ = stream.shutdown(Shutdown::Both);
    });
    replies
}

/// Removes the server's name and the number of the connection from the replies to HELLO.
fn without_identity(replies: &[u8]) -> Vec<u8> {
    let text = replies.escape_ascii().to_string().replace("$7\\r\\nzero-kv", "$5\\r\\nredis");
    let parts: Vec<&str> = text.split("$2\\r\\nid\\r\\n:").collect();
    let rest = |part: &&str| part.trim_start_matches(|digit: char| digit.is_ascii_digit()).to_owned();
    [vec![parts[0].to_owned()], parts[1..].iter().map(rest).collect()].concat().join("ID").into_bytes()
}

pub(crate) fn replies_with_users_are_equal() -> Result<(), Missing> {
    let both = Both::start(USERS)?;
    for conversation in [
        // Before a login.
        "GET z; PING; HELLO; HELLO 3; HELLO 9; HELLO x; FOO; GET; SET z 1; CLIENT FOO; CLIENT; COMMAND; ECHO a; RESET",
        "MULTI; EXEC; DISCARD; WATCH z; SELECT 0; SELECT 1",
        "HELLO 3 SETNAME x; HELLO 2 FOO; HELLO 3 AUTH alice",
        "AUTH; AUTH a b c; AUTH wrong",
        "AUTH default wrong; GET z",
        "AUTH nobody wrong; GET z",
        "AUTH off secret; GET z",
        "AUTH ALICE secret",
        "AUTH alice Secret",
        // Logins.
        "AUTH alice secret; GET user:1; AUTH alice wrong; GET user:1; RESET; GET user:1",
        "HELLO 3 AUTH alice secret; GET user:9; HELLO 2 AUTH two b; GET x:1; GET user:1",
        "HELLO 3 AUTH alice wrong; GET user:1",
        "HELLO 3 AUTH alice secret FOO; GET user:1",
        "HELLO 3 AUTH two a AUTH alice secret SETNAME me; GET user:1; GET x:1",
        "AUTH nothing any; GET z; PING; AUTH nothing other; HELLO; RESET; PING",
        "AUTH two a; AUTH two b; AUTH two c; ACL WHOAMI; CLIENT GETNAME",
        // Permissions for commands and keys.
        "AUTH alice secret; GET user:1; GET z; GET user; GET user:; MGET user:1 user:2; MGET user:1 z; MGET z user:1; MGET",
        "AUTH alice secret; EXISTS user:1 z; STRLEN z; STRLEN user:1; TYPE z; TTL z; GETRANGE z 0 1; GETRANGE user:1 0 1",
        "AUTH alice secret; OBJECT ENCODING z; OBJECT ENCODING user:1; MEMORY USAGE z; OBJECT HELP; OBJECT FOO",
        "AUTH alice secret; SET user:1 x; SET z x; FLUSHALL; FOO; PING; ECHO a; TIME; INFO; CLIENT LIST; CONFIG GET x",
        "AUTH alice secret; WATCH z; WATCH user:1; MULTI; COMMAND GETKEYS GET z; ACL WHOAMI; ACL LIST; CLIENT GETNAME",
        "AUTH reader any; GET z; KEYS *; DBSIZE; ACL WHOAMI; SCAN 0 MATCH none",
        "AUTH one any; ACL WHOAMI; ACL USERS; ACL FOO; ACL; GET z",
        "AUTH two a; WATCH z; WATCH x:1 z; WATCH x:1 y:1; UNWATCH; CONFIG GET save; PING; ECHO a",
        "AUTH two a; WATCH x:1; MULTI; GET x:1; EXEC",
        // Transactions.
        "AUTH two a; MULTI; GET z; GET x:1; EXEC; EXEC",
        "AUTH two a; MULTI; GET x:1; ACL LIST; GET x:1; EXEC; GET x:1",
        "AUTH two a; MULTI; GET x:1; STRLEN x:1; EXEC; MULTI; GET z; DISCARD; GET x:1",
        "AUTH admin root; MULTI; AUTH alice secret; GET z; GET user:1; PING; MGET user:1 z; EXEC; GET z",
        "AUTH admin root; MULTI; AUTH alice wrong; GET z; EXEC; GET z",
        "AUTH admin root; MULTI; HELLO 3 AUTH alice secret; GET z; GET user:9; EXEC; GET user:9",
        "AUTH two a; MULTI; RESET; GET x:1; EXEC",
        "AUTH alice secret; EXEC; MULTI; EXEC",
        // Administration.
        "AUTH admin root; ACL LIST; ACL USERS; ACL WHOAMI; ACL WHOAMI x; ACL CAT; ACL CAT nope; ACL CAT read x",
        "AUTH admin root; ACL GETUSER alice; ACL GETUSER admin; ACL GETUSER default; ACL GETUSER two; ACL GETUSER none",
        "AUTH admin root; HELLO 3; ACL GETUSER reader; ACL GETUSER nothing; ACL GETUSER NOTHING; ACL LIST; ACL USERS",
        "AUTH admin root; ACL DRYRUN alice GET z; ACL DRYRUN alice GET user:1; ACL DRYRUN alice PING; ACL DRYRUN no GET z",
        "AUTH admin root; ACL DRYRUN alice FOO z; ACL DRYRUN alice GET; ACL DRYRUN alice mget user:1 z; ACL DRYRUN admin QUIT",
        "AUTH admin root; ACL DRYRUN alice client|list; ACL DRYRUN alice client list; ACL DRYRUN alice auth x; ACL DRYRUN a",
    ] {
        both.assert_same(&conversation.split("; ").flat_map(line).collect::<Vec<u8>>());
    }
    both.assert_same(&[line("AUTH alice secret"), command(&[b"GET", b"z\r\n"])].concat());
    both.assert_same(&[command(&[b"AUTH", b"alice", b""]), command(&[b"AUTH", b"nothing", b""])].concat());
    Ok(())
}

pub(crate) fn replies_to_commands_with_many_keys_are_equal() -> Result<(), Missing> {
    let both = Both::start(USERS)?;
    for name in ["MGET", "EXISTS"] {
        let mut words = vec![name.as_bytes()];
        words.extend([&b"user:1"[..], b"user:9"].repeat(3_000));
        let permitted = command(&words);
        words.push(b"z");
        let forbidden = command(&words);
        for login in ["AUTH alice secret", "AUTH reader any", "AUTH nothing any"] {
            let begin = [line(login), permitted.clone(), forbidden.clone(), line("GET user:1")].concat();
            let multi =
                [line("MULTI"), permitted.clone(), line("EXEC"), line("MULTI"), forbidden.clone(), line("EXEC")];
            both.assert_same(&[begin, multi.concat()].concat());
        }
    }
    Ok(())
}

pub(crate) fn redis_py_logs_in() -> Result<(), Missing> {
    let python = any_python()?;
    let both = Both::start(USERS)?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/users.py");
    let run = |script: &Path| {
        let output = Command::new(&python).arg("-B").arg(script).arg(both.served.tcp().to_string()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    };
    run(Path::new(script));
    assert!(both.folder.path().exists());
    Ok(())
}
