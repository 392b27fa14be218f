//! Clients that read their responses slowly while the table is replaced many times.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use crate::helpers::frames::{answer, gets};
use crate::helpers::generations::Shape;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::scenes::{Scene, inode};
use crate::helpers::waiting::eventually;
use crate::run_concurrently;

/// Responses to all keys do not fit into a socket, and most values are sent from the file.
const SHAPE: Shape = Shape { rows: 300, len_max_bytes: 20_000 };
const GENERATIONS_MAX: u64 = 3;
const SWAPS: u64 = 9;

/// A client that requested all rows of one generation and has taken a few bytes.
struct SlowReader {
    stream: UnixStream,
    generation: u64,
    taken: Vec<u8>,
}

impl SlowReader {
    fn begin(mut stream: UnixStream, generation: u64) -> SlowReader {
        stream.write_all(&gets(1..=SHAPE.rows)).unwrap();
        let mut taken = vec![0; 8];
        stream.read_exact(&mut taken).unwrap();
        SlowReader { stream, generation, taken }
    }

    fn take_byte(&mut self) {
        let mut byte = [0];
        if self.stream.read(&mut byte).is_ok_and(|len_bytes| len_bytes == 1) {
            self.taken.extend(byte);
        }
    }

    /// Reads all remaining responses. Returns whether they were complete. They must be those of the client's
    /// generation.
    fn finish(mut self) -> bool {
        let responses: Vec<u8> =
            (1..=SHAPE.rows).flat_map(|key| answer(0, &SHAPE.value(self.generation, key).unwrap())).collect();
        let rest_len_bytes = (responses.len() - self.taken.len()) as u64;
        match (&self.stream).take(rest_len_bytes).read_to_end(&mut self.taken) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => {}
        }
        assert!(responses.starts_with(&self.taken), "generation {}", self.generation);
        self.taken.len() == responses.len()
    }
}

fn assert_serves(connection: &mut PipelinedConnection, generation: u64) {
    let keys: Vec<u64> = (1..=100).collect();
    connection.ask(&keys);
    for (key, found) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
        assert_eq!(found, Answer::Value(SHAPE.value(generation, *key).unwrap()), "key {key}");
    }
}

#[test]
fn slow_readers_hold_no_more_generations_than_the_limit() {
    let _guard = run_concurrently();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    // No timeout ends the clients.
    let limit = GENERATIONS_MAX.to_string();
    let mut served =
        scene.serve(&["--generations-max", &limit, "--stall-timeout", "0", "--min-drain-rate", "0", "--workers", "2"]);
    let mut other = PipelinedConnection::new(Protocol::Native, served.connect());
    assert_serves(&mut other, 1);
    let descriptors = served.descriptors();
    let mut slow_readers: Vec<SlowReader> = Vec::new();
    for generation in 1..=SWAPS {
        slow_readers.push(SlowReader::begin(served.connect(), generation));
        let next = scene.path("next.db");
        SHAPE.bake(generation + 1, &next);
        scene.put(&next);
        served.wait_for("generation", generation + 1);
        slow_readers.iter_mut().for_each(SlowReader::take_byte);
        assert_serves(&mut other, generation + 1);
        let held = generation.min(GENERATIONS_MAX);
        eventually("the newest generations are held", || served.number("generations_retained") == held);
        eventually("no further generations are mapped", || served.mapped_tables().len() as u64 == held + 1);
        // Three descriptors for each generation, one for each connection, one for the connection that reads Info, and one
        // for each ended connection whose client has not received all responses.
        let expected = descriptors as u64 + 4 * (held + 1) + (generation - held);
        eventually("no further descriptors are open", || served.descriptors() as u64 <= expected);
    }
    assert_eq!(served.number("connections_cut_generation"), SWAPS - GENERATIONS_MAX);
    eventually("the reason is logged", || served.logged("(--generations-max)") > 0);
    for slow_reader in slow_readers {
        let is_held = slow_reader.generation > SWAPS - GENERATIONS_MAX;
        let generation = slow_reader.generation;
        assert_eq!(slow_reader.finish(), is_held, "generation {generation}");
    }
    eventually("no generation is retained", || served.number("generations_retained") == 0);
    eventually("one table is mapped", || served.mapped_tables() == [inode(&scene.db())]);

    // After many mappings were created and removed, the server still survives a truncation in place.
    let mut reader = served.connect();
    reader.write_all(&gets(1..=SHAPE.rows)).unwrap();
    std::fs::File::options().write(true).open(scene.db()).unwrap().set_len(0).unwrap();
    eventually("the truncation is detected", || served.number("faults") > 0);
    assert!(served.is_alive());
    SHAPE.bake(SWAPS + 2, &scene.path("next.db"));
    scene.put(&scene.path("next.db"));
    served.wait_for("generation", SWAPS + 2);
    assert_serves(&mut other, SWAPS + 2);
    drop(reader);
}
