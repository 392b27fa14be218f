//! `zkv publish`, `zkv copy`, and `zkv pull`: transfer generations to and from object stores.
//!
//! In: baked files or a generation. Out: a line of text or JSON about the generation, and the progress on standard
//! error.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use zero_kv::bake::Cancel;
use zero_kv::cli::publishing::{NewGeneration, TransferDisplay};
use zero_kv::cli::stop_signals::ArrivedSignal;
use zero_kv::counted::counted;
use zero_kv::publish::{CopyOptions, Manifest, Publication, PublishError, ShardFile, Stage, TransferProgress};
use zero_kv::slots::SlotRange;

use super::{open, print_warning, print_warnings, telling_pauses};
use crate::args::{CopyArgs, PublishArgs, PullArgs};
use crate::output::{Report, print, print_error, write_json_line};

/// A transfer that a signal cancels, and the display of its progress.
struct Transfer {
    started: Instant,
    cancel: Cancel,
    arrived: ArrivedSignal,
    display: TransferDisplay,
}

impl Transfer {
    /// Begins to watch for signals. The reported time is the time since `started`.
    fn start(started: Instant) -> anyhow::Result<Transfer> {
        let (cancel, display) = (Cancel::default(), TransferDisplay::new(false));
        let arrived = ArrivedSignal::watch(&cancel).context("signals cannot be handled")?;
        Ok(Transfer { started, cancel, arrived, display })
    }

    /// Prints the result of the transfer. If a signal has canceled it, prints `canceled`, and dies by the signal.
    fn end<T>(
        self,
        result: Result<T, PublishError>,
        canceled: &dyn Display,
        print_result: impl FnOnce(&mut Report, &T, f64) -> io::Result<()>,
    ) -> anyhow::Result<bool> {
        self.display.clear();
        let is_done = match result {
            Err(PublishError::Canceled) => {
                print_error(canceled);
                false
            }
            result => {
                let (result, seconds) = (result.map_err(NewGeneration::explain)?, self.started.elapsed().as_secs_f64());
                print(|stdout| print_result(stdout, &result, seconds))?;
                true
            }
        };
        self.arrived.die();
        Ok(is_done)
    }
}

pub(super) fn publish(args: &PublishArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let shards = shards(&args.files)?;
    ShardFile::check_coverage(&shards)?;
    let generation =
        NewGeneration::prepare(&args.to, &args.generation, args.changes.allowed(), args.max_shrink, print_warning)?;
    let transfer = Transfer::start(started)?;
    let published = generation.publish(&shards, &transfer.cancel, &transfer.display);
    transfer.end(published, &generation.canceled(), |stdout, manifest, seconds| match args.json {
        true => write_json_line(stdout, manifest),
        false => writeln!(stdout, "{}", generation.summary(manifest, seconds)),
    })
}

/// Parses the files on the command line. A file that is named after its slots, as `baker --shards` does, has these
/// slots. Any other single file without slots has all slots.
fn shards(files: &[PathBuf]) -> anyhow::Result<Vec<ShardFile>> {
    let parse = |file: &PathBuf| {
        let Some((path, slots)) = split_slots(file) else {
            if let Some(slots) = slots_in_name(file) {
                return Ok(ShardFile { path: file.clone(), slots });
            }
            if files.len() > 1 {
                bail!(
                    "{}: each of several files has a part of the slots: name the slots, such as users-1.db:0-8191 \
                     users-2.db:8192-16383",
                    file.display()
                );
            }
            return Ok(ShardFile::whole(file));
        };
        let slots = slots.parse().map_err(|problem| anyhow!("{path}: {problem}"))?;
        Ok(ShardFile { path: path.into(), slots })
    };
    files.iter().map(parse).collect()
}

/// Splits FILE:FIRST-LAST. Returns `None` if the name does not end with slots, because names may contain colons.
fn split_slots(file: &Path) -> Option<(&str, &str)> {
    let (path, slots) = file.to_str()?.rsplit_once(':')?;
    let is_slots = slots.contains('-') && slots.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_slots.then_some((path, slots))
}

/// Returns the slots of a file that `baker --shards` has named.
fn slots_in_name(file: &Path) -> Option<SlotRange> {
    file.file_name()?.to_str()?.strip_suffix(".db")?.parse().ok()
}

/// Variables with this prefix replace those without it for the target.
const TARGET_VARIABLES: &str = "TO_";

