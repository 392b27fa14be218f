//! Files whose intact header declares sections of any length. Everything after the header is a hole, so these files
//! take no space on the disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zero_kv::KeyType;
use zero_kv::format::header::{Dimensions, Layout, TableLayout};

/// Writes a file that declares one row and records of this length. Returns the length of its block sums.
pub fn forge(path: &Path, records_len_bytes: u64) -> u64 {
    let layout = Layout::new(Dimensions {
        table_layout: TableLayout::Fast,
        key_type: KeyType::U64,
        has_ranges: false,
        row_count: 1,
        hash_seed: 0,
        record_align_bytes: 4096,
        records_len_bytes,
        groups_len_bytes: 0,
        part_pilots: 1,
        part_slots: 1,
        schema_len_bytes: 0,
    })
    .unwrap();
    let file = File::create(path).unwrap();
    file.set_len(layout.file_len_bytes()).unwrap();
    file.write_all_at(&layout.encode(), 0).unwrap();
    layout.block_sums.len_bytes
}
