//! Temporary files that return other bytes than were written.

use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use zero_kv::Lookup;

use super::*;

/// Starts a bake that has read these rows, and waits for more on standard input.
fn waiting_bake(scene: &Scene, rows: &[u8], args: &[&str]) -> Child {
    scene.folder.write("rows.csv", rows);
    let args = [&["rows.csv", "-"], args, &LEAST_MEMORY[..]].concat();
    scene.baker(&args).stdin(Stdio::piped()).spawn().unwrap()
}

/// Returns the bake's unnamed file, once the file has this length.
fn unnamed_file(child: &mut Child, len_min_bytes: u64) -> std::fs::File {
    found_eventually("an unnamed file exists", || {
        assert!(child.try_wait().unwrap().is_none(), "the bake ended early");
        unnamed_files(child, len_min_bytes).pop()
    })
}

fn flip_byte(file: &std::fs::File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

const REMEDY: &str = "nothing was put in place; check the disk, or choose another folder (--temp-dir)";

#[test]
fn spilled_rows_that_are_read_back_damaged_are_an_error() {
    // The damaged byte is at the start of the first block, inside one of its values, and in another block.
    for (at, block) in [(0, 0), (3000, 0), (5_000_000, 5_000_000 / 65_536 * 65_536)] {
        let scene = Scene::new();
        let mut child = waiting_bake(&scene, &rows_to_spill(), &["--temp-dir", "temp"]);
        let spilled = unnamed_file(&mut child, at + 65_536);
        flip_byte(&spilled, at);
        end_of(child).fails(&format!(
            "temporary files in temp: the block at byte {block} differs from what was written: {REMEDY}"
        ));
        scene.assert_untouched();
    }
}

#[test]
fn spilled_rows_that_are_truncated_are_an_error() {
    let scene = Scene::new();
    let mut child = waiting_bake(&scene, &rows_to_spill(), &["--temp-dir", "temp"]);
    unnamed_file(&mut child, 5_000_000).set_len(100_000).unwrap();
    let ended = end_of(child);
    // Bytes that are written after the truncation leave a hole before them.
    let cut = "failed to fill whole buffer: nothing was put in place; choose another folder (--temp-dir)";
    let hole = format!("the block at byte 65536 differs from what was written: {REMEDY}");
    let expected = [cut, &hole].map(|what| format!("baker: temporary files in temp: {what}\n"));
    assert!(expected.contains(&ended.err) && ended.status.code() == Some(1), "{ended:?}");
    scene.assert_untouched();
}

#[test]
fn records_that_are_read_back_damaged_are_an_error() {
    let scene = Scene::new();
    // Sorted rows are written directly to the new file.
    let mut child = waiting_bake(&scene, &sorted_rows(8000, 1000), &[]);
    let new = unnamed_file(&mut child, 4_500_000);
    flip_byte(&new, 4_100_000);
    let ended = end_of(child);
    assert!(ended.err.starts_with("baker: reading the new file back: "), "{ended:?}");
    assert!(ended.err.ends_with(": nothing was put in place; check disk and memory\n"), "{ended:?}");
    assert_eq!(ended.status.code(), Some(1));
    scene.assert_untouched();
}

#[test]
fn a_temporary_folder_may_be_removed_only_after_its_file_was_created() {
    let scene = Scene::new();
    let mut child = waiting_bake(&scene, b"", &["--temp-dir", "temp"]);
    // The bake has begun: the new file has no name.
    unnamed_file(&mut child, 0);
    std::fs::remove_dir(scene.folder.path("temp")).unwrap();
    feed(&mut child, &rows_to_spill());
    let why = "No such file or directory (os error 2)";
    end_of(child).fails(&format!(
        "temporary files in temp: {why}: nothing was put in place; choose another folder (--temp-dir)"
    ));
    scene.assert_untouched();

    std::fs::create_dir(scene.folder.path("temp")).unwrap();
    let mut child = waiting_bake(&scene, &rows_to_spill(), &["--temp-dir", "temp"]);
    unnamed_file(&mut child, 1);
    std::fs::remove_dir(scene.folder.path("temp")).unwrap();
    end_of(child).succeeds();
    assert_eq!(scene.folder.open("storage.db").len(), 4200);
    assert_eq!(scene.folder.names(), ["rows.csv", "storage.db"]);
}

#[test]
fn the_error_for_a_removed_output_folder_names_it() {
    let scene = Scene::new();
    std::fs::create_dir(scene.folder.path("out")).unwrap();
    let mut child = waiting_bake(&scene, b"", &["--temp-dir", "temp", "-o", "out/table.db"]);
    unnamed_file(&mut child, 0);
    std::fs::remove_dir(scene.folder.path("out")).unwrap();
    feed(&mut child, b"2,two\n");
    end_of(child).fails("out/table.db: No such file or directory (os error 2): nothing was put in place");
    scene.assert_untouched();
    assert_eq!(scene.folder.names(), ["rows.csv", "storage.db", "temp"]);
}
