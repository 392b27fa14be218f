//! `zkv pull`: downloads a generation into one file.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use zero_kv::bake::Cancel;
use zero_kv::cli::stop_signals::ArrivedSignal;
use zero_kv::cli::transfer_display::TransferDisplay;
use zero_kv::counted::counted;
use zero_kv::publish::{Manifest, Publication, PublishError};

use crate::args::PullArgs;
use crate::output::{print, print_error, write_json_line};

pub(super) fn pull(args: &PullArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let publication = super::open(&args.table.url)?;
    let (manifest, selected_by) = match select(&publication, args.generation) {
        Err(error @ PublishError::NoGeneration { .. }) => {
            print_error(&error);
            return Ok(false);
        }
        selected => selected?,
    };
    let (cancel, display) = (Cancel::default(), TransferDisplay::new(false));
    let arrived = ArrivedSignal::watch(&cancel).context("signals cannot be handled")?;
    display.begin_file(&args.output);
    let pulled = publication.pull(
        &manifest,
        &args.output,
        args.bandwidth,
        cancel.with_progress(&mut |progress| display.show(progress)),
    );
    display.clear();
    match pulled {
        Err(PublishError::Canceled) => {
            print_error(&format_args!(
                "{}: canceled: repeat the command to continue the download",
                args.output.display()
            ));
            arrived.die();
            return Ok(false);
        }
        pulled => pulled?,
    }
    print(|stdout| match args.table.json {
        true => write_json_line(stdout, &manifest),
        false => writeln!(
            stdout,
            "{}: generation {} ({selected_by}), {}, {} in {:.2} s, digest {}",
            args.output.display(),
            manifest.number,
            counted(manifest.rows(), "row"),
            counted(manifest.bytes(), "byte"),
            started.elapsed().as_secs_f64(),
            manifest.digest(),
        ),
    })?;
    arrived.die();
    Ok(true)
}

/// Returns the manifest of the generation to read, and what selected it.
pub(super) fn select(
    publication: &Publication,
    requested: Option<u64>,
) -> Result<(Manifest, &'static str), PublishError> {
    if requested.is_some() {
        return Ok((publication.manifest(requested)?, "requested"));
    }
    match publication.pin()?.and_then(|(_, pin)| pin.generation_for(None)) {
        Some(pinned) => Ok((publication.manifest(Some(pinned))?, "pinned")),
        None => Ok((publication.manifest(None)?, "the newest one")),
    }
}
