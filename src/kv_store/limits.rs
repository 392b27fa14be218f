//! Limits of the process, raised as far as it may.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises a limit as far as this process may.
pub(crate) fn raise_limit(resource: Resource, what: &str) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current == maximum {
        return;
    }
    let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (from, to) = (number(current), number(maximum));
    match setrlimit(resource, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!("limit of {what} raised from {from} to {to}"),
        Err(error) => warn!("limit of {what} stays at {from}, not {to}: {error}"),
    }
}
