//! A client gets responses while another client of the same worker sends commands with their most expensive arguments.

mod worst_commands;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};

use zero_kv::client::Client;
// `worst_commands` imports these from its parent, because a unit test of the crate compiles the file, too.
use zero_kv::protocol::native::{Op, push_long, range_flags};
use zero_kv::protocol::resp::commands::{ARGS_MAX_AT_ONCE, COMMANDS, Id, Spec};
use zero_kv::protocol::resp::{BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES};

use crate::helpers::frames::expect;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;
use worst_commands::all_cases;

const ROWS: u64 = 20_000;

#[test]
fn others_are_answered_whatever_a_client_sends() {
    let table = Table::of_rows(ROWS);
    let mut command = kv_store(&table.db(), &table.socket());
    command.args(["--workers", "1"]);
    let server = Server::of(command, &table.socket());
    let mut other = server.connect();
    for (name, bytes) in all_cases(ROWS) {
        let pipeline = bytes.repeat(if bytes.len() < 100 { 10 } else { 1 });
        let mut busy = server.connect();
        let (mut writer, is_over) = (busy.try_clone().unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The server may close the connection before it has read everything.
                let _ = writer.write_all(&pipeline);
                let _ = writer.shutdown(Shutdown::Write);
            });
            scope.spawn(|| {
                while busy.read(&mut [0; 64 << 10]).is_ok_and(|len| len > 0) {}
                is_over.store(true, Ordering::Release);
            });
            let mut pings = 0;
            while pings == 0 || !is_over.load(Ordering::Acquire) {
                other.write_all(b"PING\r\n").unwrap_or_else(|error| panic!("{name}: {error}"));
                expect(&mut other, b"+PONG\r\n");
                pings += 1;
            }
        });
    }
    let info = Client::connect(table.socket()).unwrap().info().unwrap();
    assert_eq!(info.number("panics"), Some(0), "{info:?}");
}
