//! Replies do not depend on forbidden rows: two servers whose tables differ only in rows that a user may not use send
//! the same bytes for every command and every op.

mod commands;
mod native;
mod random;

use std::fmt::Write as _;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

use tempfile::TempDir;
use zero_kv::bake::{self, Column, Input, Keys, Options, TypedColumns, parse_types};
use zero_kv::replace::ReplaceRules;

use crate::helpers::frames::read_until_closed;
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::waiting::PATIENCE;

/// Users, with `PREFIX` for the prefix of the permitted keys. `few` may use all keys, but no command whose reply
/// depends on rows.
const USERS: &str = "\
user default off
user none on nopass +@all
user prefix on nopass ~PREFIX* +@all
user node on nopass ~PREFIX* +get +cluster
user reader on nopass ~PREFIX* ~other:* +@read +multi +exec
user facts on nopass +info +config +client +memory +object +acl +command +latency +slowlog +role +wait
user few on nopass ~* +ping +command +cluster|keyslot +cluster|slots +memory|help +object|help +multi +exec
user admin on nopass ~* &* +@all
";

/// The users for whom the rows that differ are forbidden.
const RESTRICTED: [&str; 6] = ["none", "prefix", "node", "reader", "facts", "few"];

/// What the tables have, and whether their servers are nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bytes,
    Numbers,
    Typed,
    Cluster,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Bytes, Kind::Numbers, Kind::Typed, Kind::Cluster];

    fn prefix(self) -> &'static str {
        if matches!(self, Kind::Bytes | Kind::Cluster) { "pub:" } else { "1" }
    }

    /// Returns keys with the permitted prefix, which both tables have or lack, and other keys, which one table has or
    /// which have different values.
    fn keys(self) -> [&'static str; 9] {
        match self {
            Kind::Bytes | Kind::Cluster => {
                ["pub:1", "pub:long", "pub:none", "pub:", "secret:a", "secret:b", "secret:c", "pub;", "{pub:1}x"]
            }
            Kind::Numbers | Kind::Typed => ["1", "15", "19", "001", "2", "20", "3", "18446744073709551615", "x"],
        }
    }

    /// Returns the rows of the first or the second table.
    fn rows(self, is_second: bool) -> String {
        let long = "v".repeat(3000);
        let mut rows = String::new();
        let mut row = |key: &str, value: &str| match self {
            Kind::Typed => writeln!(rows, "{key},{},{value},7", key.len()).unwrap(),
            _ => writeln!(rows, "{key},{value}").unwrap(),
        };
        match self {
            Kind::Bytes | Kind::Cluster => {
                (1..40).for_each(|i| row(&format!("pub:{i}"), &format!("public {i}")));
                row("pub:long", &long);
                row("secret:c", if is_second { "another secret" } else { "secret" });
                row(if is_second { "secret:b" } else { "secret:a" }, "x");
                if is_second {
                    row("pub;", "x");
                    row("pua", &long);
                    row("{pub:1}x", "x");
                    (0..2000).for_each(|i| row(&format!("secret:{i}"), &long[..i]));
                }
            }
            Kind::Numbers | Kind::Typed => {
                [1, 10, 11, 12, 100, 1000].iter().for_each(|key| row(&key.to_string(), &format!("public {key}")));
                row("15", &long);
                row("3", if is_second { "another secret" } else { "secret" });
                row(if is_second { "20" } else { "2" }, "x");
                if is_second {
                    row("9446744073709551615", "x");
                    row("0", "x");
                    (2000..4000).for_each(|i| row(&i.to_string(), &long[..i - 2000]));
                }
            }
        }
        rows
    }
}

/// Two servers whose tables differ only in forbidden rows.
struct Pair {
    kind: Kind,
    servers: [Server; 2],
    folders: [TempDir; 2],
}

impl Pair {
    fn new(kind: Kind) -> Pair {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let servers = [0, 1].map(|at| {
            let path = |name: &str| folders[at].path().join(name);
            match kind {
                Kind::Bytes | Kind::Cluster => drop(bake_text(&path("storage.db"), Keys::BYTES, kind.rows(at == 1))),
                Kind::Numbers => drop(bake_text(&path("storage.db"), Keys::U64, kind.rows(at == 1))),
                Kind::Typed => bake_typed(&path("storage.db"), kind.rows(at == 1)),
            }
            std::fs::write(path("users.acl"), USERS.replace("PREFIX", kind.prefix())).unwrap();
            let mut command = kv_store(&path("storage.db"), &path("s.sock"));
            command.args(["--tcp", "127.0.0.1:0", "--users"]).arg(path("users.acl"));
            if kind == Kind::Cluster {
                let node = r#"{"id": "a", "host": "127.0.0.1", "port": 7001, "role": "primary", "slots": ["0-16383"]}"#;
                let topology = format!(r#"{{"format": 1, "number": 1, "nodes": [{node}]}}"#);
                std::fs::write(path("topology.json"), topology).unwrap();
                command.args(["--cluster", "--node", "a", "--announce", "127.0.0.1:7001", "--topology"]);
                command.arg(path("topology.json"));
            }
            Server::of(command, &path("s.sock"))
        });
        Pair { kind, servers, folders }
    }

    /// Sends bytes to one of the servers over TCP, and returns all responses, without the names of the server.
    fn responses(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.servers[at].tcp()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::thread::scope(|scope| {
            let mut writer = stream.try_clone().unwrap();
            scope.spawn(move || {
                // A server may close the connection before it has read everything.
                let _ = writer.write_all(bytes);
                let _ = writer.shutdown(Shutdown::Write);
            });
            self.without_names(at, read_until_closed(&mut stream))
        })
    }

    /// Replaces the folder and the port of a server, which differ between the servers.
    fn without_names(&self, at: usize, bytes: Vec<u8>) -> Vec<u8> {
        let folder = self.folders[at].path().to_str().unwrap();
        let port = self.servers[at].tcp().port().to_string();
        let text = String::from_utf8_lossy(&bytes);
        match text.contains(folder) || text.contains(&port) {
            true => text.replace(folder, "FOLDER").replace(&port, "PORT").into_bytes(),
            false => bytes,
        }
    }
}

fn bake_typed(db: &std::path::Path, rows: String) {
    let mut typed = TypedColumns::default();
    typed.types = parse_types("id:u64,a:u32,b:text,c:u8").unwrap();
    let mut options = Options::default();
    (options.typed, options.key) = (Some(typed), Some(Column::Name("id".to_owned())));
    options.replace = ReplaceRules::any();
    let rows = Input::reader("rows", std::io::Cursor::new(rows.into_bytes()));
    bake::bake(vec![rows], db, &options).unwrap();
}
