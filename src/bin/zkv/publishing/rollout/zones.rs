//! `zkv rollout --zones`: one zone after the other.
//!
//! In: the order of the zones, and the zones that nodes report. Out: a pin of the nodes of the first zone, then of the first
//! two zones, and so on, and at last a pin of all nodes. Each step waits until the nodes of its pin serve the generation.

use std::collections::BTreeMap;

use anyhow::bail;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Pin, Publication};

use super::nodes::Node;
use super::watch::Watch;
use super::{Outcome, hold, others, pin_all, wait_until_prepared};
use crate::args::RolloutArgs;

pub(super) fn zone_by_zone(
    publication: &Publication,
    args: &RolloutArgs,
    watch: &mut Watch<'_>,
) -> anyhow::Result<Outcome> {
    watch.start()?;
    if watch.live().next().is_none() {
        return Ok(Outcome::NoNodes);
    }
    check(&args.zones, watch.nodes())?;
    // Read before the first pin, which selects the generation.
    let others = others(publication, watch)?;
    if args.barrier {
        let pin = hold(args, watch)?;
        let outcome = wait_until_prepared(publication, pin, args, watch)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    for (index, zone) in args.zones.iter().enumerate() {
        watch.step(&format!("zone {zone}"));
        let named = &args.zones[..=index];
        let is_named = |node: &&Node| named.contains(&node.zone);
        let nodes: Vec<String> = watch.nodes().iter().filter(is_named).map(|node| node.node.clone()).collect();
        let mut pin = Pin::new(Some(args.generation));
        (pin.nodes, pin.others) = (nodes.clone(), others);
        watch.pin(&pin)?;
        let outcome = watch.wait_until_served(|node| nodes.contains(&node.node), false)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    watch.step("all nodes");
    pin_all(args, watch)
}

/// Checks that the named zones are those of the nodes, because a rollout ends with a pin of all nodes.
fn check(zones: &[String], nodes: &[Node]) -> anyhow::Result<()> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.is_live()) {
        *known.entry(&node.zone).or_default() += 1;
    }
    let without = known.remove("").unwrap_or(0);
    let mut list: Vec<String> =
        known.iter().map(|(zone, count)| format!("{zone} ({})", counted(count, "node"))).collect();
    if without > 0 {
        list.push(format!("{} without a zone", counted(without, "node")));
    }
    let list = list.join(", ");
    for zone in zones {
        if !known.contains_key(zone.as_str()) {
            bail!(
                "--zones: no node of zone {:?} has reported within 3 minutes: expected zones of {}",
                zone,
                Printable(list)
            );
        }
    }
    if let Some(zone) = known.keys().find(|zone| zones.iter().all(|named| named != *zone)) {
        bail!(
            "--zones: does not name zone {zone:?}, which has nodes: name all zones, because a rollout ends with all nodes: {}",
            Printable(list)
        );
    }
    Ok(())
}
