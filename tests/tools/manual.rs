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

/// Returns the commands that the help of `zkv` lists: lines with a name and a description. The help of the other
/// programs has no such lines.
fn subcommands(help: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, description) = line.strip_prefix("  ")?.split_once("  ")?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        (is_name && !description.is_empty()).then(|| name.to_owned())
    };
    help.lines().filter_map(name).filter(|name| name != "help").collect()
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
        let subcommands = subcommands(&whole);
        assert_eq!(subcommands.len() > 30, name == "zkv", "{subcommands:?}");
        for subcommand in subcommands {
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
            check_synopsis(&file, &page);
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

/// Returns the short help of a program.
fn short_help(program: &str) -> String {
    String::from_utf8(Command::new(program).arg("-h").output().unwrap().stdout).unwrap()
}

#[test]
fn the_short_help_of_each_program_fits_on_two_screens() {
    for (name, program) in PROGRAMS {
        let help = short_help(program);
        let (lines, longest) = (help.lines().count(), help.lines().map(|line| line.chars().count()).max());
        assert!((20..=100).contains(&lines), "{name} -h has {lines} lines:\n{help}");
        assert!(longest <= Some(100), "{name} -h has a line of {longest:?} characters:\n{help}");
        assert!(options(&short_help(program)).is_subset(&options(&self::help(program, None))), "{name}");
    }
}

#[test]
fn the_help_of_zkv_lists_its_commands_in_groups() {
    let zkv = env!("CARGO_BIN_EXE_zkv");
    for help in [short_help(zkv), help(zkv, None)] {
        let headings: Vec<&str> = help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
        let expected =
            ["Lookups:", "Files:", "Servers:", "Published tables:", "Clusters:", "Other programs:", "Options:"];
        assert_eq!(&headings[..expected.len()], &expected, "{help}");
        let lookups = &help[help.find("Lookups:").unwrap()..help.find("Files:").unwrap()];
        assert!(help.contains("\nUsage: zkv [OPTIONS] <COMMAND>\n"), "{help}");
        assert!(lookups.contains("\n  get  ") && lookups.contains("\n  scan  "), "{lookups}");
    }
}

/// Checks that the synopsis of a man page has each option of its other sections, with its value.
fn check_synopsis(file: &str, page: &str) {
    let page = ["\\fB", "\\fI", "\\fR"].iter().fold(page.to_owned(), |page, font| page.replace(font, ""));
    let (_, rest) = page.split_once("\n.SH SYNOPSIS\n").unwrap();
    let (synopsis, rest) = rest.split_once("\n.SH DESCRIPTION\n").unwrap();
    let described =
        rest.lines().filter(|line| line.starts_with("--") || line.starts_with('-') && line.contains(", --"));
    for line in described {
        // An option with a value is described as `-o, --output <FILE> [default: …]`.
        let option = line.split(", ").last().unwrap().replace(['<', '>'], "");
        let option = option.split(" [").next().unwrap();
        let is_shown = [" ", "|"].iter().any(|before| {
            let optional = before.replace(' ', "[");
            synopsis.contains(&format!("{optional}{option}]")) || synopsis.contains(&format!("{before}{option}"))
        });
        assert!(is_shown, "{option} is in the synopsis of {file}:\n{synopsis}");
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
    assert_eq!(
        complete(&["zkv", "bake", "--keys", ""]),
        ["u64", "bytes", "i64", "ipv4", "ip", "uuid", "hex", "date", "timestamp", "auto"]
    );
    assert_eq!(complete(&["zkv", "bake", "--quiet", "--min-r"]), ["--min-rows"]);
    assert_eq!(complete(&["zkv", "serve", "--slot"]), ["--slots"]);
    assert_eq!(complete(&["zkv", "saturate", "--reque"]), complete(&["benchmarker", "--reque"]));
    assert_eq!(complete(&["zkv", "sat"]), ["saturate"]);
    assert_eq!(complete(&["zkv", "get", "--sock"]), ["--socket"]);
}
