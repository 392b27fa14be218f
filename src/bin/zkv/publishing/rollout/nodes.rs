//! The states of nodes during a rollout.

use serde::Serialize;
use zero_kv::printable::Printable;
use zero_kv::publish::NodeStatus;

use crate::text_table::{Align, lines};

/// A node that has not reported for this long is not waited for. Nodes report at least once per minute.
const SILENT_AFTER_S: u64 = 180;

/// A node, as its last report describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Node {
    pub(super) node: String,
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
    /// The node has not reported for [`SILENT_AFTER_S`].
    Silent,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Prepared => "prepared",
            State::Serving => "serving",
            State::Failed => "failed",
            State::Silent => "silent",
        }
    }
}

impl Node {
    pub(super) fn new(status: NodeStatus, generation: u64) -> Node {
        let state = if status.age_s > SILENT_AFTER_S {
            State::Silent
        } else if status.serving == generation {
            State::Serving
        } else if status.failed == generation {
            State::Failed
        } else if status.prepared == generation {
            State::Prepared
        } else {
            State::Waiting
        };
        let NodeStatus { node, serving, error, age_s, .. } = status;
        Node { is_awaited: state != State::Silent, node, state, serving, error, age_s }
    }

    /// Describes the node on one line.
    pub(super) fn line(&self) -> String {
        let Node { node, state, serving, error, .. } = self;
        let node = Printable(node);
        match state {
            State::Failed => format!("{node}: failed, serves {serving}: {}", Printable(error)),
            state => format!("{node}: {}, serves {serving}", state.name()),
        }
    }
}

pub(super) fn table(nodes: &[Node]) -> String {
    let mut rows = vec![["node", "state", "serves", "error"].map(str::to_owned)];
    let row =
        |node: &Node| [node.node.clone(), node.state.name().to_owned(), node.serving.to_string(), node.error.clone()];
    rows.extend(nodes.iter().map(row));
    lines([Align::Left, Align::Left, Align::Right, Align::Left], &rows)
}
