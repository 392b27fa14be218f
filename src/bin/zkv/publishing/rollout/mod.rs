//! `zkv rollout`: makes all nodes serve a generation, step by step.
//!
//! In: the generation, and the reports of nodes. Out: pins and decisions in the store, and a live table of nodes.

mod nodes;
mod tally;
mod watch;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::bail;
use serde::Serialize;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Decision, Pin, Publication, PublishError};

use super::pins::{PINS_MAX, generation_of_others, is_activated};
use crate::args::RolloutArgs;
use crate::output::{print, print_error, write_json_line};
use nodes::{Node, State};
use tally::Tally;
use watch::Watch;

/// The rollout as JSON.
#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    generation: u64,
    result: Outcome,
    /// The last step that has begun, if the rollout proceeds by zones.
    step: Option<&'a str>,
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
    /// There is nothing to abort, because the newest pin does not select the generation.
    NotRolledOut,
    /// No node has reported a status.
    NoNodes,
    /// Another pin was created meanwhile, for example by an abort.
    Replaced,
}

pub(super) fn rollout(args: &RolloutArgs) -> anyhow::Result<bool> {
    super::check_distinct("--zones", &args.zones)?;
    let publication = super::open(&args.table.url)?;
    // It sets the deadline of all requests.
    let mut watch = Watch::new(&publication, args);
    publication.manifest(Some(args.generation))?;
    let outcome = match args {
        RolloutArgs { abort: true, .. } => abort(&publication, args, &mut watch),
        RolloutArgs { zones, .. } if !zones.is_empty() => zone_by_zone(&publication, args, &mut watch),
        RolloutArgs { barrier: true, .. } => with_barrier(&publication, args, &mut watch),
        _ => node_by_node(&publication, args, &mut watch),
    };
    watch.end();
    super::print_warnings(&publication);
    finish(&publication, args, outcome?, &watch)
}

