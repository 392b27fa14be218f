//! Publishes a new generation, for `baker` and `zkv publish`.

use std::time::Duration;

use super::generation_args::GenerationArgs;
use super::transfer_display::TransferDisplay;
use crate::bake::Cancel;
use crate::counted::counted;
use crate::publish::{
    Canary, Change, CommitOptions, Manifest, Publication, PublishError, ShardFile, Stage, TransferProgress,
};

/// A generation that can be published as soon as its files exist.
pub struct NewGeneration {
    publication: Publication,
    options: CommitOptions,
    print_warning: fn(&str),
}

impl NewGeneration {
    /// Opens the table at a URL, reads the canaries, and checks that the expected parent is the newest generation.
    /// `allow` has the changes from the preceding
    /// generation that are allowed. `print_warning` prints what the publisher should know but what is not an error.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn prepare(
        url: &str,
        args: &GenerationArgs,
        allow: Vec<Change>,
        print_warning: fn(&str),
    ) -> Result<NewGeneration, PublishError> {
        let canaries = args.canary.as_deref().map(Canary::read_file).transpose()?.unwrap_or_default();
        let note = args.note.clone().unwrap_or_default();
        let publication = Publication::create(url)?;
        publication.set_patience(None, print_warning);
        let options = CommitOptions { parent: args.parent, canaries, allow, note };
        let generation = NewGeneration { publication, options, print_warning };
        let checked = generation.publication.check_parent(args.parent);
        generation.print_warnings();
        checked.map(|()| generation)
    }

    fn print_warnings(&self) {
        self.publication.take_warnings().iter().for_each(|warning| (self.print_warning)(warning));
    }

    /// Returns what a canceled publication has left, and how to continue.
    pub fn canceled(&self) -> &'static str {
        match self.publication.resumes_uploads() {
            true => "canceled: readers see nothing of it: repeat the command to continue the upload",
            false => "canceled: readers see nothing of it: repeat the command to start again",
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

    /// Returns the option that allows what an error rejects.
    pub fn option_for(error: &PublishError) -> Option<&'static str> {
        let PublishError::Change { change, .. } = error else { return None };
        match change {
            Change::Empty => Some("--allow-empty"),
            Change::Shrink => Some("--allow-shrink"),
            Change::KeyKind => Some("--allow-key-kind-change"),
            Change::Schema => Some("--allow-schema-change"),
        }
    }

    /// Describes a generation that was published.
    pub fn summary(&self, manifest: &Manifest, took: Duration) -> String {
        let files = match manifest.entries.len() {
            1 => String::new(),
            files => format!("{files} files, "),
        };
        format!(
            "{}: generation {}: {files}{}, {} in {:.2} s, digest {}",
            self.publication.url(),
            manifest.number,
            counted(manifest.rows(), "row"),
            counted(manifest.bytes(), "byte"),
            took.as_secs_f64(),
            manifest.digest(),
        )
    }
}
