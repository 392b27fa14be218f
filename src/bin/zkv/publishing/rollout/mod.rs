//! `zkv rollout`: makes all nodes serve a generation, step by step.
//!
//! In: the generation, and the reports of nodes. Out: pins and decisions in the store, and a live table of nodes.

mod watch;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::bail;
use serde::Serialize;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Decision, NodeStatus, Pin, Publication, PublishError, UnreadableStatus};

use super::SILENT_AFTER;
use super::generations::{PINS_MAX, generation_of_others, is_activated};
use crate::args::{Ready, RolloutArgs};
use crate::output::{print, print_error, write_json_line};
use crate::text_table::{Align, lines};
use watch::Watch;

#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    generation: u64,
    result: Outcome,
    /// The last step that has begun, if the rollout proceeds by zones.
    step: Option<&'a str>,
    nodes: &'a [Node],
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The nodes serve the generation, or are pinned to it if the command does not wait.
    Done,
    /// Nodes failed.
    Failed,
    /// The time-out has expired.
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

/// Returns the generation for nodes whose turn has not come: the one that the newest pin selects for them. Without a
/// pin, all nodes would serve the newest generation at once, so they get the generation that most nodes serve.
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

/// Makes all nodes prepare the generation and wait for a decision. Returns the number of the pin that the decision is
/// about.
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
        print(|stdout| write!(stdout, "{}", table(nodes)))?;
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
            "nodes failed: correct the cause, and repeat the command, or go back with zkv rollout --abort".to_owned()
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

/// Cancels the generation, and restores the pin before the rollout.
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

/// Returns a pin that selects what the newest pin before the rollout selected. `number` is the number of the newest
/// pin, which belongs to the rollout. Returns `None` if the table has no other generation.
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
        // Nodes ignore pins that were not activated.
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

/// Checks that the option names exactly the zones of the nodes, because a rollout ends with a pin of all nodes.
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
            "--zones: does not name zone {zone:?}, which has nodes: name all zones, because a rollout ends with all \
             nodes: {}",
            Printable(list)
        );
    }
    Ok(())
}

/// The number of awaited nodes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    serving: usize,
    prepared: usize,
    waiting: usize,
    failed: usize,
    /// Silent and unreadable nodes, which may report again.
    absent: usize,
    /// The number of nodes that may be lost.
    tolerated: usize,
}

impl Tally {
    /// Counts nodes. With `tolerate`, nodes that are not awaited count as absent.
    fn new(nodes: &[Node], is_counted: impl Fn(&Node) -> bool, tolerate: Option<usize>) -> Tally {
        let mut tally = Tally { tolerated: tolerate.unwrap_or(0), ..Tally::default() };
        for node in nodes.iter().filter(|node| is_counted(node) && (node.is_awaited || tolerate.is_some())) {
            *match node.state {
                State::Serving => &mut tally.serving,
                State::Prepared => &mut tally.prepared,
                State::Waiting => &mut tally.waiting,
                State::Failed => &mut tally.failed,
                State::Silent | State::Unreadable => &mut tally.absent,
            } += 1;
        }
        tally
    }

    /// Returns the outcome if all nodes serve the generation, except those that may be lost, or if they cannot.
    fn all_serve(self) -> Option<Outcome> {
        let lost = self.failed + self.absent;
        match self {
            Tally { waiting: 0, prepared: 0, .. } if lost > self.tolerated && self.absent > 0 => None,
            Tally { waiting: 0, prepared: 0, .. } if lost > self.tolerated => Some(Outcome::Failed),
            // Only nodes that confirm it count: without any, the generation is served by nobody.
            Tally { waiting: 0, prepared: 0, serving: 0, failed: 0, .. } => Some(Outcome::NoNodes),
            Tally { waiting: 0, prepared: 0, serving: 0, .. } => Some(Outcome::Failed),
            Tally { waiting: 0, prepared: 0, .. } => Some(Outcome::Done),
            _ => None,
        }
    }

