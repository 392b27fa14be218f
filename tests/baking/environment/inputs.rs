//! Inputs that change while they are read.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use super::*;

const ADVICE: &str = "while it was read: bake again from a file that does not change";

/// Bakes a file that `change` modifies after part of it was read.
#[track_caller]
fn assert_change_is_detected(change: impl Fn(&Path), message: &str) {
    let scene = Scene::new();
    make_fifo(&scene.folder, "bad.csv");
    // Bad rows whose messages exceed a pipe's capacity. Nobody reads the pipe, so the bake blocks there and reads no
    // further than its read-ahead. Many more rows follow.
    let bad: Vec<u8> = (0..300).flat_map(|_| [b"x,".to_vec(), vec![b'x'; 1000], b"\n".to_vec()].concat()).collect();
    let text = [bad, sorted_rows(4000, 1000)].concat();
    scene.folder.write("rows.csv", &text);
    let path = scene.folder.path("rows.csv");
    // A long time ago, so that a change is visible even with a coarse clock.
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let args = ["rows.csv", "--bad-rows", "skip", "--bad-rows-file", "bad.csv", "--threads", "1"];
    let child = scene.baker(&[&args, &LEAST_MEMORY[..]].concat()).spawn().unwrap();
    let mut bad_rows = File::open(scene.folder.path("bad.csv")).unwrap();
    bad_rows.read_exact(&mut [0]).unwrap();
    change(&path);
    std::io::copy(&mut bad_rows, &mut std::io::sink()).unwrap();
    end_of(child).fails(&format!("rows.csv: {} {ADVICE}", message.replace("LEN", &text.len().to_string())));
    std::fs::remove_file(scene.folder.path("bad.csv")).unwrap();
    scene.assert_untouched();
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

#[test]
fn an_input_that_grows_while_it_is_read_is_rejected() {
    let len_bytes = 300 * 1003 + sorted_rows(4000, 1000).len();
    let append = |path: &Path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"9,nine\n").unwrap();
    assert_change_is_detected(append, &format!("grew from LEN to {} bytes", len_bytes + 7));
}

#[test]
fn an_input_that_shrinks_while_it_is_read_is_rejected() {
    // After the bytes that were read, before them, and to nothing.
    for len_bytes in [4_000_000, 100, 0] {
        assert_change_is_detected(
            |path| open(path).set_len(len_bytes).unwrap(),
            &format!("shrank from LEN to {len_bytes} bytes"),
        );
    }
}

#[test]
fn an_input_that_is_overwritten_while_it_is_read_is_rejected() {
    assert_change_is_detected(|path| open(path).write_all(b"y").unwrap(), "was written to");
    let rewrite = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        // The file is not truncated first, because it would then shrink.
        open(path).write_all(&bytes).unwrap();
    };
    assert_change_is_detected(rewrite, "was written to");
}

#[test]
fn an_input_that_is_removed_or_replaced_while_it_is_read_is_rejected() {
    assert_change_is_detected(|path| std::fs::remove_file(path).unwrap(), "was removed");
    let replace = |path: &Path| {
        let other = path.with_extension("new");
        std::fs::copy(path, &other).unwrap();
        std::fs::rename(other, path).unwrap();
    };
    assert_change_is_detected(replace, "was replaced by another file");
}

#[test]
fn the_error_for_a_matched_file_that_was_removed_names_it() {
    let scene = Scene::new();
    make_fifo(&scene.folder, "a.csv");
    scene.folder.write("b.csv", "2,two\n");
    for arg in ["b*", "./b.csv"] {
        scene.folder.write("b.csv", "2,two\n");
        let mut child = scene.baker(&["a.csv", arg]).stdin(Stdio::null()).spawn().unwrap();
        // Patterns are expanded before the first input is opened.
        let mut pipe = found_eventually("the pipe is read", || {
            assert!(child.try_wait().unwrap().is_none(), "the bake ended early");
            let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            OpenOptions::new().write(true).custom_flags(nonblocking).open(scene.folder.path("a.csv")).ok()
        });
        std::fs::remove_file(scene.folder.path("b.csv")).unwrap();
        pipe.write_all(b"1,one\n").unwrap();
        drop(pipe);
        end_of(child).fails(&format!("{}: No such file or directory (os error 2)", arg.replace("b*", "b.csv")));
        scene.assert_untouched();
    }
    assert_eq!(scene.folder.names(), ["a.csv", "storage.db", "temp"]);
}
