//! `zkv gc`, `zkv policy`, and `zkv store check`: delete files of a published table that are no longer needed, change
//! its quotas, and check a store.

use std::io::Write;

use serde::Serialize;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Garbage, GarbageRules, Policy, StoreProbe};

use crate::args::{GcArgs, PolicyArgs, Quota, TableArgs};
use crate::output::{print, print_error, write_json_line};

#[derive(Serialize)]
struct GarbageReport<'a> {
    deleted: bool,
    #[serde(flatten)]
    garbage: &'a Garbage,
}

pub(super) fn gc(args: &GcArgs) -> anyhow::Result<bool> {
    let publication = super::open(&args.table.url)?;
    let rules = GarbageRules { keep: args.keep, age_min: args.older_than, delete: args.delete };
    let garbage = publication.collect_garbage(&rules);
    super::print_warnings(&publication);
    let garbage = garbage?;
    if garbage.unreadable_statuses > 0 {
        print_error(&format_args!(
            "warning: the files of all generations are retained, because {} cannot be read: make them readable, or \
             delete them: a running node writes its status again within a minute",
            counted(garbage.unreadable_statuses, "status")
        ));
    }
    print(|stdout| {
        if args.table.json {
            return write_json_line(stdout, &GarbageReport { deleted: args.delete, garbage: &garbage });
        }
        garbage.objects.iter().try_for_each(|object| writeln!(stdout, "{}", Printable(object)))?;
        let (files, bytes) = (counted(garbage.objects.len(), "file"), counted(garbage.bytes, "byte"));
        let remedy = if args.delete || garbage.objects.is_empty() { "" } else { ": pass --delete to delete them" };
        let verb = if args.delete { "deleted" } else { "not needed" };
        writeln!(stdout, "{verb}: {files}, {bytes}{remedy}")?;
        let age = humantime::format_duration(args.older_than);
        match garbage.young {
            0 => Ok(()),
            young => {
                writeln!(stdout, "retained: {} not needed but younger than {age}", counted(young, "file"))
            }
        }
    })?;
    Ok(true)
}

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

#[derive(Serialize)]
struct StoreReport<'a> {
    url: &'a str,
    usable: bool,
    #[serde(flatten)]
    probe: &'a StoreProbe,
}

pub(super) fn check_store(args: &TableArgs, races: u64) -> anyhow::Result<bool> {
    let publication = super::create(&args.url)?;
    let (probe, url) = (publication.probe(races)?, publication.url());
    let usable = probe.is_usable();
    let mib_per_s = |bytes_per_s: u64| bytes_per_s as f64 / f64::from(1 << 20);
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    print(|stdout| {
        if args.json {
            return write_json_line(stdout, &StoreReport { url, usable, probe: &probe });
        }
        writeln!(stdout, "creates an object only once: {}", yes(probe.creates_once))?;
        let won = probe.races - probe.lost_races;
        let in_race = yes(probe.creates_once_in_a_race);
        writeln!(
            stdout,
            "creates an object only once in a race: {in_race}, in {won} of {}",
            counted(probe.races, "race")
        )?;
        writeln!(stdout, "returns new objects: {}", yes(probe.reads_new_objects))?;
        writeln!(stdout, "lists new objects: {}", yes(probe.lists_new_objects))?;
        writeln!(stdout, "upload: {:.1} MiB/s", mib_per_s(probe.upload_bytes_per_s))?;
        writeln!(stdout, "download: {:.1} MiB/s", mib_per_s(probe.download_bytes_per_s))?;
        match usable {
            true => {
                let passes = |lost_percent: f64| {
                    let percent = 100.0 * probe.pass_probability(lost_percent / 100.0);
                    if percent < 0.01 { "less than 0.01 %".to_owned() } else { format!("{percent:.2} %") }
                };
                writeln!(stdout, "{url}: usable")?;
                writeln!(
                    stdout,
                    "a store that loses 1 % of races passes this check with a probability of {}, and one that loses 5 \
                     % with {}: check with more races (--races) for more certainty",
                    passes(1.0),
                    passes(5.0)
                )
            }
            false if !probe.reads_new_objects => {
                writeln!(stdout, "{url}: not usable: new objects are missing: check whether a cache answers")
            }
            false => writeln!(
                stdout,
                "{url}: not usable: two publishers could create the same generation: use a store that honors \
                 If-None-Match, also if requests arrive at the same time"
            ),
        }
    })?;
    Ok(usable)
}
