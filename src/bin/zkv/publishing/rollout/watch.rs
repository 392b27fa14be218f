//! Waits for nodes, and shows their states: as a live table on a terminal, otherwise as one line per change.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use zero_kv::cli::stderr::live_bar;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Pin, Publication, PublishError};

use super::{Node, Outcome, Tally, table};
use crate::args::{Ready, RolloutArgs};
use crate::output::{print, print_error};
use crate::publishing::generations::{describe, most_served};

/// Minimum time for a read of the reports, even after the time-out of the rollout.
const READ_MIN: Duration = Duration::from_secs(30);

pub(super) struct Watch<'a> {
    publication: &'a Publication,
    generation: u64,
    tolerate: Option<usize>,
    interval: Duration,
    deadline: Instant,
    nodes: Vec<Node>,
    /// The number of the newest pin of the rollout.
    pin: Option<u64>,
    /// The current step, if the rollout has several.
    step: Option<String>,
    /// Why the reports could not be read the last time.
    problem: Option<String>,
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
        let deadline = Instant::now() + args.timeout;
        let (url, screen) = (publication.url().to_owned(), bar.clone());
        publication.set_patience(Some(deadline), move |pause| {
            screen.suspend(|| print_error(&format_args!("{url}: {pause}")));
        });
        Watch {
            publication,
            generation: args.generation,
            tolerate: args.tolerate,
            interval: args.interval,
            deadline,
            nodes: Vec::new(),
            pin: None,
            step: None,
            problem: None,
            bar,
            prints_changes: !args.table.json && !is_live,
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes that have reported recently, in the order of their names.
    pub(super) fn live(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_live())
    }

    /// Returns the current step, if the rollout has several.
    pub(super) fn current_step(&self) -> Option<&str> {
        self.step.as_deref()
    }

    /// Returns why the reports could not be read the last time, or `None` if they could.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Returns the generation that most nodes serve, besides the one that is rolled out.
    pub(super) fn most_served(&self) -> Option<u64> {
        most_served(self.live().map(|node| node.serving).filter(|serving| *serving != self.generation))
    }

    /// Reads the reports of the nodes until they can be read. Fails when the time-out expires.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        loop {
            let Err(error) = self.read()? else { return Ok(()) };
            if !self.pause() {
                return Err(error.into());
            }
        }
    }

    /// Reads the reports of the nodes, and shows what has changed. Returns the error if they cannot be read, for
    /// example while the store is unreachable: the last known nodes stay.
    fn read(&mut self) -> anyhow::Result<Result<(), PublishError>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let reports = match self.publication.reports(left.max(READ_MIN)) {
            Ok(reports) => reports,
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    self.report(&format!("the reports of nodes cannot be read, trying again: {problem}"));
                }
                self.problem = Some(problem);
                return Ok(Err(error));
            }
        };
        self.problem = None;
        let mut nodes: Vec<Node> =
            reports.statuses.into_iter().map(|status| Node::new(status, self.generation, self.pin)).collect();
        nodes.extend(reports.unreadable.into_iter().filter_map(|status| {
            let before = self.nodes.iter().find(|before| Some(&before.node) == status.node.as_ref());
            Node::unreadable(status, before)
        }));
        nodes.sort_by(|left, right| left.node.cmp(&right.node));
        for node in &mut nodes {
            node.is_awaited |= self.nodes.iter().any(|before| before.node == node.node && before.is_awaited);
        }
        if self.prints_changes {
            let is_new = |node: &&Node| self.nodes.iter().all(|before| !before.looks_like(node));
            let lines: Vec<String> = nodes.iter().filter(is_new).map(Node::line).collect();
            print(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))?;
        }
        self.bar.set_message(table(&nodes));
        self.bar.tick();
        self.nodes = nodes;
        Ok(Ok(()))
    }

    pub(super) fn report(&self, step: &str) {
        if self.prints_changes {
            // A reader that has closed the pipe does not stop the rollout.
            let _ = print(|stdout| writeln!(stdout, "{step}"));
        } else {
            self.bar.println(Printable(step).to_string());
        }
    }

    /// Says that more nodes must be ready than have reported.
    pub(super) fn tell_missing(&self, ready: Ready) {
        let (nodes, needed) = (self.live().count(), ready.of(self.live().count()));
        if needed > nodes {
            let missing = format!(
                "--ready expects {}, but only {nodes} have reported: waiting for more",
                counted(needed, "node")
            );
            self.bar.suspend(|| print_error(&missing));
        }
    }

    pub(super) fn step(&mut self, step: &str) {
        self.report(step);
        self.step = Some(step.to_owned());
    }

    /// Creates a pin of the rollout. Returns its number.
    pub(super) fn pin(&mut self, pin: &Pin) -> anyhow::Result<u64> {
        let number = self.publication.create_pin(pin)?;
        self.report(&describe(number, pin));
        self.pin = Some(number);
        Ok(number)
    }

    /// Waits until the counted nodes serve the generation. When the time is over, nodes that may be lost are not needed
    /// if this is the last step.
    pub(super) fn wait_until_served(
        &mut self,
        is_counted: impl Fn(&Node) -> bool,
        is_last: bool,
    ) -> anyhow::Result<Outcome> {
        let outcome = self.wait(&is_counted, Tally::all_serve)?;
        let is_enough = || Tally::new(&self.nodes, &is_counted, self.tolerate).is_enough_at_end();
        Ok(if outcome == Outcome::TimedOut && is_last && is_enough() { Outcome::Done } else { outcome })
    }

    /// Reads the reports of the nodes until `is_over` returns an outcome, or the time-out expires.
    pub(super) fn wait(
        &mut self,
        is_counted: impl Fn(&Node) -> bool,
        is_over: impl Fn(Tally) -> Option<Outcome>,
    ) -> anyhow::Result<Outcome> {
        loop {
            let is_read = self.read()?.is_ok();
            if self.is_replaced() {
                return Ok(Outcome::Replaced);
            }
            let outcome = is_over(Tally::new(&self.nodes, &is_counted, self.tolerate));
            if let Some(outcome) = outcome.filter(|_| is_read) {
                return Ok(outcome);
            }
            if !self.pause() {
                return Ok(Outcome::TimedOut);
            }
        }
    }

    /// Returns whether somebody has created another pin. If it cannot be read, a later look finds it.
    fn is_replaced(&self) -> bool {
        self.pin.is_some_and(|pin| matches!(self.publication.pin_with_number(pin + 1), Ok(Some(_))))
    }

    /// Waits until the next read is due. Returns false if the time-out has expired.
    fn pause(&self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        thread::sleep(self.interval.min(left));
        !left.is_zero()
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
