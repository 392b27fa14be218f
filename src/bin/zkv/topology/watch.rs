//! `zkv topology watch`: marks nodes that have stopped reporting, and promotes their replicas.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::thread;

use zero_kv::cluster::{Health, Topology, TopologyNode, without_failed};
use zero_kv::publish::{NodeStatus, Publication};

use crate::args::WatchArgs;
use crate::output::{print, print_error};

pub(super) fn watch(args: &WatchArgs) -> anyhow::Result<bool> {
    let publication = crate::publishing::open(&args.url)?;
    let mut last_problem = String::new();
    loop {
        match step(&publication, args) {
            Ok(Some(line)) => print(|stdout| writeln!(stdout, "{line}"))?,
            Ok(None) => last_problem.clear(),
            Err(error) if args.once => return Err(error),
            Err(error) => {
                let problem = error.to_string();
                if problem != last_problem {
                    print_error(&format_args!("{problem}: the topology stays"));
                }
                last_problem = problem;
            }
        }
        if args.once {
            return Ok(true);
        }
        thread::sleep(args.interval);
    }
}

/// Creates the next topology if nodes have failed or report again. Returns its description, or `None` if nothing
/// changed.
fn step(publication: &Publication, args: &WatchArgs) -> anyhow::Result<Option<String>> {
    let Some(topology) = publication.topology(None)? else { return Ok(None) };
    let failed = failed(&topology, &publication.statuses()?, args);
    crate::publishing::print_warnings(publication);
    if 2 * failed.len() > topology.nodes.len() {
        let (silent, nodes) = (failed.len(), topology.nodes.len());
        anyhow::bail!("{silent} of {nodes} nodes have stopped reporting: check the store, its clock, and the nodes");
    }
    let Some(next) = without_failed(&topology, &failed) else { return Ok(None) };
    // Fails if another process was first. The next step reads its topology.
    publication.create_topology(&next)?;
    let mut failed: Vec<String> = failed.into_iter().collect();
    failed.sort();
    let failed = if failed.is_empty() { "no node".to_owned() } else { failed.join(", ") };
    Ok(Some(format!("topology {}: failed: {failed}", next.number)))
}

/// Returns the nodes that have no fresh report. A node that has never reported counts as failed only if the topology
/// says it, because it may be starting.
fn failed(topology: &Topology, statuses: &[NodeStatus], args: &WatchArgs) -> HashSet<String> {
    let statuses: HashMap<&str, &NodeStatus> = statuses.iter().map(|status| (status.node.as_str(), status)).collect();
    let is_failed = |node: &TopologyNode| match statuses.get(node.id.as_str()) {
        Some(status) => status.is_silent_for(args.fail_after),
        None => node.health == Health::Fail,
    };
    topology.nodes.iter().filter(|node| is_failed(node)).map(|node| node.id.clone()).collect()
}
