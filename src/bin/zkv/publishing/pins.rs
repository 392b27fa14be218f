//! `zkv pin` and `zkv unpin`: select the generation that nodes serve.

use std::io::Write;

use serde::Serialize;
use zero_kv::printable::Printable;
use zero_kv::publish::{Pin, Publication};

use crate::args::{PinArgs, UnpinArgs};
use crate::output::{print, print_error, write_json_line};

/// A pin as JSON.
#[derive(Serialize)]
pub(super) struct PinReport {
    pub(super) number: u64,
    #[serde(flatten)]
    pub(super) pin: Pin,
}

pub(super) fn pin(args: &PinArgs) -> anyhow::Result<bool> {
    super::check_distinct("--node", &args.node)?;
    let publication = super::open(&args.table.url)?;
    let mut pin = pin_of(&publication, args.generation, args.node.clone())?;
    pin.hold = args.hold;
    warn_of_unknown(&publication, &args.node)?;
    create(&publication, pin, args.table.json)
}

pub(super) fn unpin(args: &UnpinArgs) -> anyhow::Result<bool> {
    let publication = super::open(&args.table.url)?;
    create(&publication, Pin::new(None), args.table.json)
}

/// Returns a pin of some nodes, or of all nodes if `nodes` is empty. The generation of the other nodes stays the one
/// that the newest pin selects for them.
fn pin_of(publication: &Publication, generation: u64, nodes: Vec<String>) -> anyhow::Result<Pin> {
    let mut pin = Pin::new(Some(generation));
    if !nodes.is_empty() {
        pin.others = publication.pin()?.and_then(|(_, newest)| newest.generation_for(None));
    }
    pin.nodes = nodes;
    Ok(pin)
}

/// Warns of nodes that have not reported a status, because their names may be misspelled.
fn warn_of_unknown(publication: &Publication, nodes: &[String]) -> anyhow::Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    let statuses = publication.statuses()?;
    super::print_warnings(publication);
    for node in nodes.iter().filter(|node| statuses.iter().all(|status| status.node != **node)) {
        print_error(&format_args!("warning: no node {node:?} has reported a status: check the name"));
    }
    Ok(())
}

fn create(publication: &Publication, pin: Pin, json: bool) -> anyhow::Result<bool> {
    let created = publication.create_pin(&pin);
    super::print_warnings(publication);
    let number = created?;
    print(|stdout| match json {
        true => write_json_line(stdout, &PinReport { number, pin }),
        false => writeln!(stdout, "{}", describe(number, &pin)),
    })?;
    Ok(true)
}

/// Describes a pin on one line.
pub(super) fn describe(number: u64, pin: &Pin) -> String {
    let generation = |generation: Option<u64>| match generation {
        Some(generation) => format!("generation {generation}"),
        None => "the newest generation".to_owned(),
    };
    let hold = if pin.hold { "prepare" } else { "serve" };
    let selected = generation(pin.generation);
    match pin.nodes.is_empty() {
        true => format!("pin {number}: all nodes {hold} {selected}"),
        false => {
            let (nodes, others) = (Printable(pin.nodes.join(",")), generation(pin.others));
            format!("pin {number}: nodes {nodes} {hold} {selected}, and other nodes serve {others}")
        }
    }
}
