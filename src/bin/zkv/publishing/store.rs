//! `zkv store check`: checks that tables can be published to a store.

use std::io::Write;

use serde::Serialize;
use zero_kv::publish::{Publication, StoreProbe};

use crate::args::TableArgs;
use crate::output::{print, write_json_line};

#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    usable: bool,
    #[serde(flatten)]
    probe: &'a StoreProbe,
}

pub(super) fn check(args: &TableArgs) -> anyhow::Result<bool> {
    let publication = Publication::create(&args.url)?;
    let (probe, url) = (publication.probe()?, publication.url());
    let usable = probe.is_usable();
    let mib_per_s = |bytes_per_s: u64| bytes_per_s as f64 / f64::from(1 << 20);
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    print(|stdout| {
        if args.json {
            return write_json_line(stdout, &Report { url, usable, probe: &probe });
        }
        writeln!(stdout, "creates an object only once: {}", yes(probe.creates_once))?;
        writeln!(stdout, "creates an object only once in a race: {}", yes(probe.creates_once_in_a_race))?;
        writeln!(stdout, "lists new objects: {}", yes(probe.lists_new_objects))?;
        writeln!(stdout, "upload: {:.1} MiB/s", mib_per_s(probe.upload_bytes_per_s))?;
        writeln!(stdout, "download: {:.1} MiB/s", mib_per_s(probe.download_bytes_per_s))?;
        match usable {
            true => writeln!(stdout, "{url}: usable"),
            false => writeln!(
                stdout,
                "{url}: not usable: two publishers could create the same generation: use a store that honors \
                 If-None-Match"
            ),
        }
    })?;
    Ok(usable)
}
