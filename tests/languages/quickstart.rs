//! The commands of the README's quickstart print what the README shows.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::helpers::trials::{Missing, require};
use crate::helpers::waiting::eventually;

/// A command of a block of the language `console`, and the lines that follow it.
struct Step {
    command: String,
    output: Vec<String>,
}

/// Returns the commands of a section of the README.
fn steps(section: &str) -> Vec<Step> {
    let (mut steps, mut is_console) = (Vec::<Step>::new(), false);
    for line in section.lines() {
        match line {
            "```console" => is_console = true,
            "```" => is_console = false,
            line if is_console => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
                None => steps.last_mut().expect("output follows a command").output.push(line.to_owned()),
            },
            _ => {}
        }
    }
    steps
}

/// Returns the words of a text, without what differs from run to run: times, rates, and the number of workers.
fn words(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_measured = |at: usize| {
        let (word, next) = (words[at], words.get(at + 1).copied().unwrap_or_default());
        word.starts_with("workers=") || (word.contains('T') && word.ends_with('Z')) || ["s,", "rows/s,"].contains(&next)
    };
    (0..words.len()).map(|at| if is_measured(at) { "…".to_owned() } else { words[at].to_owned() }).collect()
}

pub(crate) fn the_quickstart_prints_what_the_readme_shows() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("\n## Quickstart\n").unwrap();
    let steps = steps(section.split("\n## ").next().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::os::unix::fs::symlink(root.join("datasets"), folder.path().join("datasets")).unwrap();
    let (socket, log) = (folder.path().join("s.sock"), folder.path().join("output"));
    let socket = socket.to_str().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_zkv")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.current_dir(folder.path()).env("PATH", path).env("ZERO_KV_SOCKET", socket).stdin(Stdio::piped());
    let output = fs::File::create(&log).unwrap();
    let mut shell = shell.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let printed = || fs::read_to_string(&log).unwrap();
    let mut seen_len_bytes = 0;
    // The first block builds the programs.
    for (number, step) in steps.iter().enumerate().skip_while(|(_, step)| !step.command.starts_with("baker ")) {
        let marker = format!("step {number} ended\n");
        let command = step.command.replace("/tmp/zero-kv.sock", socket);
        // The README shows the summary of the bake, and not its progress on standard error. On a terminal, redis-cli quotes
        // values.
        let command = match command.split_once(' ') {
            Some(("baker", _)) => format!("{command} 2>/dev/null"),
            Some(("redis-cli", arguments)) => format!("redis-cli --no-raw {arguments}"),
            _ => command,
        };
        writeln!(input, "{command}\nprintf 'step {number} ended\\n'").unwrap();
        let is_background = step.command.ends_with('&');
        eventually(&format!("{} ends", step.command), || {
            let printed = printed();
            printed[seen_len_bytes..].contains(&marker) && (!is_background || printed.contains("ready on"))
        });
        let printed = printed();
        let found = printed[seen_len_bytes..].replace(&marker, "");
        seen_len_bytes = printed.len();
        if !step.output.is_empty() {
            let found = found.replace(socket, "/tmp/zero-kv.sock");
            assert_eq!(words(&found), words(&step.output.join("\n")), "$ {}", step.command);
        }
    }
    drop(input);
    assert!(shell.wait().unwrap().success());
    assert!(steps.len() > 8, "{} commands", steps.len());
    Ok(())
}
