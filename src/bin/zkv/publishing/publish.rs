//! `zkv publish`: makes baked files the newest generation of a table.
//!
//! In: files, with slots if there are several. Out: a line of text or JSON about the new generation, and the progress
//! on standard error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use zero_kv::bake::Cancel;
use zero_kv::cli::publishing::NewGeneration;
use zero_kv::cli::stop_signals::ArrivedSignal;
use zero_kv::cli::transfer_display::TransferDisplay;
use zero_kv::publish::{PublishError, ShardFile};
use zero_kv::slots::SlotRange;

use super::print_warning;
use crate::args::PublishArgs;
use crate::output::{print, print_error, write_json_line};

pub(super) fn publish(args: &PublishArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let shards = shards(&args.files)?;
    ShardFile::check_coverage(&shards)?;
    let generation = NewGeneration::prepare(&args.to, &args.generation, args.changes.allowed(), print_warning)?;
    let (cancel, display) = (Cancel::default(), TransferDisplay::new(false));
    let arrived = ArrivedSignal::watch(&cancel).context("signals cannot be handled")?;
    let published = generation.publish(&shards, &cancel, &display);
    let manifest = match published {
        Err(PublishError::Canceled) => {
            print_error(&generation.canceled());
            arrived.die();
            return Ok(false);
        }
        published => published.map_err(|error| match NewGeneration::option_for(&error) {
            Some(option) => anyhow!("{error} ({option})"),
            None => error.into(),
        })?,
    };
    print(|stdout| match args.json {
        true => write_json_line(stdout, &manifest),
        false => writeln!(stdout, "{}", generation.summary(&manifest, started.elapsed())),
    })?;
    arrived.die();
    Ok(true)
}

/// Parses the files on the command line. A file that is named after its slots, as `baker --shards` does, has these slots.
/// Any other single file without slots has all slots.
fn shards(files: &[PathBuf]) -> anyhow::Result<Vec<ShardFile>> {
    let parse = |file: &PathBuf| {
        let Some((path, slots)) = split_slots(file) else {
            if let Some(slots) = slots_in_name(file) {
                return Ok(ShardFile { path: file.clone(), slots });
            }
            if files.len() > 1 {
                bail!(
                    "{}: of several files, each has a part of the slots: name the slots, such as users-1.db:0-8191 \
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
