//! The commands for published tables: a table that has a URL in an object store.
//!
//! In: baked files, URLs, and the reports of nodes. Out: objects in the store, and text or JSON.

mod generations;
mod maintenance;
mod rollout;
mod transfers;
mod watch;

use std::time::Duration;

use anyhow::bail;
use zero_kv::cli::values::repeated;
use zero_kv::publish::{Publication, PublishError};

use crate::args::{PublishingCommand, StoreCommand};
use crate::output::print_error;

pub(crate) fn run(command: &PublishingCommand) -> anyhow::Result<bool> {
    match command {
        PublishingCommand::Publish(args) => transfers::publish(args),
        PublishingCommand::Generations(args) => generations::generations(args),
        PublishingCommand::Watch(args) => watch::watch(args),
        PublishingCommand::Pin(args) => generations::pin(args),
        PublishingCommand::Unpin(args) => generations::unpin(args),
        PublishingCommand::Policy(args) => maintenance::policy(args),
        PublishingCommand::Pull(args) => transfers::pull(args),
        PublishingCommand::Copy(args) => transfers::copy(args),
        PublishingCommand::Gc(args) => maintenance::gc(args),
        PublishingCommand::Store { command: StoreCommand::Check { table, races } } => {
            maintenance::check_store(table, *races)
        }
        PublishingCommand::Rollout(args) => rollout::rollout(args),
    }
}

/// A node that has not reported for this long is silent. Nodes report at least once per minute.
const SILENT_AFTER: Duration = Duration::from_secs(180);

/// Opens a table. Tells the user about long pauses that a busy store asks for.
pub(crate) fn open(url: &str) -> Result<Publication, PublishError> {
    Publication::open(url).map(telling_pauses)
}

/// Opens a table for writing, and creates its folder. Tells the user about long pauses that a busy store asks for.
pub(crate) fn create(url: &str) -> Result<Publication, PublishError> {
    Publication::create(url).map(telling_pauses)
}

fn telling_pauses(publication: Publication) -> Publication {
    let url = publication.url().to_owned();
    publication.set_patience(None, move |pause| print_error(&format_args!("{url}: {pause}")));
    publication
}

/// Checks that a list of names on the command line has no name twice, before anything is read or written.
fn check_distinct(option: &str, names: &[String]) -> anyhow::Result<()> {
    match repeated(names) {
        Some(name) => bail!("{option} has {name} twice: name each one once"),
        None => Ok(()),
    }
}

pub(crate) fn print_warnings(publication: &Publication) {
    publication.take_warnings().iter().for_each(|warning| print_warning(warning));
}

fn print_warning(warning: &str) {
    print_error(&format_args!("warning: {warning}"));
}
