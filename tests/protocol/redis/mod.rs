//! The Redis protocol as `docs/PROTOCOL.md` specifies it, tested on raw sockets.

mod connections;
mod damage;
mod long_pipelines;
mod memory;
mod ordered;
mod pipelines;
mod transactions;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use zero_kv::bake::Keys;
use zero_kv::protocol::resp::reply_len_bytes;

use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;

/// Values by the text of their keys.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A running server and the rows of its table.
struct ServedRows {
    rows: Rows,
    server: Server,
    scene: Scene,
}

impl ServedRows {
    fn new(keys: Keys, rows: Rows) -> ServedRows {
        let row = |(key, value): (&Vec<u8>, &Vec<u8>)| [key, &b","[..], value, b"\n"].concat();
        let scene = Scene::baked(keys, rows.iter().flat_map(row).collect::<Vec<u8>>());
        ServedRows { rows, server: scene.serve(&[]), scene }
    }

    /// Serves decimal keys with values that name them.
    fn numbers(count: usize) -> ServedRows {
        let row = |key: usize| (key.to_string().into_bytes(), format!("value of {key}").into_bytes());
        ServedRows::new(Keys::U64, (0..count).map(row).collect())
    }

    /// Serves keys with several prefixes, with values of every length around the limits of the response path.
    fn names() -> ServedRows {
        let lengths = [0, 1, 9, 10, 44, 63, 64, 65, 99, 100, 999, 1000, 4095, 4096, 4097, 70_000];
        let mut rows = Rows::new();
        for number in 0..500_usize {
            let kind = ["user", "item", "page"][number % 3];
            let value = vec![b'a' + (number % 26) as u8; lengths[number % lengths.len()]];
            rows.insert(format!("{kind}:{number:04}").into_bytes(), value);
        }
        ServedRows::new(Keys::BYTES, rows)
    }

    fn connect(&self) -> UnixStream {
        self.server.connect()
    }

    /// Returns the expected reply to GET.
    fn get(&self, key: &[u8]) -> Vec<u8> {
        self.rows.get(key).map_or_else(|| b"$-1\r\n".to_vec(), |value| bulk(value))
    }
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn array<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.into_iter().map(bulk).collect();
    [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
}

/// Returns a command as an array of its words.
fn command(words: &str) -> Vec<u8> {
    array(words.split(' ').map(str::as_bytes))
}

/// Sends a command and reads its one reply.
fn ask(stream: &mut (impl Read + Write), words: &str) -> String {
    stream.write_all(&command(words)).unwrap();
    String::from_utf8(reply(stream)).unwrap()
}

/// Reads one reply to its end.
fn reply(stream: &mut impl Read) -> Vec<u8> {
    let (mut reply, mut replies_left) = (Vec::new(), 1);
    while replies_left > 0 {
        let line_at = reply.len();
        while !reply[line_at..].ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            reply.extend(byte);
        }
        let line = std::str::from_utf8(&reply[line_at..]).unwrap();
        let number: usize = line[1..].trim_end().parse().unwrap_or_default();
        replies_left -= 1;
        match line.as_bytes()[0] {
            b'$' | b'=' if !line[1..].starts_with('-') => {
                let value_at = reply.len();
                reply.resize(value_at + number + 2, 0);
                stream.read_exact(&mut reply[value_at..]).unwrap();
            }
            b'%' => replies_left += 2 * number,
            b'*' | b'~' => replies_left += number,
            _ => {}
        }
    }
    assert_eq!(reply_len_bytes(&reply), Ok(Some(reply.len())));
    reply
}

/// Returns the bulk strings of a reply and of its nested replies.
fn strings(reply: &str) -> Vec<String> {
    let (mut strings, mut lines) = (Vec::new(), reply.split("\r\n"));
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            strings.push(lines.next().unwrap().to_owned());
        }
    }
    strings
}
