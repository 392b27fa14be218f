//! Man pages and shell completions are generated and name every option.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::helpers::servers::Server;

const PROGRAMS: [(&str, &str); 4] = [
    ("kv_store", env!("CARGO_BIN_EXE_kv_store")),
    ("baker", env!("CARGO_BIN_EXE_baker")),
    ("benchmarker", env!("CARGO_BIN_EXE_benchmarker")),
    ("zkv", env!("CARGO_BIN_EXE_zkv")),
];

fn help(program: &str, subcommand: Option<&str>) -> String {
    let output = Command::new(program).args(subcommand).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the long options that a help text describes.
fn options(help: &str) -> BTreeSet<String> {
    let described = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = described.flat_map(|line| line.split([' ', ',', '.', '=', '[']).take(3));
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// Returns the commands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names =
        listed.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn man_pages_and_completions_name_every_command_and_option() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in PROGRAMS {
        let made = Command::new(program).arg("--generate").arg(folder.path()).status().unwrap();
        assert!(made.success(), "{name}");
        let completions = ["bash", "zsh", "fish"].map(|shell| {
            let file = match shell {
                "zsh" => format!("_{name}"),
                extension => format!("{name}.{extension}"),
            };
            (shell, read(&folder.path().join(shell).join(file)))
        });
        let whole = help(program, None);
        let mut pages = vec![(format!("{name}.1"), options(&whole))];
        for subcommand in subcommands(&whole) {
            // These commands run other programs, which have their own pages and completions.
            if name == "zkv" && ["bake", "serve", "saturate"].contains(&subcommand.as_str()) {
                continue;
            }
            pages.push((format!("{name}-{subcommand}.1"), options(&help(program, Some(&subcommand)))));
            for (shell, text) in &completions {
                assert!(text.contains(&subcommand), "{shell} completes {name} {subcommand}");
            }
        }
        for (file, options) in pages {
            assert!(options.contains("--help"), "{file}: {options:?}");
            let page = read(&folder.path().join("man1").join(&file)).replace("\\-", "-");
            assert!(page.contains("\n.SH EXAMPLES\n"), "{file} has examples");
            for option in options {
                assert!(page.contains(&option), "{option} is in {file}");
                for (shell, text) in &completions {
                    let written = if *shell == "fish" { format!("-l {}", &option[2..]) } else { option.clone() };
                    assert!(text.contains(&written), "{shell} completes {option} of {file}");
                }
            }
        }
    }
    assert!(!folder.path().join("man1/zkv-help.1").exists(), "no page for the `help` command");
    assert_eq!(fs::read_dir(folder.path().join("bash")).unwrap().count(), PROGRAMS.len());
    for (name, _) in PROGRAMS {
        let script = folder.path().join("bash").join(format!("{name}.bash"));
        assert!(Command::new("bash").arg("-n").arg(script).status().unwrap().success(), "{name}");
    }
}

/// `zkv` does not parse the arguments of these commands, so their examples are run.
#[test]
fn examples_of_commands_that_run_other_programs_work() {
    let folder = tempfile::tempdir().unwrap();
    let zkv = env!("CARGO_BIN_EXE_zkv");
    assert!(Command::new(zkv).arg("--generate").arg(folder.path()).status().unwrap().success());
    fs::write(folder.path().join("rows.csv"), "1,one\n2,two\n").unwrap();
    let socket = folder.path().join("zero-kv.sock");
    let example = |subcommand: &str| {
        let page = read(&folder.path().join(format!("man1/zkv-{subcommand}.1"))).replace("\\-", "-");
        let example = page.lines().find_map(|line| line.strip_prefix(r"\fB$ zkv ")?.strip_suffix(r"\fR"));
        let mut command = Command::new(zkv);
        command.args(example.expect("an example").split(' ')).current_dir(folder.path()).env("ZERO_KV_SOCKET", &socket);
        command
    };
    assert!(example("bake").output().unwrap().status.success());
    let _server = Server::of(example("serve"), &socket);
    assert!(example("saturate").output().unwrap().status.success());
}

#[test]
fn an_unwritable_folder_is_an_error_that_names_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (name, program) in PROGRAMS {
        let output = Command::new(program).arg("--generate").arg(file.path()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.starts_with(&format!("{name}: {}: cannot write the files", file.path().display())),
            "{message}"
        );
    }
}

#[test]
fn a_link_in_the_place_of_the_folder_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
    fs::create_dir(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    for (_, program) in PROGRAMS {
        for path in [link.clone(), link.join(""), folder.path().join("dangling")] {
            let _ = std::os::unix::fs::symlink(folder.path().join("none"), folder.path().join("dangling"));
            let output = Command::new(program).arg("--generate").arg(&path).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{message}");
            assert!(message.contains("is a symbolic link, which is not followed"), "{message}");
        }
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        // A link above the folder was chosen with the path.
        assert!(Command::new(program).arg("--generate").arg(link.join("made")).status().unwrap().success());
        fs::remove_dir_all(victim.join("made")).unwrap();
    }
}

#[test]
fn options_of_the_programs_that_zkv_runs_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    for (_, program) in PROGRAMS {
        assert!(Command::new(program).arg("--generate").arg(folder.path()).status().unwrap().success());
    }
    let complete = |line: &[&str]| {
        let script = r#"
            for file in "$1"/bash/*.bash; do . "$file"; done
            COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
            function=$(complete -p "$2" | sed 's/.*-F \([^ ]*\).*/\1/')
            "$function" "$2" "${@: -1}" "${@: -2:1}"
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let output = Command::new("bash").args(["-c", script, "bash"]).arg(folder.path()).args(line).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["zkv", "bake", "--key"]), ["--key", "--keys"]);
    assert_eq!(complete(&["zkv", "bake", "--keys", ""]), ["u64", "bytes", "auto"]);
    assert_eq!(complete(&["zkv", "bake", "--quiet", "--min-r"]), ["--min-rows"]);
    assert_eq!(complete(&["zkv", "serve", "--slot"]), ["--slots"]);
    assert_eq!(complete(&["zkv", "saturate", "--reque"]), complete(&["benchmarker", "--reque"]));
    assert_eq!(complete(&["zkv", "sat"]), ["saturate"]);
    assert_eq!(complete(&["zkv", "get", "--sock"]), ["--socket"]);
}