    /// Returns whether enough nodes serve the generation when the time-out expires.
    fn is_enough_at_end(self) -> bool {
        self.serving > 0 && self.waiting + self.prepared + self.failed + self.absent <= self.tolerated
    }

    /// Returns the outcome if enough nodes are ready to serve the generation, or can no longer become ready.
    fn enough_are_ready(self, ready: Ready) -> Option<Outcome> {
        let (are_ready, lost) = (self.prepared + self.serving, self.failed + self.absent);
        let nodes = are_ready + self.waiting + lost;
        let needed = ready.of(nodes);
        let is_rest_lost = self.waiting == 0 && are_ready > 0 && lost <= self.tolerated && nodes >= needed;
        if are_ready >= needed || is_rest_lost {
            return Some(Outcome::Done);
        }
        (nodes - self.failed < needed && self.failed > self.tolerated).then_some(Outcome::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    node: String,
    /// The zone of the node, or empty.
    zone: String,
    state: State,
    /// The generation that the node serves, or 0.
    serving: u64,
    /// Why the node does not serve the generation that it should, or empty.
    error: String,
    /// The number of seconds since the node's last report.
    age_s: u64,
    /// Whether the node has reported during the rollout. Such a node is waited for, also if it becomes silent.
    #[serde(skip)]
    is_awaited: bool,
}

/// The state of a node with regard to the generation that is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// The node has not prepared the generation yet.
    Waiting,
    Prepared,
    Serving,
    Failed,
    /// The node has not reported for [`SILENT_AFTER`].
    Silent,
    /// The report of the node cannot be read.
    Unreadable,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Prepared => "prepared",
            State::Serving => "serving",
            State::Failed => "failed",
            State::Silent => "silent",
            State::Unreadable => "unreadable",
        }
    }
}

impl Node {
    /// `pin` is the number of the newest pin of the rollout. The report of a node that has not read it may be from
    /// before the rollout.
    fn new(status: NodeStatus, generation: u64, pin: Option<u64>) -> Node {
        let state = if status.age_s > SILENT_AFTER.as_secs() {
            State::Silent
        } else if pin.is_some_and(|pin| status.pin < pin) {
            State::Waiting
        } else if status.serving == generation {
            State::Serving
        } else if status.failed == generation {
            State::Failed
        } else if status.prepared == generation {
            State::Prepared
        } else {
            State::Waiting
        };
        let NodeStatus { node, zone, serving, error, age_s, .. } = status;
        Node { is_awaited: state != State::Silent, node, zone, state, serving, error, age_s }
    }

    /// Returns a node whose report cannot be read. `before` is the node as its last readable report describes it.
    fn unreadable(status: UnreadableStatus, before: Option<&Node>) -> Option<Node> {
        let UnreadableStatus { node, problem, is_temporary, .. } = status;
        let (zone, serving) = before.map_or((String::new(), 0), |before| (before.zone.clone(), before.serving));
        let (state, error) = (State::Unreadable, problem);
        Some(Node { node: node?, zone, state, serving, error, age_s: 0, is_awaited: is_temporary })
    }

    fn is_live(&self) -> bool {
        !matches!(self.state, State::Silent | State::Unreadable)
    }

    /// Returns whether two reports describe the same state of the node.
    fn looks_like(&self, other: &Node) -> bool {
        Node { age_s: other.age_s, ..self.clone() }.line() == other.line()
    }

    fn line(&self) -> String {
        let Node { node, state, serving, error, .. } = self;
        let node = Printable(node);
        match state {
            State::Silent => format!("{node}: silent for {} s, serves {serving}", self.age_s),
            State::Unreadable => format!("{node}: unreadable: {}", Printable(error)),
            State::Failed => format!("{node}: failed, serves {serving}: {}", Printable(error)),
            state => format!("{node}: {}, serves {serving}", state.name()),
        }
    }
}

