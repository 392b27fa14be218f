//! `zkv bake`, `zkv serve`, and `zkv saturate` run the other programs.

use std::path::Path;
use std::process::Command;

use crate::helpers::shared_program::SharedProgram;

const PROGRAMS: [(&str, &str); 3] = [
    ("bake", env!("CARGO_BIN_EXE_baker")),
    ("serve", env!("CARGO_BIN_EXE_kv_store")),
    ("saturate", env!("CARGO_BIN_EXE_benchmarker")),
];

#[test]
fn a_command_passes_its_arguments_to_the_program() {
    for (command, program) in PROGRAMS {
        for args in [&["--help"][..], &["--no-such-option"]] {
            let through = Command::new(env!("CARGO_BIN_EXE_zkv")).arg(command).args(args).output().unwrap();
            assert_eq!(through, Command::new(program).args(args).output().unwrap(), "{command} {args:?}");
        }
    }
}

#[test]
fn a_missing_program_is_an_error_that_names_its_path() {
    let zkv = SharedProgram::copy(env!("CARGO_BIN_EXE_zkv"));
    let folder = Path::new(zkv.path()).parent().unwrap();
    let output = Command::new(zkv.path()).args(["bake", "rows.csv"]).output().unwrap();
    let expected = format!(
        "zkv: {}: cannot be run: No such file or directory (os error 2): install baker in the same folder as zkv\n",
        folder.canonicalize().unwrap().join("baker").display()
    );
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(2), expected));
}

#[test]
fn options_before_the_command_are_a_usage_error() {
    for (command, _) in PROGRAMS {
        let output = Command::new(env!("CARGO_BIN_EXE_zkv")).args(["--db", "storage.db", command]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("must follow the command"), "{message}");
    }
}
