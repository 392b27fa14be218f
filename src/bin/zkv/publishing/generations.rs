//! `zkv generations`, `zkv pin`, and `zkv unpin`: list the generations of a published table, and select the one that
//! nodes serve.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use zero_kv::printable::{Printable, shortened};
use zero_kv::publish::{Decision, Pin, Publication, PublishError, PublishedGeneration};

use super::SILENT_AFTER;
use crate::args::{GenerationsArgs, PinArgs, UnpinArgs};
use crate::output::{print, print_error, write_json_line};
use crate::text_table::{Align, lines};

#[derive(Serialize)]
struct Listing<'a> {
    url: &'a str,
    /// The newest pin. `None` if there is none, or if it cannot be read.
    pin: Option<PinReport>,
    /// Why the newest pin cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pin_error: Option<String>,
    generations: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    number: u64,
    created: &'a str,
    created_by: &'a str,
    tool: &'a str,
    rows: u64,
    bytes: u64,
    digest: String,
    note: &'a str,
    pinned: bool,
    /// The nodes that serve the generation.
    nodes: &'a [String],
    /// The nodes that cannot serve the generation, and why.
    failed: Vec<FailedNode<'a>>,
    parent: u64,
    job: &'a str,
    files: usize,
}

#[derive(Serialize)]
struct FailedNode<'a> {
    node: &'a str,
    error: &'a str,
}

pub(super) fn generations(args: &GenerationsArgs) -> anyhow::Result<bool> {
    let publication = super::open(&args.table.url)?;
    let generations = publication.generations(args.count);
    super::print_warnings(&publication);
    let generations = generations?;
    let (pin, pin_error) = match publication.pin() {
        // It was reported with the warnings.
        Err(error @ PublishError::Document { .. }) => (None, Some(error.to_string())),
        pin => (pin?, None),
    };
    if args.table.json {
        let generations: Vec<_> = generations.iter().map(Listed::new).collect();
        let has_any = !generations.is_empty();
        let pin = pin.map(|(number, pin)| PinReport { number, pin });
        print(|stdout| write_json_line(stdout, &Listing { url: publication.url(), pin, pin_error, generations }))?;
        return Ok(has_any);
    }
    if generations.is_empty() {
        print_error(&format_args!("{}: has no generation: check the URL, or publish a file", publication.url()));
        return Ok(false);
    }
    print(|stdout| write!(stdout, "{}", table(&generations, pin.as_ref())))?;
    Ok(true)
}

fn table(generations: &[PublishedGeneration], pin: Option<&(u64, Pin)>) -> String {
    let names = ["generation", "published", "by", "rows", "bytes", "digest", "pinned", "nodes", "failed", "note"];
    let mut rows = vec![names.map(str::to_owned)];
    for generation in generations {
        let listed = Listed::new(generation);
        rows.push([
            listed.number.to_string(),
            listed.created.to_owned(),
            listed.created_by.to_owned(),
            listed.rows.to_string(),
            listed.bytes.to_string(),
            listed.digest,
            if listed.pinned { "yes" } else { "" }.to_owned(),
            listed.nodes.join(","),
            listed.failed.iter().map(|failed| failed.node).collect::<Vec<_>>().join(","),
            listed.note.to_owned(),
        ]);
    }
    let mut aligns = [Align::Left; 10];
    for right in [0, 3, 4] {
        aligns[right] = Align::Right;
    }
    let pin = pin.map(|(number, pin)| format!("{}{}\n", describe(*number, pin), origin(pin))).unwrap_or_default();
    let failed: String = generations.iter().map(failures).collect();
    lines(aligns, &rows) + &pin + &failed
}

/// Returns when and by whom a pin was created.
fn origin(pin: &Pin) -> String {
    let [created, by, tool] = [&pin.created, &pin.created_by, &pin.tool].map(|text| shortened(text, ORIGIN_MAX_CHARS));
    let by = if by.is_empty() { String::new() } else { format!(" by {by} with {tool}") };
    format!(" (created {created}{by})")
}

