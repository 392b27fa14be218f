//! Transactions across swaps, and their limits. `tests/redis/differential.rs` compares other replies with Redis.

use std::fs;
use std::io::Write;

use zero_kv::bake::{Options, bake_csv};

use super::{ServedRows, ask, command};
use crate::helpers::frames::expect;
use crate::helpers::waiting::eventually;

/// Replaces the table with one in which the value of each of the keys 0 to 999 is `value`.
fn swap(served: &ServedRows, value: &str) {
    let next = served.scene.path("next.db");
    let csv: String = (0..1000).map(|key| format!("{key},{value}\n")).collect();
    bake_csv(csv.as_bytes(), &next, &Options::default()).unwrap();
    fs::rename(next, served.scene.db()).unwrap();
    let expected = format!("${}\r\n{value}\r\n", value.len());
    eventually("the new table is served", || ask(&mut served.connect(), "GET 7") == expected);
}

#[test]
fn exec_replies_with_nil_after_a_swap_since_watch() {
    let served = ServedRows::numbers(1000);
    let mut stream = served.connect();
    assert_eq!(ask(&mut stream, "WATCH 7"), "+OK\r\n");
    assert_eq!(ask(&mut stream, "MULTI"), "+OK\r\n");
    assert_eq!(ask(&mut stream, "GET 7"), "+QUEUED\r\n");
    swap(&served, "new");
    assert_eq!(ask(&mut stream, "EXEC"), "*-1\r\n");
    // The failed EXEC has ended both the transaction and the watch.
    assert_eq!(ask(&mut stream, "GET 7"), "$3\r\nnew\r\n");
    stream.write_all(&[command("MULTI"), command("GET 7"), command("EXEC")].concat()).unwrap();
    expect(&mut stream, b"+OK\r\n+QUEUED\r\n*1\r\n$3\r\nnew\r\n");
    // UNWATCH forgets the swap.
    assert_eq!(ask(&mut stream, "WATCH 7"), "+OK\r\n");
    swap(&served, "newer");
    assert_eq!(ask(&mut stream, "UNWATCH"), "+OK\r\n");
    stream.write_all(&[command("MULTI"), command("GET 7"), command("EXEC")].concat()).unwrap();
    expect(&mut stream, b"+OK\r\n+QUEUED\r\n*1\r\n$5\r\nnewer\r\n");
}

/// The replies of EXEC take many turns, because the client does not read them before the swap.
#[test]
fn exec_replies_from_one_generation_even_if_the_table_is_swapped_meanwhile() {
    let served = ServedRows::numbers(1000);
    let mut stream = served.connect();
    let gets = command("GET 7").repeat(200_000);
    stream.write_all(&[command("MULTI"), gets, command("EXEC")].concat()).unwrap();
    // Once the first value has arrived, EXEC has chosen its generation.
    expect(&mut stream, b"+OK\r\n");
    expect(&mut stream, &b"+QUEUED\r\n".repeat(200_000));
    expect(&mut stream, b"*200000\r\n");
    swap(&served, "new");
    expect(&mut stream, &served.get(b"7").repeat(200_000));
    assert_eq!(ask(&mut stream, "GET 7"), "$3\r\nnew\r\n");
}

#[test]
fn commands_of_a_transaction_are_counted_once() {
    let served = ServedRows::numbers(1000);
    let mut stream = served.connect();
    let processed = |stream: &mut _| {
        let info = ask(stream, "INFO stats");
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap().to_owned();
        line.parse::<u64>().unwrap()
    };
    let before = processed(&mut stream);
    stream.write_all(&[command("MULTI"), command("GET 7").repeat(3), command("EXEC")].concat()).unwrap();
    expect(&mut stream, &[&b"+OK\r\n"[..], &b"+QUEUED\r\n".repeat(3), b"*3\r\n", &served.get(b"7").repeat(3)].concat());
    // INFO, MULTI, three times GET, and EXEC.
    assert_eq!(processed(&mut stream) - before, 6);
}
