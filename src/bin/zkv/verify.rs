//! `zkv verify`: verifies a whole file.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use zero_kv::Lookup;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;

use crate::output::{print, report_damage};
use crate::table::open_whole;

/// Verifies a file, and prints the result and the speed.
pub(crate) fn verify(path: &Path) -> anyhow::Result<bool> {
    let started = Instant::now();
    let store = match open_whole(path) {
        Ok(store) => store,
        Err(error) => return report_damage(error),
    };
    let (seconds, len_bytes) = (started.elapsed().as_secs_f64(), store.file_len_bytes());
    let rate = len_bytes as f64 / seconds / 1e9;
    let (name, rows) = (Printable(path.display()), counted(store.len(), "row"));
    print(|stdout| writeln!(stdout, "{name}: intact: {rows}, {len_bytes} bytes in {seconds:.2} s, {rate:.2} GB/s"))?;
    Ok(true)
}