/// Returns a line for each reason why nodes cannot serve a generation.
fn failures(generation: &PublishedGeneration) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    generation.failed.iter().for_each(|(node, error)| reasons.entry(error).or_default().push(node));
    let line = |(error, nodes): (&str, Vec<&str>)| {
        format!("generation {} is not served by {}: {error}\n", generation.manifest.number, nodes.join(","))
    };
    reasons.into_iter().map(line).collect()
}

impl<'a> Listed<'a> {
    fn new(generation: &'a PublishedGeneration) -> Listed<'a> {
        let manifest = &generation.manifest;
        Listed {
            number: manifest.number,
            created: &manifest.created,
            created_by: &manifest.created_by,
            tool: &manifest.tool,
            rows: manifest.rows(),
            bytes: manifest.bytes(),
            digest: manifest.digest(),
            note: &manifest.note,
            pinned: generation.pinned,
            nodes: &generation.nodes,
            failed: generation.failed.iter().map(|(node, error)| FailedNode { node, error }).collect(),
            parent: manifest.parent,
            job: &manifest.job,
            files: manifest.entries.len(),
        }
    }
}

/// Maximum length of a text about the creation of a pin.
const ORIGIN_MAX_CHARS: usize = 120;

/// Maximum number of pins read in the search for the last one that nodes followed.
pub(super) const PINS_MAX: u64 = 1000;

#[derive(Serialize)]
struct PinReport {
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

/// Returns a pin of some nodes, or of all nodes if `nodes` is empty. The other nodes keep their generation.
fn pin_of(publication: &Publication, generation: u64, nodes: Vec<String>) -> anyhow::Result<Pin> {
    let mut pin = Pin::new(Some(generation));
    if !nodes.is_empty() {
        pin.others = generation_of_others(publication, || {
            let statuses = publication.statuses()?;
            let live = statuses.iter().filter(|status| status.age_s <= SILENT_AFTER.as_secs());
            Ok(most_served(live.filter(|status| !nodes.contains(&status.node)).map(|status| status.serving)))
        })?;
    }
    pin.nodes = nodes;
    Ok(pin)
}

/// Returns the generation of the nodes that a new pin does not name, or `None` for the newest one: what the newest pin
/// selects for them. A pin that holds its generation for all nodes counts only if a rollout has activated it, because
/// nodes serve until then what they served before: what the pin before it selects, or otherwise `served`.
pub(super) fn generation_of_others(
    publication: &Publication,
    served: impl FnOnce() -> anyhow::Result<Option<u64>>,
) -> anyhow::Result<Option<u64>> {
    let (newest, pin) = match publication.pin() {
        // Nodes keep what they serve until they can read another pin.
        Err(PublishError::Document { .. }) => return served(),
        pin => match pin? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let (mut number, mut before) = (newest, Some(pin));
    while number > newest.saturating_sub(PINS_MAX) {
        // Nodes ignore pins that were not activated or cannot be read.
        if let Some(pin) = before
            && (!pin.hold || !pin.nodes.is_empty() || is_activated(publication, number)?)
        {
            match pin.generation_for(None) {
                None if number < newest => break,
                selected => return Ok(selected),
            }
        }
        number -= 1;
        before = match publication.pin_with_number(number) {
            Err(PublishError::Document { .. }) => None,
            pin => pin?,
        };
    }
    served()
}

/// Returns whether a rollout has decided that nodes serve the generation of the pin with a number.
pub(super) fn is_activated(publication: &Publication, pin: u64) -> Result<bool, PublishError> {
    Ok(publication.decision(pin)? == Some(Decision::Activate))
}

/// Returns the generation that occurs most often, besides 0, which is none.
pub(super) fn most_served(served: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts = BTreeMap::new();
    served.filter(|generation| *generation != 0).for_each(|generation| *counts.entry(generation).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(generation, count)| (*count, *generation)).map(|(generation, _)| generation)
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