#[derive(Serialize)]
struct Copied<'a> {
    from: &'a str,
    from_number: u64,
    to: &'a str,
    was_complete: bool,
    manifest: &'a Manifest,
}

pub(super) fn copy(args: &CopyArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let source = open(&args.from)?;
    let target = telling_pauses(Publication::create_with(&args.to, TARGET_VARIABLES)?);
    let Some((manifest, selected_by)) = select(&source, args.generation)? else { return Ok(false) };
    let transfer = Transfer::start(started)?;
    let options = CopyOptions {
        folder: args.temp_dir.clone(),
        allow: args.changes.allowed(),
        bandwidth_bytes_per_s: args.bandwidth,
    };
    let mut show = |file: &Path, progress: TransferProgress| {
        if progress.stage == Stage::Download && progress.done_bytes == 0 {
            transfer.display.begin_file(file);
        }
        transfer.display.show(progress);
    };
    let copied = source.copy_to(&manifest, &target, &options, &transfer.cancel, &mut show);
    transfer.display.clear();
    print_warnings(&target);
    let canceled = "canceled: readers see no new generation: repeat the command in the same folder to continue";
    transfer.end(copied, &canceled, |stdout, copied, seconds| {
        let (from, to, from_number, was_complete) = (source.url(), target.url(), manifest.number, copied.was_complete);
        let number = copied.manifest.number;
        match args.json {
            true => {
                write_json_line(stdout, &Copied { from, from_number, to, was_complete, manifest: &copied.manifest })
            }
            false if was_complete => writeln!(
                stdout,
                "{to}: generation {number} is already a copy of generation {from_number} ({selected_by}) of {from}"
            ),
            false => writeln!(
                stdout,
                "{to}: generation {number}: a copy of generation {from_number} ({selected_by}) of {from}, {} bytes in \
                 {seconds:.2} s",
                copied.manifest.bytes()
            ),
        }
    })
}

pub(super) fn pull(args: &PullArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let publication = open(&args.table.url)?;
    let Some((manifest, selected_by)) = select(&publication, args.generation)? else { return Ok(false) };
    let (transfer, output) = (Transfer::start(started)?, args.output.display());
    transfer.display.begin_file(&args.output);
    let pulled = publication.pull(
        &manifest,
        &args.output,
        args.bandwidth,
        transfer.cancel.with_progress(&mut |progress| transfer.display.show(progress)),
    );
    let canceled = format_args!("{output}: canceled: repeat the command to continue the download");
    transfer.end(pulled, &canceled, |stdout, _, seconds| match args.table.json {
        true => write_json_line(stdout, &manifest),
        false => writeln!(
            stdout,
            "{output}: generation {} ({selected_by}), {}, {} in {seconds:.2} s, digest {}",
            manifest.number,
            counted(manifest.rows(), "row"),
            counted(manifest.bytes(), "byte"),
            manifest.digest(),
        ),
    })
}

/// Returns the manifest of the generation to read, and what selected it. If the table does not have the generation,
/// prints the error and returns `None`.
fn select(publication: &Publication, requested: Option<u64>) -> anyhow::Result<Option<(Manifest, &'static str)>> {
    let (number, selected_by) = match requested {
        Some(requested) => (Some(requested), "requested"),
        None => match publication.pin()?.and_then(|(_, pin)| pin.generation_for(None)) {
            Some(pinned) => (Some(pinned), "pinned"),
            None => (None, "the newest one"),
        },
    };
    match publication.manifest(number) {
        Err(error @ PublishError::NoGeneration { .. }) => {
            print_error(&error);
            Ok(None)
        }
        manifest => Ok(Some((manifest?, selected_by))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_shards_are_slots() {
        assert_eq!(slots_in_name("shards/0-8191.db".as_ref()).unwrap().to_string(), "0-8191");
        for name in ["storage.db", "0-8191", "0-99999.db", "users-1.db"] {
            assert_eq!(slots_in_name(name.as_ref()), None, "{name}");
        }
    }

    #[test]
    fn only_digits_and_a_dash_after_the_last_colon_are_slots() {
        assert_eq!(split_slots("a.db:0-8191".as_ref()), Some(("a.db", "0-8191")));
        assert_eq!(split_slots("a:b.db:5-5".as_ref()), Some(("a:b.db", "5-5")));
        for name in ["a.db", "a:b", "a:7", "a-1:b-2", "0-8191", "a:"] {
            assert_eq!(split_slots(name.as_ref()), None, "{name}");
        }
    }
}
