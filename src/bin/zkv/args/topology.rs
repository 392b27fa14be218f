//! The command-line options of `zkv topology`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use zero_kv::cli::generation_args::parse_url;
use zero_kv::cluster::{Health, NodeAddress, Role, TopologyNode};

use super::parse_time;

#[derive(Subcommand)]
pub(crate) enum TopologyCommand {
    /// Print the nodes of a cluster and their slots
    ///
    /// Exit status: 0 if there is a topology, 1 if the table has none, 2 after an error.
    Show {
        /// Read the topology from this file, or the newest one from the table at this URL
        source: Source,
        /// Print the document, which `zkv topology apply` accepts
        #[arg(long)]
        json: bool,
    },
    /// Check that a topology file is valid
    ///
    /// Exit status: 0 if it is valid, 2 with the reason otherwise.
    Check {
        /// Check this file
        file: PathBuf,
    },
    /// Print the next topology for some nodes, which moves as few slots as possible
    ///
    /// Each primary gets an equal number of slots. The document is written to standard output, and a summary to
    /// standard error.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Plan(PlanArgs),
    /// Make a topology the newest one
    ///
    /// A store accepts the topology only if its number is one more than the highest number in the store. The nodes put
    /// it into effect when all primaries have their rows. A file is replaced by rename if the number is higher.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Apply {
        /// Apply the topology in this file; `-` reads standard input
        file: PathBuf,
        /// Apply the topology to the table at this URL, or to the file that nodes read
        #[arg(long, value_name = "URL|FILE")]
        to: Source,
    },
    /// Mark nodes that have stopped reporting as failed, and promote their replicas, until interrupted
    ///
    /// Run one process per cluster; several processes do not harm, because each topology is created only once. If more
    /// than half of the nodes have stopped reporting, nothing is changed.
    ///
    /// Exit status: 0 with --once, 2 after an error.
    Watch(WatchArgs),
}

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Plan for these nodes, such as a=10.0.0.1:6380,b=10.0.0.2:6380@zone-2
    #[arg(long, required = true, value_name = "ID=HOST:PORT[@ZONE],…", value_delimiter = ',')]
    pub(crate) nodes: Vec<PlannedNode>,
    /// Give each primary this many replicas
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(crate) replicas: usize,
    /// Move slots from the topology in this file, or from the newest one of the table at this URL
    #[arg(long, value_name = "URL|FILE")]
    pub(crate) from: Option<Source>,
}

#[derive(clap::Args)]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads them"))]
pub(crate) struct WatchArgs {
    /// Watch the cluster of the table at this URL
    #[arg(value_parser = parse_url)]
    pub(crate) url: String,
    /// Mark a node as failed if its last report is older than this, such as 30s or 5min, and two of its reports are
    /// missing. A node reports after three polls, and at least every 60 s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) fail_after: Duration,
    /// Read the reports of the nodes at this interval
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Read the reports once, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// The place of a topology.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads URLs"))]
pub(crate) enum Source {
    File(PathBuf),
    Url(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        match text.contains("://") {
            true => Ok(Source::Url(parse_url(text)?.to_owned())),
            false => Ok(Source::File(text.into())),
        }
    }
}

/// A node of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedNode(pub(crate) TopologyNode);

impl FromStr for PlannedNode {
    type Err = String;

    fn from_str(text: &str) -> Result<PlannedNode, String> {
        let expected = || format!("found {text:?}, expected ID=HOST:PORT or ID=HOST:PORT@ZONE");
        let (id, rest) = text.split_once('=').ok_or_else(expected)?;
        let (address, zone) = rest.split_once('@').map_or((rest, None), |(address, zone)| (address, Some(zone)));
        let NodeAddress { host, port } = address.parse()?;
        Ok(PlannedNode(TopologyNode {
            id: id.to_owned(),
            host,
            port,
            role: Role::Primary,
            primary: None,
            slots: Vec::new(),
            zone: zone.map(str::to_owned),
            health: Health::Online,
        }))
    }
}