/// Pins the first nodes, waits until they serve the generation, and pins all nodes.
fn node_by_node(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    if let Some(count) = args.canary_nodes {
        let canaries: Vec<String> = watch.live().map(|node| node.node.clone()).take(count as usize).collect();
        if canaries.is_empty() {
            return Ok(Outcome::NoNodes);
        }
        let mut pin = Pin::new(Some(args.generation));
        (pin.nodes, pin.others) = (canaries.clone(), others(publication, watch)?);
        watch.pin(&pin)?;
        let outcome = watch.wait_until_served(|node| canaries.contains(&node.node), false)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    pin_all(args, watch)
}

/// Pins all nodes, and waits until they serve the generation if that is requested.
fn pin_all(args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.pin(&Pin::new(Some(args.generation)))?;
    match args.wait {
        true => watch.wait_until_served(|_| true, true),
        false => Ok(Outcome::Done),
    }
}

/// Returns the generation of the nodes that do not serve the new one yet: what the newest pin selects for them. Without such
/// a pin, all nodes would serve the newest generation at once, so it is what most nodes serve.
fn others(publication: &Publication, watch: &Watch<'_>) -> anyhow::Result<Option<u64>> {
    let selected = generation_of_others(publication, || Ok(watch.most_served()))?;
    Ok(selected.or_else(|| watch.most_served()))
}

/// Makes all nodes prepare the generation, waits until enough of them are ready, and lets them serve it.
fn with_barrier(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    if watch.live().next().is_none() {
        return Ok(Outcome::NoNodes);
    }
    let pin = hold(args, watch)?;
    let outcome = wait_until_prepared(publication, pin, args, watch)?;
    if outcome != Outcome::Done {
        return Ok(outcome);
    }
    if publication.decide(pin, Decision::Activate)? == Decision::Abort {
        return Ok(Outcome::Aborted);
    }
    watch.report(&format!("generation {} is activated", args.generation));
    watch.wait_until_served(|_| true, true)
}

/// Makes all nodes prepare the generation and wait for a decision. Returns the number of the pin that the decision is about.
fn hold(args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<u64> {
    let mut pin = Pin::new(Some(args.generation));
    pin.hold = true;
    watch.pin(&pin)
}

/// Waits until enough nodes have prepared the generation.
fn wait_until_prepared(
    publication: &Publication,
    pin: u64,
    args: &RolloutArgs,
    watch: &mut Watch<'_>,
) -> anyhow::Result<Outcome> {
    watch.tell_missing(args.ready);
    let outcome = watch.wait(|_| true, |tally: Tally| tally.enough_are_ready(args.ready))?;
    // An abort also creates a pin.
    let is_aborted = || Ok::<_, anyhow::Error>(publication.decision(pin)? == Some(Decision::Abort));
    Ok(if outcome == Outcome::Replaced && is_aborted()? { Outcome::Aborted } else { outcome })
}

/// Prints the result. Returns whether the exit status is 0.
fn finish(publication: &Publication, args: &RolloutArgs, outcome: Outcome, watch: &Watch<'_>) -> anyhow::Result<bool> {
    let (url, generation, nodes) = (publication.url(), args.generation, watch.nodes());
    if args.table.json {
        let step = watch.current_step();
        print(|stdout| write_json_line(stdout, &Report { url, generation, result: outcome, step, nodes }))?;
    } else {
        print(|stdout| write!(stdout, "{}", nodes::table(nodes)))?;
    }
    for node in nodes.iter().filter(|node| node.state == State::Silent) {
        print_error(&format_args!("warning: node {} has not reported for {} s", node.node, node.age_s));
    }
    match outcome {
        Outcome::Done if args.tolerate.is_some() => {
            for node in nodes.iter().filter(|node| node.state != State::Serving) {
                print_error(&format_args!("warning: tolerated: node {}", node.line()));
            }
        }
        Outcome::Failed | Outcome::TimedOut => {
            for node in nodes.iter().filter(|node| matches!(node.state, State::Failed | State::Unreadable)) {
                print_error(&format_args!("node {}: {}", node.node, node.error));
            }
        }
        _ => {}
    }
    if let Some(problem) = watch.problem() {
        print_error(&format_args!("the reports of nodes could not be read at the end: {problem}"));
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
        Outcome::Aborted => "the rollout was aborted: repeat the command, or use zkv pin".to_owned(),
        Outcome::NotRolledOut => {
            "is not rolled out, because the newest pin does not select it: use zkv pin to select another one".to_owned()
        }
        Outcome::Activated => "nodes serve it already: use zkv pin to go back to another generation".to_owned(),
        Outcome::NoNodes => "no node has reported within 3 minutes: start nodes, or use zkv pin".to_owned(),
        Outcome::Replaced => {
            "another pin was created during the rollout, which ends it: see zkv generations".to_owned()
        }
    };
    let step = watch.current_step().map(|step| format!("{step}: ")).unwrap_or_default();
    print_error(&format_args!("{url}: generation {generation}: {step}{problem}"));
    Ok(false)
}

/// Decides that nodes do not serve the generation, and pins them to what they should have served before.
fn abort(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    let Some((number, pin)) = publication.pin()?.filter(|(_, pin)| pin.generation == Some(args.generation)) else {
        return Ok(Outcome::NotRolledOut);
    };
    let restored = preceding(publication, args.generation, number, watch)?;
    if pin.hold && publication.decide(number, Decision::Abort)? == Decision::Activate {
        return Ok(Outcome::Activated);
    }
    watch.report(&format!("the rollout of generation {} is aborted", args.generation));
    if let Some(pin) = restored {
        watch.pin(&pin)?;
    }
    Ok(Outcome::Aborted)
}

/// Returns a pin that selects what the newest pin before the rollout selected. `number` is the number of the newest pin, which
/// belongs to the rollout. Returns `None` if the table has no other generation.
fn preceding(
    publication: &Publication,
    generation: u64,
    mut number: u64,
    watch: &Watch<'_>,
) -> anyhow::Result<Option<Pin>> {
    let (mut restored, oldest) = (Pin::new(None), number.saturating_sub(PINS_MAX).max(1));
    while number > oldest {
        number -= 1;
        let before = match publication.pin_with_number(number) {
            // Nodes pass over pins that cannot be read, too.
            Err(PublishError::Document { .. }) => None,
            pin => pin?.filter(|pin| pin.generation != Some(generation)),
        };
        // A pin that was not activated has not changed what nodes serve.
        let is_served = |pin: &Pin| Ok::<_, PublishError>(!pin.hold || is_activated(publication, number)?);
        if let Some(pin) = before
            && is_served(&pin)?
        {
            (restored.generation, restored.nodes, restored.others) = (pin.generation, pin.nodes, pin.others);
            break;
        }
    }
    if restored.generation.is_none() && publication.newest()? == generation {
        // Without a pin, nodes would serve the generation whose rollout is aborted, because it is the newest one.
        let parent = publication.manifest(Some(generation))?.parent;
        restored = Pin::new(watch.most_served().or(Some(parent).filter(|parent| *parent > 0)));
        if restored.generation.is_none() {
            return Ok(None);
        }
    }
    // Checked before anything is decided.
    for number in [restored.generation, restored.others].into_iter().flatten() {
        publication.manifest(Some(number))?;
    }
    Ok(Some(restored))
}

fn zone_by_zone(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    if watch.live().next().is_none() {
        return Ok(Outcome::NoNodes);
    }
    check(&args.zones, watch.nodes())?;
    // Read before the first pin, which selects the generation.
    let others = others(publication, watch)?;
    if args.barrier {
        let pin = hold(args, watch)?;
        let outcome = wait_until_prepared(publication, pin, args, watch)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    for (index, zone) in args.zones.iter().enumerate() {
        watch.step(&format!("zone {zone}"));
        let named = &args.zones[..=index];
        let is_named = |node: &&Node| named.contains(&node.zone);
        let nodes: Vec<String> = watch.nodes().iter().filter(is_named).map(|node| node.node.clone()).collect();
        let mut pin = Pin::new(Some(args.generation));
        (pin.nodes, pin.others) = (nodes.clone(), others);
        watch.pin(&pin)?;
        let outcome = watch.wait_until_served(|node| nodes.contains(&node.node), false)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    watch.step("all nodes");
    pin_all(args, watch)
}

/// Checks that the named zones are those of the nodes, because a rollout ends with a pin of all nodes.
fn check(zones: &[String], nodes: &[Node]) -> anyhow::Result<()> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.is_live()) {
        *known.entry(&node.zone).or_default() += 1;
    }
    let without = known.remove("").unwrap_or(0);
    let mut list: Vec<String> =
        known.iter().map(|(zone, count)| format!("{zone} ({})", counted(count, "node"))).collect();
    if without > 0 {
        list.push(format!("{} without a zone", counted(without, "node")));
    }
    let list = list.join(", ");
    for zone in zones {
        if !known.contains_key(zone.as_str()) {
            bail!(
                "--zones: no node of zone {:?} has reported within 3 minutes: expected zones of {}",
                zone,
                Printable(list)
            );
        }
    }
    if let Some(zone) = known.keys().find(|zone| zones.iter().all(|named| named != *zone)) {
        bail!(
            "--zones: does not name zone {zone:?}, which has nodes: name all zones, because a rollout ends with all nodes: {}",
            Printable(list)
        );
    }
    Ok(())
}
