//! `zkv rollout --abort`: cancels a rollout.

use zero_kv::publish::{Decision, Pin, Publication};

use super::Outcome;
use super::watch::Watch;
use crate::args::RolloutArgs;

/// The maximum number of pins that are read to find the one before a rollout.
const PINS_MAX: u64 = 1000;

/// Decides that nodes do not serve the generation, and pins them to what they should have served before.
pub(super) fn abort(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    if publication.decide(args.generation, Decision::Abort)? == Decision::Activate {
        return Ok(Outcome::Activated);
    }
    watch.report(&format!("the rollout of generation {} is aborted", args.generation));
    if let Some(pin) = preceding(publication, args.generation, watch)? {
        watch.pin(&pin)?;
    }
    Ok(Outcome::Aborted)
}

/// Returns a pin that selects what the newest pin before the rollout selected. Returns `None` if the newest pin does
/// not belong to the rollout, or if the table has no other generation.
fn preceding(publication: &Publication, generation: u64, watch: &Watch<'_>) -> anyhow::Result<Option<Pin>> {
    let Some((mut number, _)) = publication.pin()?.filter(|(_, pin)| pin.generation == Some(generation)) else {
        return Ok(None);
    };
    let (mut before, oldest) = (None, number.saturating_sub(PINS_MAX).max(1));
    while before.is_none() && number > oldest {
        number -= 1;
        before = publication.pin_with_number(number)?.filter(|pin| pin.generation != Some(generation));
    }
    let mut restored = Pin::new(None);
    if let Some(before) = before {
        (restored.generation, restored.nodes) = (before.generation, before.nodes);
        (restored.others, restored.hold) = (before.others, before.hold);
    }
    if restored.generation.is_none() && publication.newest()? == generation {
        // Without a pin, nodes would serve the generation whose rollout is aborted, because it is the newest one.
        let parent = publication.manifest(Some(generation))?.parent;
        restored = Pin::new(watch.most_served().or(Some(parent).filter(|parent| *parent > 0)));
        if restored.generation.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(restored))
}
