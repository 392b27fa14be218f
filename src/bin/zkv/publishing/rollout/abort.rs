//! `zkv rollout --abort`: cancels a rollout.

use zero_kv::publish::{Decision, Pin, Publication, PublishError};

use super::Outcome;
use super::watch::Watch;
use crate::args::RolloutArgs;
use crate::publishing::pins::{PINS_MAX, is_activated};

/// Decides that nodes do not serve the generation, and pins them to what they should have served before.
pub(super) fn abort(publication: &Publication, args: &RolloutArgs, watch: &mut Watch<'_>) -> anyhow::Result<Outcome> {
    watch.start()?;
    let Some((number, pin)) = publication.pin()?.filter(|(_, pin)| pin.generation == Some(args.generation)) else {
        return Ok(Outcome::NotRolledOut);
    };
    let restored = preceding(publication, args.generation, number, watch)?;
    if pin.hold && publication.decide(number, Decision::Abort)? == Decision::Activate {
        return Ok(Outcome::Activated);
    }
    watch.report(&format!("the rollout of generation {} is aborted", args.generation));
    if let Some(pin) = restored {
        watch.pin(&pin)?;
    }
    Ok(Outcome::Aborted)
}

/// Returns a pin that selects what the newest pin before the rollout selected. `number` is the number of the newest pin, which
/// belongs to the rollout. Returns `None` if the table has no other generation.
fn preceding(
    publication: &Publication,
    generation: u64,
    mut number: u64,
    watch: &Watch<'_>,
) -> anyhow::Result<Option<Pin>> {
    let (mut restored, oldest) = (Pin::new(None), number.saturating_sub(PINS_MAX).max(1));
    while number > oldest {
        number -= 1;
        let before = match publication.pin_with_number(number) {
            // Nodes pass over pins that cannot be read, too.
            Err(PublishError::Document { .. }) => None,
            pin => pin?.filter(|pin| pin.generation != Some(generation)),
        };
        // A pin that was not activated has not changed what nodes serve.
        let is_served = |pin: &Pin| Ok::<_, PublishError>(!pin.hold || is_activated(publication, number)?);
        if let Some(pin) = before
            && is_served(&pin)?
        {
            (restored.generation, restored.nodes, restored.others) = (pin.generation, pin.nodes, pin.others);
            break;
        }
    }
    if restored.generation.is_none() && publication.newest()? == generation {
        // Without a pin, nodes would serve the generation whose rollout is aborted, because it is the newest one.
        let parent = publication.manifest(Some(generation))?.parent;
        restored = Pin::new(watch.most_served().or(Some(parent).filter(|parent| *parent > 0)));
        if restored.generation.is_none() {
            return Ok(None);
        }
    }
    // Checked before anything is decided.
    for number in [restored.generation, restored.others].into_iter().flatten() {
        publication.manifest(Some(number))?;
    }
    Ok(Some(restored))
}
