//! `zkv policy`: shows and changes the quotas of a published table.

use std::io::Write;

use zero_kv::publish::Policy;

use crate::args::{PolicyArgs, Quota};
use crate::output::{print, write_json_line};

pub(super) fn policy(args: &PolicyArgs) -> anyhow::Result<bool> {
    let publication = super::open(&args.table.url)?;
    let policy = match (args.max_bytes, args.max_rows) {
        (None, None) => publication.policy()?,
        // A policy that cannot be read is replaced.
        (Some(Quota(bytes)), Some(Quota(rows))) => Some(publication.create_policy(bytes, rows)?),
        (bytes, rows) => {
            let current = publication.policy()?.unwrap_or_default();
            let new = |quota: Option<Quota>, old| quota.map_or(old, |Quota(max)| max);
            Some(publication.create_policy(new(bytes, current.max_bytes), new(rows, current.max_rows))?)
        }
    };
    print(|stdout| match args.table.json {
        true => write_json_line(stdout, &policy),
        false => writeln!(stdout, "{}", describe(policy.as_ref())),
    })?;
    Ok(true)
}

fn describe(policy: Option<&Policy>) -> String {
    let Some(policy) = policy else { return "no policy: generations have no quotas".to_owned() };
    let quota = |max: Option<u64>, unit: &str| {
        max.map_or(format!("any number of {unit}"), |max| format!("at most {max} {unit}"))
    };
    format!(
        "policy {}: a generation has {} and {}",
        policy.number,
        quota(policy.max_rows, "rows"),
        quota(policy.max_bytes, "bytes")
    )
}
