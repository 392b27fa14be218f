//! `zkv copy`: copies a generation of a published table to another table.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, anyhow};
use serde::Serialize;
use zero_kv::bake::Cancel;
use zero_kv::cli::publishing::NewGeneration;
use zero_kv::cli::stop_signals::ArrivedSignal;
use zero_kv::cli::transfer_display::TransferDisplay;
use zero_kv::publish::{CopyOptions, Manifest, Publication, PublishError, Stage, TransferProgress};

use super::pull::select;
use super::{open, print_warnings, telling_pauses};
use crate::args::CopyArgs;
use crate::output::{print, print_error, write_json_line};

/// Variables with this prefix replace those without it for the target.
const TARGET_VARIABLES: &str = "TO_";

/// A copy as JSON.
#[derive(Serialize)]
struct Report<'a> {
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
    let (manifest, selected_by) = match select(&source, args.generation) {
        Err(error @ PublishError::NoGeneration { .. }) => {
            print_error(&error);
            return Ok(false);
        }
        selected => selected?,
    };
    let (cancel, display) = (Cancel::default(), TransferDisplay::new(false));
    let arrived = ArrivedSignal::watch(&cancel).context("signals cannot be handled")?;
    let options = CopyOptions {
        folder: args.temp_dir.clone(),
        allow: args.changes.allowed(),
        bandwidth_bytes_per_s: args.bandwidth,
    };
    let copied =
        source.copy_to(&manifest, &target, &options, &cancel, &mut |file: &Path, progress: TransferProgress| {
            if progress.stage == Stage::Download && progress.done_bytes == 0 {
                display.begin_file(file);
            }
            display.show(progress);
        });
    display.clear();
    print_warnings(&target);
    let copied = match copied {
        Err(PublishError::Canceled) => {
            print_error(&"canceled: readers see nothing of it: repeat the command in the same folder to continue");
            arrived.die();
            return Ok(false);
        }
        copied => copied.map_err(|error| match NewGeneration::option_for(&error) {
            Some(option) => anyhow!("{error} ({option})"),
            None => error.into(),
        })?,
    };
    let (from, to, from_number, was_complete) = (source.url(), target.url(), manifest.number, copied.was_complete);
    print(|stdout| match args.json {
        true => write_json_line(stdout, &Report { from, from_number, to, was_complete, manifest: &copied.manifest }),
        false if was_complete => writeln!(
            stdout,
            "{to}: generation {} is already a copy of generation {from_number} ({selected_by}) of {from}",
            copied.manifest.number
        ),
        false => writeln!(
            stdout,
            "{to}: generation {}: a copy of generation {from_number} ({selected_by}) of {from}, {} bytes in {:.2} s",
            copied.manifest.number,
            copied.manifest.bytes(),
            started.elapsed().as_secs_f64()
        ),
    })?;
    arrived.die();
    Ok(true)
}
