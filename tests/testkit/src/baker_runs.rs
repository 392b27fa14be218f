//! Runs `baker` in a temporary folder.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv::Lookup;
use zero_kv::typed::{Column, Value, write_text};
use zero_kv::{Key, Store};

use super::programs::program;

pub static BAKER: LazyLock<String> = LazyLock::new(|| program("baker"));

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    /// Standard error without the lines that report stages.
    pub err: String,
    pub stages: Vec<String>,
}

impl Ended {
    /// Waits for the end of a process whose output is piped.
    pub fn wait_for(child: Child) -> Ended {
        let output = child.wait_with_output().expect("its end");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let err = text(output.stderr);
        let (stages, err) = err.split_inclusive('\n').partition::<Vec<_>, _>(|line| is_of_stage(line));
        let stages = stages.into_iter().map(str::to_owned).collect();
        Ended { status: output.status, out: text(output.stdout), err: err.concat(), stages }
    }

    #[track_caller]
    pub fn succeeds(&self) -> &Self {
        assert_eq!((self.status.code(), &*self.err), (Some(0), ""), "stdout: {}", self.out);
        self
    }

    /// Asserts that the run ended with code 1, exactly this message, and no other output.
    #[track_caller]
    pub fn fails(&self, message: &str) {
        assert_eq!((&*self.err, &*self.out), (&*format!("baker: {message}\n"), ""));
        assert_eq!(self.status.code(), Some(1));
    }

    /// Asserts that the run succeeded, and printed only these inferred types.
    #[track_caller]
    pub fn infers(&self, types: &str) {
        assert_eq!((self.status.code(), &*self.err), (Some(0), &*format!("types: --types {types}\n")), "{}", self.out);
    }
}

fn is_of_stage(line: &str) -> bool {
    let names = ["read ", "merge ", "write ", "index ", "verify ", "settle "];
    names.iter().any(|name| line.starts_with(name)) && [" s\n", " MiB/s\n"].iter().any(|end| line.ends_with(end))
}

/// The folder that a run works in.
pub struct Folder {
    dir: TempDir,
}

impl Folder {
    pub fn new() -> Folder {
        Folder { dir: tempfile::tempdir().expect("a folder for temporary files") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("room for a small file");
    }

    /// Returns all names in the folder in order, including hidden names.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("the folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns a command that runs in the folder without a terminal.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Bakes with these arguments.
    pub fn bake(&self, args: &[&str]) -> Ended {
        self.run(self.command(&BAKER).args(args), b"")
    }

    /// Bakes this text from standard input, with `-` and these arguments.
    pub fn bake_text(&self, text: impl AsRef<[u8]>, args: &[&str]) -> Ended {
        self.run(self.command(&BAKER).arg("-").args(args), text.as_ref())
    }

    /// Starts a bake of standard input, writes this text, and leaves the input open, so that the bake waits for more.
    /// If the text exceeds a pipe's capacity, the bake has read a part of it when this function returns.
    pub fn start_bake(&self, command: &mut Command, text: &[u8]) -> Child {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
        child.stdin.as_mut().expect("a pipe").write_all(text).expect("a process that reads");
        child
    }

    pub fn run(&self, command: &mut Command, stdin: &[u8]) -> Ended {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
        // A process that fails early does not read to the end.
        let _ = child.stdin.take().expect("a pipe").write_all(stdin);
        Ended::wait_for(child)
    }

    pub fn open(&self, name: &str) -> Store {
        Store::open(self.path(name)).expect("a baked file")
    }

    /// Returns all rows of `storage.db`.
    pub fn rows(&self) -> Vec<(u64, Vec<u8>)> {
        let store = self.open("storage.db");
        store.iter().map(Result::unwrap).map(|(key, value)| (key.as_u64().expect("a number"), value.to_vec())).collect()
    }

    /// Returns the rows of `storage.db` in key order, as text: the key, then `column=value` for each column.
    pub fn typed_rows(&self) -> Vec<String> {
        let store = self.open("storage.db");
        let schema = store.schema().expect("a typed table");
        let row = |key: Key<'_>| {
            let row = store.get_row(key).unwrap().expect("a row for each key");
            row.check().unwrap();
            let cell = |(column, value): (&Column, _)| format!("{}={}", column.name, text(&value));
            let cells = schema.columns().iter().zip(row.values().map(Result::unwrap)).map(cell);
            std::iter::once(key.to_string()).chain(cells).collect::<Vec<_>>().join(" ")
        };
        store.iter().map(Result::unwrap).map(|(key, _)| row(key)).collect()
    }

    /// Returns the schema of `storage.db`.
    pub fn schema(&self) -> String {
        self.open("storage.db").schema().expect("a typed table").to_string()
    }
}

fn text(value: &Value<'_>) -> String {
    let mut text = Vec::new();
    write_text(value, &mut text);
    if *value == Value::Null { "null".to_owned() } else { text.escape_ascii().to_string() }
}

/// Rows as a table returns them.
pub fn rows<const N: usize>(rows: [(u64, &[u8]); N]) -> Vec<(u64, Vec<u8>)> {
    rows.map(|(key, value)| (key, value.to_vec())).into()
}
