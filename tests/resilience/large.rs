//! Large values are sent to slow readers while their file is truncated or overwritten. The server may disconnect a
//! reader, but sends no wrong byte.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::helpers::frames::{answer, gets};
use crate::helpers::pipelined_gets::Protocol;
use crate::helpers::scenes::{Scene, settle};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Model, bake};
use crate::helpers::waiting::eventually;
use crate::run_concurrently;

const KEYS: u64 = 8;

fn value(generation: u64, key: u64) -> Vec<u8> {
    let len_bytes = [100 << 10, 300 << 10, 1 << 20, 4 << 20][key as usize % 4] + key;
    // The period of 4099 bytes does not divide a page, so a byte at a wrong position differs from the expected one.
    let byte = |at: u64| b'a' + ((at.wrapping_mul(0x9E37_79B9) >> 7) + key * 7 + generation * 3) as u8 % 26;
    let period: Vec<u8> = (0..4099).map(byte).collect();
    let mut value = period.repeat(len_bytes as usize / period.len() + 1);
    value.truncate(len_bytes as usize);
    value
}

fn bake_generation(generation: u64, output: &Path) {
    let model: Model = (1..=KEYS).map(|key| (key, value(generation, key))).collect();
    bake(&model, output);
    settle(output);
}

/// A client that has read a part of a response.
struct Reader {
    stream: UnixStream,
    expected: Vec<u8>,
    at: usize,
}

impl Reader {
    fn ask(served: &Server, protocol: Protocol, generation: u64, key: u64) -> Reader {
        let mut stream = served.connect();
        let value = value(generation, key);
        let (request, expected) = match protocol {
            Protocol::Native => (gets([key]), answer(0, &value)),
            Protocol::Redis => {
                let head = format!("${}\r\n", value.len()).into_bytes();
                (format!("GET {key}\r\n").into_bytes(), [&head[..], &value, b"\r\n"].concat())
            }
        };
        stream.write_all(&request).unwrap();
        Reader { stream, expected, at: 0 }
    }

    /// Reads this many bytes, or up to the end. Returns false if the connection ends before that. Panics at a wrong
    /// byte.
    fn read(&mut self, len_bytes: usize) -> bool {
        let end = self.expected.len().min(self.at.saturating_add(len_bytes));
        let mut part = vec![0; 40_000];
        while self.at < end {
            let wanted = part.len().min(end - self.at);
            let found = match self.stream.read(&mut part[..wanted]) {
                Ok(0) => return false,
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("{error}"),
            };
            assert!(part[..found] == self.expected[self.at..self.at + found], "a wrong byte after {}", self.at);
            self.at += found;
        }
        true
    }
}

const FAULTS: [fn(&Path, &Path); 4] = [
    |db, _| File::options().write(true).open(db).unwrap().set_len(0).unwrap(),
    |db, _| {
        let file = File::options().write(true).open(db).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    },
    |db, other| fs::write(db, fs::read(other).unwrap()).unwrap(),
    |db, other| File::options().write(true).open(db).unwrap().write_all_at(&fs::read(other).unwrap(), 0).unwrap(),
];

#[test]
fn a_large_value_is_truncated_rather_than_wrong() {
    let _guard = run_concurrently();
    for memory in ["map", "copy", "sealed"] {
        let scene = Scene::new();
        let next = scene.path("next.db");
        bake_generation(1, &scene.db());
        let mut served = scene.serve(&["--memory", memory, "--no-watch"]);
        let mut generation = 1;
        for change in FAULTS {
            let every = [Protocol::Native, Protocol::Redis].into_iter();
            let every = every.flat_map(|protocol| (1..=KEYS).map(move |key| (protocol, key)));
            let mut readers: Vec<Reader> =
                every.clone().map(|(protocol, key)| Reader::ask(&served, protocol, generation, key)).collect();
            assert!(readers.iter_mut().all(|reader| reader.read(50_000)));
            bake_generation(generation + 1, &next);
            change(&scene.db(), &next);
            let whole_count = readers.iter_mut().map(|reader| usize::from(reader.read(usize::MAX))).sum::<usize>();
            // The kernel buffers the rest of a short response, but not of a response of 4 MiB.
            match memory {
                "map" => assert!(whole_count < readers.len(), "{whole_count} whole"),
                _ => assert_eq!(whole_count, readers.len(), "{memory}"),
            }
            bake_generation(generation + 2, &next);
            scene.put(&next);
            generation += 2;
            let attempt = served.client().reload().unwrap();
            assert!(!served.outcome_of(attempt).starts_with("refused"));
            for (protocol, key) in every {
                assert!(Reader::ask(&served, protocol, generation, key).read(usize::MAX), "{memory}: key {key}");
            }
        }
        assert!(served.is_alive());
        eventually("all clients have disconnected", || served.number("connections") == 1);
    }
}
