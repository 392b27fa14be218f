//! Runs `baker` in a temporary folder.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;
use zero_kv::Store;

pub(crate) const BAKER: &str = env!("CARGO_BIN_EXE_baker");

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    /// Standard error without the lines that report stages.
    pub(crate) err: String,
    pub(crate) stages: Vec<String>,
}

impl Ended {
    /// Waits for the end of a process whose output is piped.
    pub(crate) fn wait_for(child: Child) -> Ended {
        let output = child.wait_with_output().expect("its end");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let err = text(output.stderr);
        let (stages, err) = err.split_inclusive('\n').partition::<Vec<_>, _>(|line| is_of_stage(line));
        let stages = stages.into_iter().map(str::to_owned).collect();
        Ended { status: output.status, out: text(output.stdout), err: err.concat(), stages }
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!((self.status.code(), &*self.err), (Some(0), ""), "stdout: {}", self.out);
        self
    }

    /// Asserts that the run ended with code 1, exactly this message, and no other output.
    #[track_caller]
    pub(crate) fn fails(&self, message: &str) {
        assert_eq!((&*self.err, &*self.out), (&*format!("baker: {message}\n"), ""));
        assert_eq!(self.status.code(), Some(1));
    }
}

fn is_of_stage(line: &str) -> bool {
    let names = ["read ", "merge ", "write ", "index ", "verify ", "settle "];
    names.iter().any(|name| line.starts_with(name)) && [" s\n", " MiB/s\n"].iter().any(|end| line.ends_with(end))
}

/// The folder that a run works in.
pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder { dir: tempfile::tempdir().expect("a folder for temporary files") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("room for a small file");
    }

    /// Returns all names in the folder in order, including hidden names.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("the folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns a command that runs in the folder without a terminal.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Bakes with these arguments.
    pub(crate) fn bake(&self, args: &[&str]) -> Ended {
        self.run(self.command(BAKER).args(args), b"")
    }

    /// Bakes this text from standard input, with `-` and these arguments.
    pub(crate) fn bake_text(&self, text: impl AsRef<[u8]>, args: &[&str]) -> Ended {
        self.run(self.command(BAKER).arg("-").args(args), text.as_ref())
    }

    /// Starts a bake of standard input, writes this text, and leaves the input open, so that the bake waits for more.
    /// If the text exceeds a pipe's capacity, the bake has read a part of it when this function returns.
    pub(crate) fn start_bake(&self, command: &mut Command, text: &[u8]) -> Child {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
        child.stdin.as_mut().expect("a pipe").write_all(text).expect("a process that reads");
        child
    }

    pub(crate) fn run(&self, command: &mut Command, stdin: &[u8]) -> Ended {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
        // A process that fails early does not read to the end.
        let _ = child.stdin.take().expect("a pipe").write_all(stdin);
        Ended::wait_for(child)
    }

    pub(crate) fn open(&self, name: &str) -> Store {
        Store::open(self.path(name)).expect("a baked file")
    }

    /// Returns all rows of `storage.db`.
    pub(crate) fn rows(&self) -> Vec<(u64, Vec<u8>)> {
        let store = self.open("storage.db");
        store.iter().map(Result::unwrap).map(|(key, value)| (key.as_u64().expect("a number"), value.to_vec())).collect()
    }
}

/// Rows as a table returns them.
pub(crate) fn rows<const N: usize>(rows: [(u64, &[u8]); N]) -> Vec<(u64, Vec<u8>)> {
    rows.map(|(key, value)| (key, value.to_vec())).into()
}
