//! `zkv store check`: checks that tables can be published to a store.

use std::io::Write;

use serde::Serialize;
use zero_kv::counted::counted;
use zero_kv::publish::StoreProbe;

use crate::args::TableArgs;
use crate::output::{print, write_json_line};

#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    usable: bool,
    #[serde(flatten)]
    probe: &'a StoreProbe,
}

pub(super) fn check(args: &TableArgs, races: u64) -> anyhow::Result<bool> {
    let publication = super::create(&args.url)?;
    let (probe, url) = (publication.probe(races)?, publication.url());
    let usable = probe.is_usable();
    let mib_per_s = |bytes_per_s: u64| bytes_per_s as f64 / f64::from(1 << 20);
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    print(|stdout| {
        if args.json {
            return write_json_line(stdout, &Report { url, usable, probe: &probe });
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
                    "a store that loses 1 % of races passes this check with a probability of {}, and one that loses 5 % \
                     with {}: check with more races (--races) to be surer",
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
