//! `zkv gc`: deletes files of a published table that are no longer needed.

use std::io::Write;

use serde::Serialize;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;
use zero_kv::publish::{Garbage, GarbageRules};

use crate::args::GcArgs;
use crate::output::{print, print_error, write_json_line};

#[derive(Serialize)]
struct Report<'a> {
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
            "warning: the files of all generations are retained, because {} cannot be read: make them readable, or delete \
             them: a running node writes its status again within a minute",
            counted(garbage.unreadable_statuses, "status")
        ));
    }
    print(|stdout| {
        if args.table.json {
            return write_json_line(stdout, &Report { deleted: args.delete, garbage: &garbage });
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
