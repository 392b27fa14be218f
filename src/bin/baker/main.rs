//! `baker`: compiles `key,value` rows into a file to serve.

mod args;
mod files;
#[path = "../../generate.rs"]
mod generate;
mod progress;
#[path = "../../replace_args.rs"]
mod replace_args;
mod report;
mod signals;
#[path = "../../size.rs"]
mod size;
#[path = "../../special_file.rs"]
mod special_file;
#[path = "../../whole_file.rs"]
mod whole_file;

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{CommandFactory, Parser};
use zero_kv::bake::{self, Cancel, Input, Options, Report};

use args::{Args, BakeArgs, Command, MergeArgs, OutputArgs};
use files::{Named, Role};
use progress::Live;
use signals::Signals;

/// Standard output, where a file is asked for.
const STDOUT: &str = "-";

fn main() -> ExitCode {
    if let Some(code) = generate::run_if_requested(Args::command) {
        return code;
    }
    let args = Args::parse();
    let cancel = Cancel::default();
    let options = args.options(&cancel).unwrap_or_else(|error| error.exit());
    let ended = run(&args, &options, &cancel);
    ended.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "baker: {error:#}");
    ExitCode::from(1)
}

fn run(args: &Args, options: &Options, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let output = args.output();
    let live = Live::new(output.quiet);
    let signals = Signals::watch(cancel, &live).context("signals cannot be handled")?;
    let baked = match &args.command {
        None => bake_rows(&args.rows, options, &live),
        Some(Command::Merge(merge)) => merge_tables(merge, options, &live),
    };
    let came = signals.bake_ended();
    live.clear();
    let told = baked.and_then(|report| tell(output, &report, began.elapsed()));
    let code = told.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS);
    came.die();
    Ok(code)
}

fn bake_rows(args: &BakeArgs, options: &Options, live: &Live) -> anyhow::Result<Report> {
    let inputs = Input::expand(&args.input.inputs)?;
    let named = |input: &Input<'_>| input.path().map_or_else(Named::stdin, |path| Named::new(Role::Input, path));
    let mut files: Vec<_> = inputs.iter().map(named).collect();
    files.extend(args.input.base.iter().map(|path| Named::new(Role::Table, path)));
    files.extend(args.bad_rows_file().map(|path| Named::new(Role::BadRows, path)));
    check(files, &args.output)?;
    let input_len_bytes = len_bytes(&inputs);
    let progress = &mut |progress| live.show(progress, input_len_bytes);
    Ok(bake::bake(inputs, &args.output.output, options, progress)?)
}

fn merge_tables(args: &MergeArgs, options: &Options, live: &Live) -> anyhow::Result<Report> {
    let files = args.tables.iter().map(|path| Named::new(Role::Table, path));
    check(files.collect(), &args.output)?;
    Ok(bake::merge(&args.tables, &args.output.output, options, &mut |progress| live.show(progress, None))?)
}

/// An error if the output or the report is one of these files, or the report cannot be written.
fn check(mut files: Vec<Named>, args: &OutputArgs) -> anyhow::Result<()> {
    let report = args.report.as_deref().filter(|path| *path != Path::new(STDOUT));
    files.push(Named::new(Role::Output, &args.output));
    files.extend(report.map(|path| Named::new(Role::Report, path)));
    files::check_apart(&files)?;
    report.map_or(Ok(()), whole_file::check_can_be_written)
}

/// What all inputs have together, if all are files.
fn len_bytes(inputs: &[Input<'_>]) -> Option<u64> {
    let len_bytes = |input: &Input<'_>| {
        let metadata = input.path().and_then(|path| fs::metadata(path).ok());
        metadata.filter(Metadata::is_file).map(|metadata| metadata.len())
    };
    inputs.iter().map(len_bytes).sum()
}

/// Prints the summary and writes the report. The table is in place by now, so a summary that nobody reads is no error.
fn tell(args: &OutputArgs, report: &Report, took: Duration) -> anyhow::Result<()> {
    let wants_stdout = args.report.as_deref() == Some(Path::new(STDOUT));
    if !args.quiet {
        let line = report::summary(&args.output, report, took);
        // Whoever reads the report must not find anything else there.
        let _ = if wants_stdout { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
    }
    let Some(path) = &args.report else { return Ok(()) };
    let text = format!("{:#}\n", report::json(&args.output, report, took));
    let written = match wants_stdout {
        true => io::stdout().write_all(text.as_bytes()).context("standard output"),
        false => whole_file::write_whole(path, text.as_bytes()),
    };
    written.with_context(|| format!("{} is in place, but its report failed", args.output.display()))
}
