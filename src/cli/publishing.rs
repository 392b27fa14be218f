//! Publishes a new generation, for `baker` and `zkv publish`, and displays the progress of transfers on standard error:
//! as one live line on a terminal, otherwise as one line per completed stage.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::args::GenerationArgs;
use super::stderr::live_bar;
use crate::bake::Cancel;
use crate::counted::counted;
use crate::printable::Printable;
use crate::publish::{
    Canary, Change, CommitOptions, Manifest, Publication, PublishError, ShardFile, Stage, TransferProgress,
};
use crate::sync::unpoisoned;

/// A generation that can be published as soon as its files exist.
pub struct NewGeneration {
    publication: Publication,
    options: CommitOptions,
    print_warning: fn(&str),
}

impl NewGeneration {
    /// Opens the table at a URL, reads the canaries, and checks that the expected parent is the newest generation.
    /// `allow` has the changes from the preceding generation that are allowed, and `shrink_max_percent` is the maximum
    /// percentage of its rows that may be lost, if not less than half. `print_warning` prints warnings.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn prepare(
        url: &str,
        args: &GenerationArgs,
        allow: Vec<Change>,
        shrink_max_percent: Option<u8>,
        print_warning: fn(&str),
    ) -> Result<NewGeneration, PublishError> {
        let canaries = args.canary.as_deref().map(Canary::read_file).transpose()?.unwrap_or_default();
        let note = args.note.clone().unwrap_or_default();
        let publication = Publication::create(url)?;
        publication.set_patience(None, print_warning);
        let options = CommitOptions { parent: args.parent, canaries, allow, shrink_max_percent, note };
        let generation = NewGeneration { publication, options, print_warning };
        let checked = generation.publication.check_parent(args.parent);
        generation.print_warnings();
        checked.map(|()| generation)
    }

    fn print_warnings(&self) {
        self.publication.take_warnings().iter().for_each(|warning| (self.print_warning)(warning));
    }

    /// Returns the message of a canceled publication, with how to continue.
    pub fn canceled(&self) -> &'static str {
        match self.publication.resumes_uploads() {
            true => "canceled: readers see no new generation: repeat the command to continue the upload",
            false => "canceled: readers see no new generation: repeat the command to start again",
        }
    }

    /// Uploads files, and creates the generation that consists of them.
    ///
    /// # Errors
    /// [`PublishError`]. After an error, readers see no new generation.
    pub fn publish(
        &self,
        shards: &[ShardFile],
        cancel: &Cancel,
        display: &TransferDisplay,
    ) -> Result<Manifest, PublishError> {
        let mut show = |(at, progress): (usize, TransferProgress)| {
            if progress.stage == Stage::Verify && progress.done_bytes == 0 {
                display.begin_file(&shards[at].path);
            }
            display.show(progress);
        };
        let published = self.publication.publish(shards, &self.options, cancel.with_progress(&mut show));
        display.clear();
        self.print_warnings();
        published
    }

    /// Adds the option that allows what an error rejects.
    pub fn explain(error: PublishError) -> anyhow::Error {
        let PublishError::Change { change, .. } = &error else { return error.into() };
        let option = match change {
            Change::Empty => "--allow-empty",
            Change::Shrink => "--allow-shrink",
            Change::KeyType => "--allow-key-type-change",
            Change::Schema => "--allow-schema-change",
        };
        anyhow::anyhow!("{error} ({option})")
    }

    /// Describes a generation that was published.
    pub fn summary(&self, manifest: &Manifest, seconds: f64) -> String {
        let files = match manifest.entries.len() {
            1 => String::new(),
            files => format!("{files} files, "),
        };
        format!(
            "{}: generation {}: {files}{}, {} in {seconds:.2} s, digest {}",
            self.publication.url(),
            manifest.number,
            counted(manifest.rows(), "row"),
            counted(manifest.bytes(), "byte"),
            manifest.digest(),
        )
    }
}

const TEMPLATE: &str = "{prefix:<9} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {eta} left";
const MIB: f64 = (1 << 20) as f64;

/// Displays the progress of the transfers of a program.
pub struct TransferDisplay {
    bar: ProgressBar,
    /// Whether a line is printed for each completed stage.
    prints_stages: bool,
    running: Mutex<Running>,
}

struct Running {
    file: String,
    stage: Option<Stage>,
    since: Instant,
    /// The bytes that were complete when the stage began: an earlier transfer may have been interrupted.
    first_bytes: u64,
    done_bytes: u64,
    is_complete: bool,
}

impl TransferDisplay {
    pub fn new(quiet: bool) -> TransferDisplay {
        let bar = live_bar(quiet);
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("a valid template"));
        let running = Running {
            file: String::new(),
            stage: None,
            since: Instant::now(),
            first_bytes: 0,
            done_bytes: 0,
            is_complete: false,
        };
        TransferDisplay { prints_stages: !quiet && bar.is_hidden(), bar, running: Mutex::new(running) }
    }

    /// Names the file that the next stages transfer.
    pub fn begin_file(&self, path: &Path) {
        let mut running = unpoisoned(&self.running);
        let file = Printable(path.display()).to_string();
        *running =
            Running { file, stage: None, since: Instant::now(), first_bytes: 0, done_bytes: 0, is_complete: false };
    }

    pub fn show(&self, progress: TransferProgress) {
        let mut running = unpoisoned(&self.running);
        if running.stage != Some(progress.stage) || progress.done_bytes < running.done_bytes {
            // The first report of a stage counts the parts that were complete before.
            running.first_bytes = progress.done_bytes;
            (running.stage, running.is_complete) = (Some(progress.stage), false);
            self.bar.set_position(0);
            self.bar.set_prefix(progress.stage.name());
            self.bar.set_length(progress.total_bytes);
            self.bar.set_position(progress.done_bytes);
            self.bar.reset_eta();
        }
        running.done_bytes = progress.done_bytes;
        self.bar.set_position(progress.done_bytes);
        self.bar.tick();
        if progress.done_bytes == progress.total_bytes && !running.is_complete {
            running.is_complete = true;
            if self.prints_stages {
                // The transfer continues even if standard error is closed.
                let _ = writeln!(io::stderr(), "{}", running.line(progress));
            }
            running.since = Instant::now();
        }
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Running {
    /// Formats the completed stage in columns: name, MiB, seconds, MiB/s, and file.
    fn line(&self, progress: TransferProgress) -> String {
        let seconds = self.since.elapsed().as_secs_f64();
        let mib = (progress.total_bytes - self.first_bytes) as f64 / MIB;
        let rate = if seconds >= 0.01 { format!("{:>7.0} MiB/s", mib / seconds) } else { " ".repeat(13) };
        format!("{:<9}{mib:>11.1} MiB{seconds:>8.2} s{rate}  {}", progress.stage.name(), self.file)
    }
}
