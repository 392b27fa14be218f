//! `benchmarker` as a process, with a server inside the test.

mod bytes;
mod ceiling;
mod columns;
mod floors;
mod outputs;
mod requests;
mod resp;
mod responses;
mod schedule;
mod test_server;
mod usage;
