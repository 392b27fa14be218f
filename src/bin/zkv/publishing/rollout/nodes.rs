//! The states of nodes during a rollout.

use serde::Serialize;
use zero_kv::printable::Printable;
use zero_kv::publish::{NodeStatus, UnreadableStatus};

use crate::publishing::SILENT_AFTER;
use crate::text_table::{Align, lines};

/// A node, as its last report describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Node {
    pub(super) node: String,
    /// The zone of the node, or empty.
    pub(super) zone: String,
    pub(super) state: State,
    /// The generation that the node serves, or 0.
    pub(super) serving: u64,
    /// Why the node does not serve the generation that it should, or empty.
    pub(super) error: String,
    /// The number of seconds since the node's last report.
    pub(super) age_s: u64,
    /// Whether the node has reported during the rollout. Such a node is waited for, also if it becomes silent.
    #[serde(skip)]
    pub(super) is_awaited: bool,
}

/// The state of a node with regard to the generation that is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
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
    /// `pin` is the number of the newest pin of the rollout. What a node that has not read it reports may be from before the
    /// rollout.
    pub(super) fn new(status: NodeStatus, generation: u64, pin: Option<u64>) -> Node {
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
    pub(super) fn unreadable(status: UnreadableStatus, before: Option<&Node>) -> Option<Node> {
        let UnreadableStatus { node, problem, is_temporary, .. } = status;
        let (zone, serving) = before.map_or((String::new(), 0), |before| (before.zone.clone(), before.serving));
        let (state, error) = (State::Unreadable, problem);
        Some(Node { node: node?, zone, state, serving, error, age_s: 0, is_awaited: is_temporary })
    }

    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Silent | State::Unreadable)
    }

    /// Returns whether two reports describe the same state of the node.
    pub(super) fn looks_like(&self, other: &Node) -> bool {
        Node { age_s: other.age_s, ..self.clone() }.line() == other.line()
    }

    /// Describes the node on one line.
    pub(super) fn line(&self) -> String {
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
pub(super) fn table(nodes: &[Node]) -> String {
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