/// Returns a table of the nodes. Without zones, it has no column for them.
fn table(nodes: &[Node]) -> String {
    let mut rows = vec![["node", "zone", "state", "serves", "error"].map(str::to_owned)];
    let row = |node: &Node| {
        let Node { node, zone, state, serving, error, .. } = node.clone();
        [node, zone, state.name().to_owned(), serving.to_string(), error]
    };
    rows.extend(nodes.iter().map(row));
    if nodes.iter().all(|node| node.zone.is_empty()) {
        let without_zone = |[node, _, state, serving, error]: [String; 5]| [node, state, serving, error];
        let rows: Vec<_> = rows.into_iter().map(without_zone).collect();
        return lines([Align::Left, Align::Left, Align::Right, Align::Left], &rows);
    }
    lines([Align::Left, Align::Left, Align::Left, Align::Right, Align::Left], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome of nodes with these states, in capitals if they were silent before the rollout.
    fn outcome(states: &str, tolerate: Option<usize>) -> Option<Outcome> {
        let tally = tally(states, tolerate);
        tally.all_serve().or_else(|| tally.is_enough_at_end().then_some(Outcome::TimedOut))
    }

    fn tally(states: &str, tolerate: Option<usize>) -> Tally {
        let node = |letter: char| Node {
            state: match letter.to_ascii_lowercase() {
                's' => State::Serving,
                'p' => State::Prepared,
                'w' => State::Waiting,
                'f' => State::Failed,
                _ => State::Silent,
            },
            node: String::new(),
            zone: String::new(),
            serving: 0,
            error: String::new(),
            age_s: 0,
            is_awaited: letter.is_lowercase(),
        };
        let nodes: Vec<Node> = states.chars().map(node).collect();
        Tally::new(&nodes, |_| true, tolerate)
    }

    #[test]
    fn nodes_are_lost_only_if_that_is_tolerated() {
        use Outcome::{Done, Failed, NoNodes, TimedOut};
        for (states, strict, one) in [
            ("", Some(NoNodes), Some(NoNodes)),
            ("ss", Some(Done), Some(Done)),
            ("sX", Some(Done), Some(Done)),
            ("sXX", Some(Done), None),
            ("X", Some(NoNodes), Some(NoNodes)),
            ("sf", Some(Failed), Some(Done)),
            ("sff", Some(Failed), Some(Failed)),
            ("f", Some(Failed), Some(Failed)),
            ("sx", None, Some(Done)),
            ("sfx", None, None),
            // Unconfirmed nodes count only when the time-out expires.
            ("sw", None, Some(TimedOut)),
            ("sp", None, Some(TimedOut)),
            ("sww", None, None),
            ("swf", None, None),
            ("w", None, None),
        ] {
            assert_eq!((outcome(states, None), outcome(states, Some(1))), (strict, one), "{states}");
        }
        assert_eq!(outcome("sX", Some(0)), None);
    }

    #[test]
    fn a_barrier_waits_for_nodes_that_may_become_ready() {
        use Outcome::{Done, Failed};
        let ready = |states, tolerate, ready: &str| tally(states, tolerate).enough_are_ready(ready.parse().unwrap());
        assert_eq!(ready("pps", None, "100%"), Some(Done));
        assert_eq!(ready("pw", None, "100%"), None);
        assert_eq!(ready("pw", Some(1), "100%"), None);
        assert_eq!(ready("pw", None, "50%"), Some(Done));
        assert_eq!(ready("pf", None, "100%"), Some(Failed));
        assert_eq!(ready("pf", Some(1), "100%"), Some(Done));
        assert_eq!(ready("px", None, "100%"), None);
        assert_eq!(ready("px", Some(1), "100%"), Some(Done));
        assert_eq!(ready("pX", None, "100%"), Some(Done));
        assert_eq!(ready("pffw", Some(1), "100%"), Some(Failed));
        assert_eq!(ready("f", Some(1), "100%"), None);
        // A number is one of nodes, also of those that have not reported yet.
        assert_eq!(ready("pp", None, "2"), Some(Done));
        assert_eq!(ready("pp", None, "9"), None);
        assert_eq!(ready("pf", Some(1), "9"), None);
        assert_eq!(ready("pppf", Some(1), "4"), Some(Done));
    }
}
