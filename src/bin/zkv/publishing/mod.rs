//! The commands for published tables: a table that has a URL in an object store.
//!
//! In: baked files, URLs, and the reports of nodes. Out: objects in the store, and text or JSON. Programs without the
//! feature `object-store` recognize these commands, and say how to get a program that has the feature.

#[cfg(feature = "object-store")]
mod copy;
#[cfg(feature = "object-store")]
mod gc;
#[cfg(feature = "object-store")]
mod generations;
#[cfg(feature = "object-store")]
mod pins;
#[cfg(feature = "object-store")]
mod policy;
#[cfg(feature = "object-store")]
mod publish;
#[cfg(feature = "object-store")]
mod pull;
#[cfg(feature = "object-store")]
mod rollout;
#[cfg(feature = "object-store")]
mod store;
#[cfg(feature = "object-store")]
mod watch;

#[cfg(feature = "object-store")]
use zero_kv::publish::{Publication, PublishError};

use crate::args::PublishingCommand;

#[cfg(feature = "object-store")]
pub(crate) fn run(command: &PublishingCommand) -> anyhow::Result<bool> {
    use crate::args::StoreCommand;

    match command {
        PublishingCommand::Publish(args) => publish::publish(args),
        PublishingCommand::Generations(args) => generations::generations(args),
        PublishingCommand::Watch(args) => watch::watch(args),
        PublishingCommand::Pin(args) => pins::pin(args),
        PublishingCommand::Unpin(args) => pins::unpin(args),
        PublishingCommand::Policy(args) => policy::policy(args),
        PublishingCommand::Pull(args) => pull::pull(args),
        PublishingCommand::Copy(args) => copy::copy(args),
        PublishingCommand::Gc(args) => gc::gc(args),
        PublishingCommand::Store { command: StoreCommand::Check { table, races } } => store::check(table, *races),
        PublishingCommand::Rollout(args) => rollout::rollout(args),
    }
}

/// A node that has not reported for this long is silent. Nodes report at least once per minute.
#[cfg(feature = "object-store")]
const SILENT_AFTER: std::time::Duration = std::time::Duration::from_secs(180);

/// Opens a table. Tells the user about long pauses that a busy store asks for.
#[cfg(feature = "object-store")]
pub(crate) fn open(url: &str) -> Result<Publication, PublishError> {
    Publication::open(url).map(telling_pauses)
}

/// Opens a table for writing, and creates its folder. Tells the user about long pauses that a busy store asks for.
#[cfg(feature = "object-store")]
pub(crate) fn create(url: &str) -> Result<Publication, PublishError> {
    Publication::create(url).map(telling_pauses)
}

#[cfg(feature = "object-store")]
fn telling_pauses(publication: Publication) -> Publication {
    let url = publication.url().to_owned();
    publication.set_patience(None, move |pause| crate::output::print_error(&format_args!("{url}: {pause}")));
    publication
}

/// Checks that a list of names on the command line has no name twice, before anything is read or written.
#[cfg(feature = "object-store")]
fn check_distinct(option: &str, names: &[String]) -> anyhow::Result<()> {
    match zero_kv::cli::names::repeated(names) {
        Some(name) => anyhow::bail!("{option} has {name} twice: name each one once"),
        None => Ok(()),
    }
}

/// Warns of what was left out or noticed.
#[cfg(feature = "object-store")]
pub(crate) fn print_warnings(publication: &Publication) {
    publication.take_warnings().iter().for_each(|warning| print_warning(warning));
}

#[cfg(feature = "object-store")]
fn print_warning(warning: &str) {
    crate::output::print_error(&format_args!("warning: {warning}"));
}

/// Does nothing. Without the feature `object-store`, every URL is rejected as an argument, so no command is run.
#[cfg(not(feature = "object-store"))]
pub(crate) fn run(_: &PublishingCommand) -> anyhow::Result<bool> {
    Ok(false)
}
