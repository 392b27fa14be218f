//! Clients that send every kind of request in both protocols. They accept errors, but no wrong value.

use std::io::{BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use zero_kv::client::{Client, ClientError};

use super::generations::{Shape, named};
use super::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use super::random::random;
use super::redis_replies::Reply;
use super::servers::Server;
use super::waiting::eventually;

struct Shared {
    shape: Shape,
    /// The first and the last generation that responses may come from.
    least: AtomicU64,
    greatest: AtomicU64,
    stopping: AtomicBool,
    /// The number of correct responses, and of errors.
    right: AtomicU64,
    errors: AtomicU64,
}

pub struct MixedLoad {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl MixedLoad {
    pub fn start(served: &Server, shape: Shape, generation: u64) -> MixedLoad {
        MixedLoad::start_between(served, shape, generation..=generation)
    }

    /// Starts clients that accept responses from several generations.
    pub fn start_between(served: &Server, shape: Shape, generations: RangeInclusive<u64>) -> MixedLoad {
        let shared = Arc::new(Shared {
            shape,
            least: AtomicU64::new(*generations.start()),
            greatest: AtomicU64::new(*generations.end()),
            stopping: AtomicBool::new(false),
            right: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        });
        let connection = |protocol| {
            let (shared, connection) = (Arc::clone(&shared), PipelinedConnection::new(protocol, served.connect()));
            thread::spawn(move || shared.get(connection))
        };
        let (ordered, client) = (Arc::clone(&shared), served.client());
        let (commands, stream) = (Arc::clone(&shared), served.connect());
        let threads = vec![
            connection(Protocol::Native),
            connection(Protocol::Redis),
            thread::spawn(move || ordered.order(client)),
            thread::spawn(move || commands.commands(BufReader::new(stream))),
        ];
        MixedLoad { shared, threads }
    }

    /// Accepts responses from this generation, too.
    pub fn allow(&self, generation: u64) {
        self.shared.greatest.store(generation, Ordering::SeqCst);
    }

    /// Rejects responses from generations before this one.
    pub fn expect_at_least(&self, generation: u64) {
        self.shared.least.store(generation, Ordering::SeqCst);
    }

    /// Waits for `count` more correct responses.
    pub fn wait_for_right(&self, count: u64) {
        self.wait("right answers", &self.shared.right, count);
    }

    pub fn wait_for_errors(&self, count: u64) {
        self.wait("errors", &self.shared.errors, count);
    }

    fn wait(&self, what: &str, counter: &AtomicU64, count: u64) {
        let wanted = counter.load(Ordering::Relaxed) + count;
        eventually(what, || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a client has ended");
            counter.load(Ordering::Relaxed) >= wanted
        });
    }

    /// Ends the clients, and returns the number of errors that they received. Panics if a response was wrong.
    pub fn finish(self) -> u64 {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a client received a wrong response"));
        assert!(self.shared.right.load(Ordering::Relaxed) > 0, "no response was checked");
        self.shared.errors.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn last_key(&self, generation: u64) -> u64 {
        self.shape.rows + u64::from(generation.is_multiple_of(2))
    }

    /// Checks that a value is the key's value in a generation that may be served, and that all values of a batch come
    /// from one generation.
    fn check_value(&self, key: u64, value: &[u8], least: u64, batch: &mut Option<u64>) {
        let generation = named(value).unwrap_or_else(|| panic!("key {key}: {value:?} names no generation"));
        let expected = self.shape.value(generation, key);
        assert!(expected.as_deref() == Some(value), "key {key} of generation {generation}: {value:?}");
        assert!(least <= generation && generation <= self.greatest.load(Ordering::SeqCst), "generation {generation}");
        assert_eq!(*batch.get_or_insert(generation), generation, "two generations in one pipeline");
        self.right.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks that some generations do not have this key.
    fn check_missing(&self, key: u64) {
        assert!(!(1..=self.shape.rows).contains(&key), "key {key} is missing");
        self.right.fetch_add(1, Ordering::Relaxed);
    }

    fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, mut connection: PipelinedConnection) {
        let mut random = random(connection.protocol as u64);
        while !self.is_over() {
            let least = self.least.load(Ordering::SeqCst);
            let keys: Vec<u64> = (0..256).map(|_| random() % (self.shape.rows + 3)).collect();
            connection.ask(&keys);
            let mut batch = None;
            for (key, answer) in
                keys.iter().zip(connection.answers(keys.len()).expect("short responses are not truncated"))
            {
                match answer {
                    Answer::Value(value) => self.check_value(*key, &value, least, &mut batch),
                    Answer::Missing => self.check_missing(*key),
                    Answer::Error => self.error(),
                }
            }
        }
    }

    /// Returns the response that a client received. If the server responded with an error, counts the error and returns
    /// `None`.
    fn answered<T>(&self, answer: Result<T, ClientError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(ClientError::Server { .. }) => {
                self.error();
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn order(&self, mut client: Client) {
        let mut random = random(3);
        while !self.is_over() {
            let least = self.least.load(Ordering::SeqCst);
            let key = 1 + random() % self.shape.rows;
            let generations = |this: &Shared| least..=this.greatest.load(Ordering::SeqCst);
            for row in [client.floor(key), client.ceiling(key)].into_iter().filter_map(|row| self.answered(row)) {
                let (found, value) = row.expect("the page has a row");
                assert_eq!(found, key);
                self.check_value(key, &value, least, &mut None);
            }
            if let Some(row) = self.answered(client.floor(u64::MAX)) {
                let (found, value) = row.expect("the page has a row");
                let last_key = self.last_key(named(&value).unwrap());
                assert_eq!(found, last_key);
                self.check_value(last_key, &value, least, &mut None);
            }
            if let Some(count) = self.answered(client.count(key..)) {
                assert!(
                    generations(self).any(|generation| count == self.last_key(generation) + 1 - key),
                    "{count} rows"
                );
                self.right.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(page) = self.answered(client.first_page(key.., 40)) {
                let (mut batch, mut expected_key) = (None, key);
                for (found, value) in page.iter() {
                    assert_eq!(found.as_u64(), Some(expected_key));
                    self.check_value(expected_key, value, least, &mut batch);
                    expected_key += 1;
                }
                assert!(expected_key == key + 40 || generations(self).any(|of| expected_key == self.last_key(of) + 1));
            }
            if let Some(exists) = self.answered(client.contains(key)) {
                assert!(exists);
            }
        }
    }

    fn commands(&self, mut stream: BufReader<std::os::unix::net::UnixStream>) {
        let mut random = random(4);
        while !self.is_over() {
            let least = self.least.load(Ordering::SeqCst);
            let key = 1 + random() % self.shape.rows;
            let commands = [
                format!("MGET {key} 0 {key}"),
                format!("STRLEN {key}"),
                format!("EXISTS {key} {key} 0"),
                format!("ZKV.FLOOR {key}"),
                format!("ZKV.COUNT {key} +"),
                format!("ZKV.RANGE {key} {key}"),
                "SCAN 0 COUNT 30".to_owned(),
                "KEYS *7*".to_owned(),
                "ECHO end".to_owned(),
            ];
            stream.get_mut().write_all(format!("{}\r\n", commands.join("\r\n")).as_bytes()).unwrap();
            let replies = Reply::all(&read_until(&mut stream, b"$3\r\nend\r\n"));
            assert_eq!(replies.len(), commands.len(), "each command has its reply: {replies:?}");
            let mut batch = None;
            for (number, reply) in replies.iter().enumerate() {
                if let Reply::Error(text) = reply {
                    assert!(text.starts_with("ERR the result depends on damaged bytes of the file"), "{text}");
                    self.error();
                    continue;
                }
                self.check_reply(number, reply, key, least, &mut batch);
            }
        }
    }

    /// Checks the reply to the command with this number.
    fn check_reply(&self, number: usize, reply: &Reply, key: u64, least: u64, batch: &mut Option<u64>) {
        let mut check_bytes = |reply: &Reply| match reply {
            Reply::Bytes(value) => self.check_value(key, value, least, batch),
            Reply::Error(_) => self.error(),
            other => panic!("{other:?} is not a value"),
        };
        match number {
            0 => {
                let [first, missing, second] = reply.list() else { panic!("{reply:?}") };
                check_bytes(first);
                check_bytes(second);
                assert!(matches!(missing, Reply::Null | Reply::Error(_)), "{missing:?}");
            }
            1 => {
                // The length is equal in all generations whose numbers have equally many digits.
                let lens =
                    (least..=self.greatest.load(Ordering::SeqCst)).map(|of| self.shape.value(of, key).unwrap().len());
                assert!(lens.into_iter().any(|len| reply.integer() == len as i64), "{reply:?}");
            }
            2 => assert_eq!(reply.integer(), 2),
            3 => {
                assert_eq!(reply.list()[0].text(), key.to_string());
                check_bytes(&reply.list()[1]);
            }
            4 => {
                let rest = self.shape.rows as i64 + 1 - key as i64;
                assert!([rest, rest + 1].contains(&reply.integer()), "{reply:?}");
            }
            5 => {
                let rows = reply.list()[1].list();
                if !matches!(rows[0], Reply::Error(_)) {
                    assert_eq!(rows[0].text(), key.to_string());
                    check_bytes(&rows[1]);
                }
            }
            6 => {
                let keys = reply.list()[1].list();
                assert!(keys.iter().enumerate().all(|(i, found)| found.text() == (i + 1).to_string()), "{reply:?}");
            }
            7 => {
                let of = |last: u64| (1..=last).filter(|key| key.to_string().contains('7')).count();
                let found = reply.list();
                assert!([of(self.shape.rows), of(self.shape.rows + 1)].contains(&found.len()), "{} keys", found.len());
                for key in found.iter().filter(|key| !matches!(key, Reply::Error(_))) {
                    assert!(key.text().contains('7') && key.text().parse::<u64>().unwrap() <= self.shape.rows + 1);
                }
            }
            _ => assert_eq!(reply.text(), "end"),
        }
    }
}

fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let (mut found, mut part) = (Vec::new(), [0; 16 << 10]);
    while !found.ends_with(end) {
        let len_bytes = stream.read(&mut part).unwrap();
        assert_ne!(len_bytes, 0, "the connection has ended");
        found.extend_from_slice(&part[..len_bytes]);
    }
    found
}
