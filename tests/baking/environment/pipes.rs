//! Pipes that break at either end.

use super::*;

const UNCLOSED: &str = "a quoted field is not closed before the input ends: add the closing quote, and double each inner quote, or, if \
     quotes are part of the text, read fields without quotes (--quote none)";

#[test]
fn a_producer_that_dies_within_a_row_is_detected_if_the_row_is_incomplete() {
    let scene = Scene::new();
    let cases = [
        ("1,a\\n2,\"b", format!("standard input:2: {UNCLOSED}")),
        ("1,a\\n\"2", format!("standard input:2: {UNCLOSED}")),
        (
            "1,a\\n2",
            "standard input:2: 1 field where 2 were expected: give a key and a value, or set the delimiter between them (--delimiter)".to_owned(),
        ),
    ];
    for (text, message) in cases {
        let script = format!("printf '{text}'; kill -9 $$");
        let mut producer = scene.folder.command("sh").args(["-c", &script]).spawn().unwrap();
        let rows = producer.stdout.take().unwrap();
        let child = scene.baker(&["-"]).stdin(rows).spawn().unwrap();
        assert_eq!(producer.wait().unwrap().code(), None, "the bake was killed");
        end_of(child).fails(&message);
        scene.assert_untouched();
    }
    let many = [sorted_rows(20_000, 100), b"20000,\"and then".to_vec()].concat();
    scene.assert_fails(&["-"], &many, &format!("standard input:20001: {UNCLOSED}"));
}

#[test]
fn a_last_row_without_a_line_end_is_a_row() {
    // A pipe does not distinguish a producer that was killed from one that has ended.
    let scene = Scene::new();
    scene.folder.run(&mut scene.baker(&["-"]), b"1,a\n2,hal").succeeds();
    assert_eq!(scene.folder.rows(), rows([(1, b"a"), (2, b"hal")]));
}

#[test]
fn a_bake_whose_output_nobody_reads_ends_normally() {
    let scene = Scene::new();
    for redirection in [">&-", "2>&-", ">&- 2>&-", ">/dev/full 2>/dev/full", "| true", "2>&1 | true"] {
        // The exit status of the bake, which is the first command in a pipe.
        let script = |text: &str| format!("{{ printf '{text}' | \"$0\" -; echo $? >code; }} {redirection}; cat code");
        let ended = scene.folder.run(scene.folder.command("sh").args(["-c", &script("2,two\\n"), &BAKER]), b"");
        assert!(ended.out.ends_with("0\n"), "{redirection}: {ended:?}");
        assert_eq!(scene.folder.rows(), rows([(2, b"two")]), "{redirection}");
        std::fs::write(scene.folder.path("storage.db"), &scene.before).unwrap();
        let ended = scene.folder.run(scene.folder.command("sh").args(["-c", &script("2\\n"), &BAKER]), b"");
        assert!(ended.out.ends_with("1\n"), "{redirection}: {ended:?}");
        assert!(!ended.err.contains("panicked"), "{redirection}: {ended:?}");
        scene.assert_untouched();
    }
}

#[test]
fn a_closed_standard_input_is_empty() {
    let scene = Scene::new();
    let ended = scene.folder.run(scene.folder.command("sh").args(["-c", "\"$0\" -q --allow-empty - <&-", &BAKER]), b"");
    ended.succeeds();
    assert_eq!(scene.folder.rows(), rows([]));
}
