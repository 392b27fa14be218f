//! `zkv watch`: shows the nodes of a published table.
//!
//! In: the statuses of nodes. Out: a table that is redrawn on a terminal, otherwise one line per change of a node, or
//! JSON.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use zero_kv::cli::stderr::live_bar;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{NodeReports, NodeStatus, Publication, UnreadableStatus};

use super::SILENT_AFTER;
use crate::args::WatchNodesArgs;
use crate::output::{is_on_terminal, print, print_error, print_while_read, write_json_line};
use crate::text_table::{Align, lines};

const READ_MAX: Duration = Duration::from_secs(60);
const MIB: f64 = (1 << 20) as f64;

#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    nodes: &'a [Node],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    state: State,
    /// The number of seconds since the last report.
    age_s: u64,
    /// The node's problem, or an empty text.
    problem: String,
    #[serde(flatten)]
    status: NodeStatus,
}

/// The activity of a node. The screen lists the last of these states first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Serving,
    /// The node has verified a generation, and waits for the decision of a rollout.
    Prepared,
    /// The node serves no generation yet.
    Waiting,
    Fetching,
    Failed,
    /// The node has not reported for [`SILENT_AFTER`].
    Stale,
    /// The status cannot be read.
    Unreadable,
}

impl State {
    const ALL: [State; 7] = [
        State::Serving,
        State::Prepared,
        State::Waiting,
        State::Fetching,
        State::Failed,
        State::Stale,
        State::Unreadable,
    ];

    fn name(self) -> &'static str {
        match self {
            State::Serving => "serving",
            State::Prepared => "prepared",
            State::Waiting => "waiting",
            State::Fetching => "fetching",
            State::Failed => "failed",
            State::Stale => "stale",
            State::Unreadable => "unreadable",
        }
    }
}

impl Node {
    fn new(status: NodeStatus) -> Node {
        let state = match &status {
            status if status.age_s > SILENT_AFTER.as_secs() => State::Stale,
            NodeStatus { fetching: 1.., .. } => State::Fetching,
            NodeStatus { failed: 1.., .. } => State::Failed,
            NodeStatus { prepared: 1.., .. } => State::Prepared,
            NodeStatus { serving: 0, .. } => State::Waiting,
            _ => State::Serving,
        };
        let problems = [status.name_problem(), Some(status.error.clone()).filter(|error| !error.is_empty())];
        let problem = problems.into_iter().flatten().collect::<Vec<_>>().join("; ");
        Node { state, age_s: status.age_s, problem, status }
    }

    /// Returns a node whose status cannot be read. The error says why no status can be read.
    fn unreadable(unreadable: UnreadableStatus) -> Result<Node, String> {
        let UnreadableStatus { node, problem, .. } = unreadable;
        let mut status = NodeStatus::default();
        status.node = match node {
            Some(node) => node,
            None => return Err(format!("warning: {problem}: no status is read")),
        };
        Ok(Node { state: State::Unreadable, age_s: 0, problem, status })
    }

    /// Describes the generation that the node fetches or has prepared.
    fn work(&self) -> String {
        let NodeStatus { fetching, prepared, fetched_bytes, fetch_bytes, fetch_bytes_per_s, .. } = self.status;
        match self.state {
            State::Fetching if fetch_bytes == 0 => format!("generation {fetching}"),
            State::Fetching => format!(
                "generation {fetching}: {:.0} % of {:.1} MiB at {:.1} MiB/s",
                fetched_bytes as f64 / fetch_bytes as f64 * 100.0,
                fetch_bytes as f64 / MIB,
                fetch_bytes_per_s as f64 / MIB
            ),
            State::Prepared => format!("generation {prepared}"),
            _ => String::new(),
        }
    }

    /// Describes the node on one line, without its age.
    fn line(&self) -> String {
        let NodeStatus { node, zone, serving, .. } = &self.status;
        let mut line = format!("{node}: {}, serves {serving}", self.state.name());
        let zone = if zone.is_empty() { String::new() } else { format!("zone {zone}") };
        for more in [zone, self.work(), self.problem.clone()].iter().filter(|more| !more.is_empty()) {
            // Writing to a string cannot fail.
            let _ = write!(line, ", {more}");
        }
        Printable(line).to_string()
    }

    fn row(&self) -> [String; 7] {
        let NodeStatus { node, zone, serving, .. } = &self.status;
        let age = match self.state {
            State::Unreadable => String::new(),
            _ => format!("{} s", self.age_s),
        };
        let state = self.state.name().to_owned();
        [node.clone(), zone.clone(), state, serving.to_string(), self.work(), age, self.problem.clone()]
    }
}

