//! Resource limits of the process (`RLIMIT_*`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit of a resource to its hard limit. Log lines state the limit in `unit`.
pub(crate) fn raise_limit(resource: Resource, unit: &str) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current == maximum {
        return;
    }
    let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (from, to) = (number(current), number(maximum));
    match setrlimit(resource, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!("limit of {unit} raised from {from} to {to}"),
        Err(error) => warn!("limit of {unit} cannot be raised from {from} to {to}: {error}"),
    }
}
