//! `zkv rollout`: makes all nodes serve a generation, step by step.
//!
//! In: the generation, and the reports of nodes. Out: pins and decisions in the store, and a live table of nodes.

mod abort;
mod nodes;
mod watch;

use std::io::Write;

use serde::Serialize;
use zero_kv::publish::{Decision, Publication};

use super::pins::{describe, pin_of};
use crate::args::RolloutArgs;
use crate::output::{print, print_error, write_json_line};
use nodes::{Node, State};
use watch::Watch;

/// The rollout as JSON.
#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    generation: u64,
    result: Outcome,
    nodes: &'a [Node],
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The nodes serve the generation, or are pinned to it if the command does not wait.
    Done,
    /// Nodes failed.
    Failed,
    /// The time is over.
    TimedOut,
    /// The rollout was aborted, by this command or by another one.
    Aborted,
    /// The rollout cannot be aborted, because nodes already serve the generation.
    Activated,
    /// No node has reported a status.
    NoNodes,
}

pub(super) fn rollout(args: &RolloutArgs) -> anyhow::Result<bool> {
    let publication = Publication::open(&args.table.url)?;
    publication.manifest(Some(args.generation))?;
    let mut watch = Watch::new(&publication, args);
    let outcome = match (args.abort, args.barrier) {
        (true, _) => abort::abort(&publication, args, &mut watch)?,
        (false, true) => with_barrier(&publication, args, &mut watch)?,
        (false, false) => node_by_node(&publication, args, &mut watch)?,
    };
    watch.end();
    super::print_warnings(&publication);
    finish(&publication, args, outcome, watch.nodes())
}

/// Pins the first nodes, waits until they serve the generation, and pins all nodes.
fn node_by_node(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.read()?;
    if let Some(count) = args.canary_nodes {
        let canaries: Vec<String> = watch.live().map(|node| node.node.clone()).take(count as usize).collect();
        if canaries.is_empty() {
            return Ok(Outcome::NoNodes);
        }
        let mut pin = pin_of(publication, args.generation, canaries.clone())?;
        if pin.others.is_none() {
            // Without a pin, all nodes would serve the newest generation at once.
            pin.others = watch.most_served();
        }
        watch.report(&describe(publication.create_pin(&pin)?, &pin));
        let is_canary = |node: &Node| canaries.contains(&node.node);
        let outcome = watch.wait(|nodes| all_serve(nodes, is_canary))?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    let pin = pin_of(publication, args.generation, Vec::new())?;
    watch.report(&describe(publication.create_pin(&pin)?, &pin));
    if !args.wait {
        return Ok(Outcome::Done);
    }
    watch.wait(|nodes| all_serve(nodes, |_| true))
}

/// Makes all nodes prepare the generation, waits until enough of them are ready, and lets them serve it.
fn with_barrier(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    if publication.decision(args.generation)? == Some(Decision::Abort) {
        return Ok(Outcome::Aborted);
    }
    watch.read()?;
    if watch.live().next().is_none() {
        return Ok(Outcome::NoNodes);
    }
    let mut pin = pin_of(publication, args.generation, Vec::new())?;
    pin.hold = true;
    watch.report(&describe(publication.create_pin(&pin)?, &pin));
    let outcome = watch.wait(|nodes| enough_are_ready(nodes, args))?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    if publication.decide(args.generation, Decision::Activate)? == Decision::Abort {
        return Ok(Outcome::Aborted);
    }
    watch.report(&format!("generation {} is activated", args.generation));
    watch.wait(|nodes| all_serve(nodes, |_| true))
}

/// Returns the outcome if the awaited nodes serve the generation or have failed, otherwise `None`.
fn all_serve(nodes: &[Node], is_awaited: impl Fn(&Node) -> bool) -> Option<Outcome> {
    // Only nodes that confirm it count: without any, the generation is served by nobody.
    let mut outcome = Outcome::NoNodes;
    for node in nodes.iter().filter(|node| is_awaited(node)) {
        match node.state {
            State::Serving if outcome == Outcome::NoNodes => outcome = Outcome::Done,
            State::Serving => {}
            State::Failed => outcome = Outcome::Failed,
            State::Silent if !node.is_awaited => {}
            State::Waiting | State::Prepared | State::Silent => return None,
        }
    }
    Some(outcome)
}

/// Returns the outcome if enough nodes are ready, or can no longer become ready, otherwise `None`.
fn enough_are_ready(nodes: &[Node], args: &RolloutArgs) -> Option<Outcome> {
    let count = |states: &[State]| nodes.iter().filter(|node| states.contains(&node.state)).count();
    let (ready, failed) = (count(&[State::Prepared, State::Serving]), count(&[State::Failed]));
    let live = nodes.iter().filter(|node| node.is_awaited).count();
    let needed = args.ready.of(live);
    if ready >= needed { Some(Outcome::Done) } else { (live - failed < needed).then_some(Outcome::Failed) }
}

/// Prints the result. Returns whether the exit status is 0.
fn finish(publication: &Publication, args: &RolloutArgs, outcome: Outcome, nodes: &[Node]) -> anyhow::Result<bool> {
    let (url, generation) = (publication.url(), args.generation);
    if args.table.json {
        print(|stdout| write_json_line(stdout, &Report { url, generation, result: outcome, nodes }))?;
    } else {
        print(|stdout| write!(stdout, "{}", nodes::table(nodes)))?;
    }
    let is_silent = |node: &&Node| node.state == State::Silent;
    for node in nodes.iter().filter(is_silent) {
        print_error(&format_args!("warning: node {} has not reported for {} s", node.node, node.age_s));
    }
    let failed = nodes.iter().filter(|node| node.state == State::Failed);
    if matches!(outcome, Outcome::Failed | Outcome::TimedOut) {
        failed.for_each(|node| print_error(&format_args!("node {}: {}", node.node, node.error)));
    }
    let problem = match outcome {
        Outcome::Done => return Ok(true),
        Outcome::Aborted if args.abort => return Ok(true),
        Outcome::Failed => {
            "nodes failed: correct the cause and repeat the command, or go back with zkv rollout --abort".to_owned()
        }
        Outcome::TimedOut => format!(
            "not done within {}: repeat the command to wait longer (--timeout), or go back with zkv rollout --abort",
            humantime::format_duration(args.timeout)
        ),
        Outcome::Aborted => "the rollout was aborted: publish again, or use zkv pin".to_owned(),
        Outcome::Activated => "nodes serve it already: use zkv pin to go back to another generation".to_owned(),
        Outcome::NoNodes => "no node has reported within 3 minutes: start nodes, or use zkv pin".to_owned(),
    };
    print_error(&format_args!("{url}: generation {generation}: {problem}"));
    Ok(false)
}