/// Returns the nodes of a table by name, and why no status can be read, or an empty text.
fn nodes(reports: NodeReports) -> (Vec<Node>, String) {
    let mut nodes: Vec<Node> = reports.statuses.into_iter().map(Node::new).collect();
    let mut problem = String::new();
    for unreadable in reports.unreadable {
        match Node::unreadable(unreadable) {
            Ok(node) => nodes.push(node),
            Err(found) => problem = found,
        }
    }
    nodes.sort_by(|left, right| left.status.node.cmp(&right.status.node));
    (nodes, problem)
}

/// Returns the nodes as a table of text, after a line with their number in each state.
fn table<'a>(nodes: impl ExactSizeIterator<Item = &'a Node> + Clone) -> String {
    let count = |state: &State| (*state, nodes.clone().filter(|node| node.state == *state).count());
    let counts = State::ALL.iter().map(count).filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(state, count)| format!("{count} {}", state.name())).collect();
    let mut rows = vec![["node", "zone", "state", "serves", "fetches", "reported", "problem"].map(str::to_owned)];
    rows.extend(nodes.clone().map(Node::row));
    let mut aligns = [Align::Left; 7];
    (aligns[3], aligns[5]) = (Align::Right, Align::Right);
    format!("{}: {}\n{}", counted(nodes.len(), "node"), counts.join(", "), lines(aligns, &rows))
}

pub(super) fn watch(args: &WatchNodesArgs) -> anyhow::Result<bool> {
    let publication = super::open(&args.table.url)?;
    if publication.url().starts_with("http") {
        bail!(
            "{}: statuses cannot be listed over HTTP: name the store itself, such as s3://BUCKET/PATH",
            publication.url()
        );
    }
    if args.once {
        let (nodes, problem) = nodes(publication.reports(READ_MAX)?);
        if !problem.is_empty() {
            print_error(&problem);
        }
        let (has_any, url) = (!nodes.is_empty(), publication.url());
        print(|stdout| match args.table.json {
            true => write_json_line(stdout, &Report { url, nodes: &nodes }),
            false if has_any => write!(stdout, "{}", table(nodes.iter())),
            false => Ok(()),
        })?;
        if !has_any && !args.table.json {
            print_error(&format_args!("{url}: no node has reported: start nodes with kv_store --from"));
        }
        return Ok(has_any);
    }
    follow(&publication, args)
}

/// Shows the nodes until the reader of the output closes the pipe.
fn follow(publication: &Publication, args: &WatchNodesArgs) -> anyhow::Result<bool> {
    let bar = live_bar(args.table.json || !is_on_terminal());
    bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
    let (mut before, mut last_problem) = (Vec::new(), String::new());
    loop {
        let problem = match publication.reports(READ_MAX) {
            Ok(reports) => {
                let (nodes, problem) = nodes(reports);
                if !show(&bar, args.table.json, publication.url(), &before, &nodes)? {
                    return Ok(true);
                }
                before = nodes;
                problem
            }
            Err(error) => format!("{error}: trying again"),
        };
        if !problem.is_empty() && problem != last_problem {
            bar.suspend(|| print_error(&problem));
        }
        last_problem = problem;
        thread::sleep(args.interval);
    }
}

/// Shows the nodes, or their changes. Returns false if the reader has closed the pipe.
fn show(bar: &ProgressBar, json: bool, url: &str, before: &[Node], nodes: &[Node]) -> anyhow::Result<bool> {
    if json {
        return print_while_read(|stdout| write_json_line(stdout, &Report { url, nodes }));
    }
    if !bar.is_hidden() {
        let mut by_state: Vec<&Node> = nodes.iter().collect();
        // A screen shows the first nodes. The order is stable.
        by_state.sort_by_key(|node| Reverse(node.state));
        bar.set_message(table(by_state.into_iter()));
        bar.tick();
        return Ok(true);
    }
    let line_before = |node: &Node| before.iter().find(|before| before.status.node == node.status.node).map(Node::line);
    let changed = nodes.iter().filter(|node| line_before(node).is_none_or(|before| before != node.line()));
    let is_gone = |before: &&Node| nodes.iter().all(|node| node.status.node != before.status.node);
    let gone = before.iter().filter(is_gone).map(|node| format!("{}: gone", Printable(&node.status.node)));
    let lines: Vec<String> = changed.map(Node::line).chain(gone).collect();
    print_while_read(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
}
