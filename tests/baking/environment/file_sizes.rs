//! A limit on the size of files, which fails writes like a full disk.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::*;

/// Starts a bake from standard input that can write files of at most one megabyte, and has not read anything.
fn limited(scene: &Scene, args: &[&str]) -> Child {
    let child = scene.baker(args).arg("-").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).unwrap();
    child
}

#[test]
fn a_limit_on_file_sizes_is_reported_as_an_error() {
    let scene = Scene::new();
    let (too_large, nothing) = ("File too large (os error 27)", "nothing was put in place");
    let cases = [
        (sorted_rows(2000, 1000), format!("storage.db: {too_large}: {nothing}")),
        (shuffled_rows(2000, 1000), format!("storage.db: {too_large}: {nothing}")),
        (
            rows_to_spill(),
            format!("temporary files in temp: {too_large}: {nothing}; choose another folder (--temp-dir)"),
        ),
    ];
    for (text, message) in cases {
        let mut child = limited(&scene, &[&LEAST_MEMORY[..], &["--temp-dir", "temp"]].concat());
        feed(&mut child, &text);
        end_of(child).fails(&message);
        scene.assert_untouched();
    }
}
