//! Waits for nodes, and shows their states: as a live table on a terminal, otherwise as one line per change.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use zero_kv::cli::live_bar::live_bar;
use zero_kv::printable::Printable;
use zero_kv::publish::Publication;

use super::Outcome;
use super::nodes::{Node, State, table};
use crate::args::RolloutArgs;
use crate::output::print;

pub(super) struct Watch<'a> {
    publication: &'a Publication,
    generation: u64,
    interval: Duration,
    deadline: Instant,
    nodes: Vec<Node>,
    /// The table on a terminal.
    bar: ProgressBar,
    /// Whether a line is printed for each change.
    prints_changes: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(publication: &'a Publication, args: &RolloutArgs) -> Watch<'a> {
        let bar = live_bar(args.table.json);
        let is_live = !bar.is_hidden();
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
        Watch {
            publication,
            generation: args.generation,
            interval: args.interval,
            deadline: Instant::now() + args.timeout,
            nodes: Vec::new(),
            bar,
            prints_changes: !args.table.json && !is_live,
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes that have reported recently, in the order of their names.
    pub(super) fn live(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.state != State::Silent)
    }

    /// Returns the generation that most nodes serve, besides the one that is rolled out.
    pub(super) fn most_served(&self) -> Option<u64> {
        let mut counts = BTreeMap::new();
        for node in self.live().filter(|node| node.serving != 0 && node.serving != self.generation) {
            *counts.entry(node.serving).or_insert(0) += 1;
        }
        counts.into_iter().max_by_key(|(generation, count)| (*count, *generation)).map(|(generation, _)| generation)
    }

    /// Reads the reports of the nodes, and shows what has changed.
    pub(super) fn read(&mut self) -> anyhow::Result<()> {
        let statuses = self.publication.statuses()?;
        let mut nodes: Vec<Node> = statuses.into_iter().map(|status| Node::new(status, self.generation)).collect();
        for node in &mut nodes {
            node.is_awaited |= self.nodes.iter().any(|before| before.node == node.node && before.is_awaited);
        }
        if self.prints_changes {
            let is_new = |node: &&Node| self.nodes.iter().all(|before| before.line() != node.line());
            let lines: Vec<String> = nodes.iter().filter(is_new).map(Node::line).collect();
            print(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))?;
        }
        self.bar.set_message(table(&nodes));
        self.bar.tick();
        self.nodes = nodes;
        Ok(())
    }

    /// Reports a step of the rollout.
    pub(super) fn report(&self, step: &str) {
        if self.prints_changes {
            // A reader that has closed the pipe does not stop the rollout.
            let _ = print(|stdout| writeln!(stdout, "{step}"));
        } else {
            self.bar.println(Printable(step).to_string());
        }
    }

    /// Reads the reports of the nodes until `is_over` returns an outcome, or the time is over.
    pub(super) fn wait(&mut self, is_over: impl Fn(&[Node]) -> Option<Outcome>) -> anyhow::Result<Outcome> {
        loop {
            self.read()?;
            if let Some(outcome) = is_over(&self.nodes) {
                return Ok(outcome);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Outcome::TimedOut);
            }
            thread::sleep(self.interval.min(left));
        }
    }

    /// Removes the live table.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
