//! `zkv generations`: lists generations of a published table.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use zero_kv::publish::{Pin, PublishError, PublishedGeneration};

use super::pins::{PinReport, describe};
use crate::args::GenerationsArgs;
use crate::output::{print, print_error, write_json_line};
use crate::text_table::{Align, lines};

/// The generations as JSON.
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
    let names = ["generation", "published", "rows", "bytes", "digest", "pinned", "nodes", "failed", "note"];
    let mut rows = vec![names.map(str::to_owned)];
    for generation in generations {
        let listed = Listed::new(generation);
        rows.push([
            listed.number.to_string(),
            listed.created.to_owned(),
            listed.rows.to_string(),
            listed.bytes.to_string(),
            listed.digest,
            if listed.pinned { "yes" } else { "" }.to_owned(),
            listed.nodes.join(","),
            listed.failed.iter().map(|failed| failed.node).collect::<Vec<_>>().join(","),
            listed.note.to_owned(),
        ]);
    }
    let mut aligns = [Align::Left; 9];
    for right in [0, 2, 3] {
        aligns[right] = Align::Right;
    }
    let pin = pin.map(|(number, pin)| format!("{}\n", describe(*number, pin))).unwrap_or_default();
    let failed: String = generations.iter().map(failures).collect();
    lines(aligns, &rows) + &pin + &failed
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
