//! Whether a step of a rollout is over.
//!
//! In: the states of nodes, and how many nodes may be lost. Out: an outcome, or none if nodes are still waited for.

use super::Outcome;
use super::nodes::{Node, State};
use crate::args::Ready;

/// How many of the awaited nodes are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    serving: usize,
    prepared: usize,
    waiting: usize,
    failed: usize,
    /// Nodes that are silent or unreadable, and may come back.
    absent: usize,
    /// The number of nodes that may be lost.
    tolerated: usize,
}

impl Tally {
    /// Counts nodes. With `tolerate`, nodes that are not awaited count as absent.
    pub(super) fn new(nodes: &[Node], is_counted: impl Fn(&Node) -> bool, tolerate: Option<usize>) -> Tally {
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
    pub(super) fn all_serve(self) -> Option<Outcome> {
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

    /// Returns whether enough nodes serve the generation when the time is over.
    pub(super) fn is_enough_at_end(self) -> bool {
        self.serving > 0 && self.waiting + self.prepared + self.failed + self.absent <= self.tolerated
    }

    /// Returns the outcome if enough nodes are ready to serve the generation, or can no longer become ready.
    pub(super) fn enough_are_ready(self, ready: Ready) -> Option<Outcome> {
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
            // Nodes that have not confirmed count only when the time is over.
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
