//! Users over TCP and over the Unix socket: users files, logins in both protocols, and what a client learns without
//! permissions.

mod changes;
mod files;
mod forbidden_rows;
mod native;
mod permissions;
mod secrets;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use crate::helpers::frames::read_until_closed;
use crate::helpers::redis_server::command;
use crate::helpers::reference_server::{AUTH, long};
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::PATIENCE;

const UNAUTHENTICATED: u32 = 3;
const NOT_PERMITTED: u32 = 4;

/// The hash of the password `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A server with a users file. Its folder also contains the table.
struct Scene {
    table: Table,
    server: Server,
}

impl Scene {
    fn new(users: &str) -> Scene {
        Scene::of(Table::of_rows(2000), users)
    }

    fn of(table: Table, users: &str) -> Scene {
        std::fs::write(users_file(&table), users.replace("HASH", SECRET)).unwrap();
        let file = users_file(&table).to_str().unwrap().to_owned();
        // Only lookups verify blocks, so the number of verified blocks shows whether a request looked up a key.
        let server = table.serve_with(&["--tcp", "127.0.0.1:0", "--users", &file, "--verify", "touch"]);
        Scene { table, server }
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.tcp()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects over TCP, logs in without a password, and expects a success.
    fn logged_in(&self, user: &str) -> TcpStream {
        let mut stream = self.tcp();
        assert_eq!(ask(&mut stream, &["AUTH", user, "any"]), "+OK");
        stream
    }

    /// Replaces the users file by a rename.
    fn replace_users(&self, users: &str) {
        let new = self.table.folder.path().join("new.acl");
        std::fs::write(&new, users.replace("HASH", SECRET)).unwrap();
        std::fs::rename(new, users_file(&self.table)).unwrap();
    }
}

fn users_file(table: &Table) -> PathBuf {
    table.folder.path().join("users.acl")
}

/// Sends a command, and returns the first line of its reply.
fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    stream.write_all(&command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Returns an Auth request.
fn auth(user: &str, password: &str) -> Vec<u8> {
    long(AUTH, &[user.as_bytes(), b"\0", password.as_bytes()].concat())
}

/// Returns all replies to commands, after which the connection is closed.
fn all_replies(mut stream: TcpStream, commands: &[u8]) -> Vec<u8> {
    stream.write_all(commands).unwrap();
    stream.write_all(&command(&[b"QUIT"])).unwrap();
    read_until_closed(&mut stream)
}
