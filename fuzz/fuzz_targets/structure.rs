//! Opens files that are assembled from forged fields and sections: see `tests/fuzz/structure.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::structure;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static ORIGINALS: LazyLock<structure::Originals> = LazyLock::new(structure::Originals::encode);

libfuzzer_sys::fuzz_target!(|data: &[u8]| structure::check(
    &FOLDER.path().join("storage.db"),
    &ORIGINALS.forgery(data)
));
