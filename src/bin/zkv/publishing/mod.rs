//! The commands for published tables: a table that has a URL in an object store.
//!
//! In: baked files, URLs, and the reports of nodes. Out: objects in the store, and text or JSON. Programs without the
//! feature `object-store` recognize these commands, and say how to get a program that has the feature.

#[cfg(feature = "object-store")]
#[cfg(feature = "object-store")]
mod gc;
#[cfg(feature = "object-store")]
mod generations;
#[cfg(feature = "object-store")]
mod pins;
#[cfg(feature = "object-store")]
mod publish;
#[cfg(feature = "object-store")]
mod pull;
#[cfg(feature = "object-store")]
mod rollout;
#[cfg(feature = "object-store")]
mod store;

use crate::args::PublishingCommand;

#[cfg(feature = "object-store")]
pub(crate) fn run(command: &PublishingCommand) -> anyhow::Result<bool> {
    use crate::args::StoreCommand;

    match command {
        PublishingCommand::Publish(args) => publish::publish(args),
        PublishingCommand::Generations(args) => generations::generations(args),
        PublishingCommand::Pin(args) => pins::pin(args),
        PublishingCommand::Unpin(args) => pins::unpin(args),
        PublishingCommand::Pull(args) => pull::pull(args),
        PublishingCommand::Gc(args) => gc::gc(args),
        PublishingCommand::Store { command: StoreCommand::Check { table } } => store::check(table),
        PublishingCommand::Rollout(args) => rollout::rollout(args),
    }
}

/// Warns of statuses that could not be read.
#[cfg(feature = "object-store")]
pub(crate) fn warn_of_skipped(publication: &zero_kv::publish::Publication) {
    for problem in publication.take_skipped() {
        crate::output::print_error(&format_args!("warning: {problem}: the status is skipped"));
    }
}

/// Does nothing. Without the feature `object-store`, every URL is rejected as an argument, so no command is run.
#[cfg(not(feature = "object-store"))]
pub(crate) fn run(_: &PublishingCommand) -> anyhow::Result<bool> {
    Ok(false)
}
