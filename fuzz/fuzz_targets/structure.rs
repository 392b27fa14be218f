//! Files assembled from forged fields and sections: see `tests/fuzz/structure.rs`.
#![no_main]

#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/fuzz/structure.rs"]
mod structure;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static ORIGINALS: LazyLock<structure::Originals> = LazyLock::new(structure::Originals::new);

libfuzzer_sys::fuzz_target!(|data: &[u8]| structure::check(&FOLDER.path().join("storage.db"), &ORIGINALS.forgery(data)));
