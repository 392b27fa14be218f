//! Publishes the baked files, if `--to` names a table.

use zero_kv::bake::Cancel;

use crate::args::{Args, OutputArgs};
use crate::report::Baked;

#[cfg(feature = "object-store")]
pub(crate) use with_store::Publisher;

#[cfg(feature = "object-store")]
mod with_store {
    use std::io::{self, Write};
    use std::path::Path;
    use std::time::Instant;

    use anyhow::{Context, anyhow};
    use zero_kv::cli::publishing::NewGeneration;
    use zero_kv::cli::publishing::TransferDisplay;
    use zero_kv::publish::{Change, PublishError, ShardFile};

    use super::{Args, Baked, Cancel, OutputArgs};
    use crate::STDOUT;

    /// The table that the file is published to.
    pub(crate) struct Publisher(Option<NewGeneration>);

    impl Publisher {
        /// Checks the table and the canaries, so that mistakes are reported before the bake.
        pub(crate) fn prepare(args: &Args) -> anyhow::Result<Publisher> {
            let (rules, args) = (args.replace_rules(), args.publish());
            let options = [
                (rules.allow_empty, Change::Empty),
                (args.allow_shrink, Change::Shrink),
                (rules.allow_key_type_change, Change::KeyType),
                (args.allow_schema_change, Change::Schema),
            ];
            let allowed = options.into_iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, change)| change).collect();
            let shrink_max_percent = rules.shrink_max_percent;
            let prepare = |url: &String| {
                NewGeneration::prepare(url, &args.generation, allowed, shrink_max_percent, super::print_warning)
            };
            Ok(Publisher(args.to.as_ref().map(prepare).transpose()?))
        }

        pub(crate) fn publish(&self, output: &OutputArgs, baked: &Baked, cancel: &Cancel) -> anyhow::Result<()> {
            let Some(generation) = &self.0 else { return Ok(()) };
            let (started, display) = (Instant::now(), TransferDisplay::new(output.quiet));
            let files = match baked {
                Baked::Table(_) => vec![ShardFile::whole(&output.output)],
                Baked::Shards(shards) => {
                    shards.iter().map(|shard| ShardFile { path: shard.path.clone(), slots: shard.slots }).collect()
                }
            };
            let published = generation.publish(&files, cancel, &display);
            let published = published.map_err(|error| match error {
                PublishError::Canceled => {
                    anyhow!("canceled: readers see no new generation: publish the file with zkv publish")
                }
                error => NewGeneration::explain(error),
            });
            let manifest =
                published.with_context(|| format!("{} is in place, but not published", output.output.display()))?;
            if !output.quiet {
                let line =
                    zero_kv::printable::Printable(generation.summary(&manifest, started.elapsed().as_secs_f64()));
                // With `--report -`, only the report goes to standard output.
                let _ = match output.report.as_deref() == Some(Path::new(STDOUT)) {
                    true => writeln!(io::stderr(), "{line}"),
                    false => writeln!(io::stdout(), "{line}"),
                };
            }
            Ok(())
        }
    }
}

#[cfg(feature = "object-store")]
fn print_warning(warning: &str) {
    eprintln!("baker: warning: {}", zero_kv::printable::Printable(warning));
}

/// Publishes nothing. Without the feature `object-store`, every URL is rejected as an argument.
#[cfg(not(feature = "object-store"))]
pub(crate) struct Publisher;

#[cfg(not(feature = "object-store"))]
impl Publisher {
    pub(crate) fn prepare(_: &Args) -> anyhow::Result<Publisher> {
        Ok(Publisher)
    }

    pub(crate) fn publish(&self, _: &OutputArgs, _: &Baked, _: &Cancel) -> anyhow::Result<()> {
        Ok(())
    }
}
