//! `zkv topology`: shows, checks, plans, and changes the topology of a cluster.
//!
//! In: topology documents in files or in an object store, and the reports of nodes. Out: the next document.

#[cfg(feature = "object-store")]
mod watch;

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use zero_kv::cli::stderr::WithCauses;
use zero_kv::cli::whole_file::write_whole;
use zero_kv::cluster::{Health, Role, SlotSet, TOPOLOGY_LEN_MAX_BYTES, Topology, moved_slots, plan};
use zero_kv::config_file;
use zero_kv::counted::counted;

use crate::args::{PlanArgs, Source, TopologyCommand};
use crate::output::{print, print_error};
use crate::text_table::{Align, lines};

pub(crate) fn run(command: &TopologyCommand) -> anyhow::Result<bool> {
    match command {
        TopologyCommand::Show { source, json } => show(source, *json),
        TopologyCommand::Check { file } => check(file),
        TopologyCommand::Plan(args) => print_plan(args),
        TopologyCommand::Apply { file, to } => apply(file, to),
        #[cfg(feature = "object-store")]
        TopologyCommand::Watch(args) => watch::watch(args),
        // Without the feature, every URL is rejected as an argument, so the command is not run.
        #[cfg(not(feature = "object-store"))]
        TopologyCommand::Watch(_) => Ok(false),
    }
}

fn read_file(path: &Path) -> anyhow::Result<Topology> {
    let mut json = Vec::new();
    match path.as_os_str().as_encoded_bytes() {
        // One byte more than the maximum is read, which parsing then rejects.
        b"-" => io::stdin().lock().take(TOPOLOGY_LEN_MAX_BYTES as u64 + 1).read_to_end(&mut json).map(drop),
        _ => config_file::read_once(path, TOPOLOGY_LEN_MAX_BYTES).map(|bytes| json = bytes),
    }
    .with_context(|| path.display().to_string())
    .map_err(|error| anyhow!("{}", WithCauses(&error)))?;
    Topology::parse(&json).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Returns the topology at a place, or `None` if a table has no topology.
fn read(source: &Source) -> anyhow::Result<Option<Topology>> {
    match source {
        Source::File(path) => Ok(Some(read_file(path)?)),
        #[cfg(feature = "object-store")]
        Source::Url(url) => Ok(crate::publishing::open(url)?.topology(None)?),
        #[cfg(not(feature = "object-store"))]
        Source::Url(_) => Ok(None),
    }
}

fn show(source: &Source, json: bool) -> anyhow::Result<bool> {
    let Some(topology) = read(source)? else {
        print_error(&"the table has no topology: create one with zkv topology plan and apply");
        return Ok(false);
    };
    print(
        |stdout| if json { stdout.write_all(topology.to_json().as_bytes()) } else { write_table(stdout, &topology) },
    )?;
    Ok(true)
}

fn write_table(out: &mut dyn Write, topology: &Topology) -> io::Result<()> {
    let header = ["node", "address", "role", "health", "zone", "slots"].map(str::to_owned);
    let mut rows = vec![header];
    for node in &topology.nodes {
        let role = match &node.primary {
            Some(primary) => format!("replica of {primary}"),
            None => "primary".to_owned(),
        };
        let zone = node.zone.clone().unwrap_or_else(|| "-".to_owned());
        // A line has no room for thousands of ranges, which the document has (--json).
        let slots = match node.role {
            Role::Primary => node.slots.iter().copied().collect::<SlotSet>().summary(),
            Role::Replica => String::new(),
        };
        rows.push([
            node.id.clone(),
            format!("{}:{}", node.host, node.port),
            role,
            node.health.name().to_owned(),
            zone,
            slots,
        ]);
    }
    write!(out, "topology {}\n{}", topology.number, lines([Align::Left; 6], &rows))
}

fn check(file: &Path) -> anyhow::Result<bool> {
    let topology = read_file(file)?;
    print(|stdout| {
        writeln!(stdout, "{}: topology {} is valid: {}", file.display(), topology.number, counts(&topology))
    })?;
    Ok(true)
}

/// Returns the numbers of nodes of each kind.
fn counts(topology: &Topology) -> String {
    let count = |role: Role| topology.nodes.iter().filter(|node| node.role == role).count();
    let failed = topology.nodes.iter().filter(|node| node.health == Health::Fail).count();
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let (primaries, replicas) = (counted(count(Role::Primary), "primary"), counted(count(Role::Replica), "replica"));
    format!("{primaries}, {replicas}{failed}")
}

fn print_plan(args: &PlanArgs) -> anyhow::Result<bool> {
    let current = args.from.as_ref().map(read).transpose()?.flatten();
    let nodes: Vec<_> = args.nodes.iter().map(|node| node.0.clone()).collect();
    let planned = plan(current.as_ref(), &nodes, args.replicas)?;
    print(|stdout| stdout.write_all(planned.to_json().as_bytes()))?;
    let moved = match &current {
        Some(current) => format!("{} of 16384 slots move to another primary", moved_slots(current, &planned)),
        None => "the first topology".to_owned(),
    };
    print_error(&format_args!("topology {}: {}: {moved}", planned.number, counts(&planned)));
    Ok(true)
}

fn apply(file: &Path, to: &Source) -> anyhow::Result<bool> {
    let topology = read_file(file)?;
    match to {
        Source::File(path) => replace_file(&topology, path)?,
        #[cfg(feature = "object-store")]
        Source::Url(url) => {
            let publication = crate::publishing::create(url)?;
            let created = publication.create_topology(&topology);
            crate::publishing::print_warnings(&publication);
            created?;
        }
        #[cfg(not(feature = "object-store"))]
        Source::Url(_) => {}
    }
    print(|stdout| writeln!(stdout, "topology {}: {}", topology.number, counts(&topology)))?;
    Ok(true)
}

/// Replaces the file that nodes read.
fn replace_file(topology: &Topology, path: &Path) -> anyhow::Result<()> {
    // Another user could have put a FIFO at the path, and opening it would wait.
    if path.is_file() {
        let current = read_file(path)?;
        if topology.number <= current.number {
            return Err(anyhow!(
                "{}: the topology has number {}, expected more than {}: plan it again",
                path.display(),
                topology.number,
                current.number
            ));
        }
    }
    write_whole(path, topology.to_json().as_bytes())
}
