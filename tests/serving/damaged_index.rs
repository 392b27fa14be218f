//! A server whose first file has a damaged block of the index: it serves the keys that do not need the block.

use std::fs;
use std::time::{Duration, SystemTime};

use zero_kv::client::ClientError;

use crate::helpers::encoder::{self, PLACES};
use crate::helpers::tables::Table;
use crate::helpers::waiting::eventually;

const BLOCK: usize = 4096;
const ROWS: u64 = 100_000;

#[test]
fn a_damaged_block_of_places_is_reported_and_fails_only_its_keys() {
    let table = Table::of_rows(ROWS);
    let whole = fs::read(table.db()).unwrap();
    let (start, len) = encoder::section(&whole, PLACES);
    let block_of = |key: u64| (encoder::place_at(&whole, &key) - start) / BLOCK;
    // A starting server looks up a sample of rows, and does not serve a file if one of them is damaged.
    let step = ROWS.div_ceil(16) as usize;
    let sampled: Vec<usize> = (1..=ROWS).step_by(step).chain([ROWS]).map(block_of).collect();
    let block = (0..len / BLOCK).find(|block| !sampled.contains(block)).expect("more blocks than sampled rows");
    let needs_block = |key: u64| block_of(key) == block;
    let mut bytes = whole.clone();
    bytes[start + block * BLOCK + 5] ^= 1;
    fs::write(table.db(), &bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(table.db())
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(60))
        .unwrap();

    let server = table.serve();
    let mut client = server.client();
    let mut failed = 0;
    for key in (1..=ROWS + 100).step_by(11) {
        match client.get(key) {
            Err(ClientError::Server { .. }) if needs_block(key) => failed += 1,
            found => {
                assert_eq!((found.unwrap().as_ref(), needs_block(key)), (table.model.get(&key), false), "key {key}");
            }
        }
    }
    assert!(failed > 0);
    // The background verification finds the block even if no request needs it, and all other blocks are intact.
    eventually("the damaged block is reported", || server.number("blocks_damaged") == 1);
    let message = format!("block {block} of the places is damaged: lookups of its keys fail");
    eventually("the damaged block is logged", || server.logged(&message) == 1);
    assert_eq!(server.info().get("state"), Some("serving"));
}
