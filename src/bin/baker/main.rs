//! `baker`: compiles `key,value` rows into a file to serve.

mod args;
mod files;
mod progress;
mod publishing;
mod remedies;
mod report;
mod signals;

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use args::{Args, BakeArgs, Command, MergeArgs, OutputArgs, command};
use clap::FromArgMatches;
use files::{NamedFile, Role};
use progress::ProgressDisplay;
use publishing::Publisher;
use remedies::explain;
use report::Baked;
use signals::Signals;
use zero_kv::bake::{self, Cancel, Input, Options, Progress, Shards, Warning};
use zero_kv::cli::generate::MoreCompletions;
use zero_kv::cli::stderr::WithCauses;
use zero_kv::cli::{generate, whole_file};
use zero_kv::printable::Printable;

/// The file name on the command line that stands for standard output.
const STDOUT: &str = "-";

fn main() -> ExitCode {
    if let Some(code) = generate::run_if_requested(command, MoreCompletions::default()) {
        return code;
    }
    let args = Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let cancel = Cancel::default();
    let options = args.options(&cancel).unwrap_or_else(|error| error.exit());
    let ended = run(&args, &options, &cancel);
    ended.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "baker: {}", Printable(WithCauses(error)));
    ExitCode::from(1)
}

fn run(args: &Args, options: &Options, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let output = args.output();
    let live = ProgressDisplay::new(output.quiet);
    let publisher = Publisher::prepare(args)?;
    let signals = Signals::watch(cancel, &live).context("signals cannot be handled")?;
    let baked = match &args.command {
        None => bake_rows(&args.rows, options, args.shards(), &live),
        Some(Command::Merge(merge)) => merge_tables(merge, options, args.shards(), &live),
    };
    let arrived = signals.bake_ended();
    live.clear();
    let published = baked.and_then(|baked| {
        print_report(output, &baked, began.elapsed())?;
        publisher.publish(output, &baked, cancel)
    });
    let code = published.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS);
    arrived.die();
    Ok(code)
}

fn bake_rows(
    args: &BakeArgs,
    options: &Options,
    shards: Option<Shards>,
    live: &ProgressDisplay,
) -> anyhow::Result<Baked> {
    let inputs = Input::expand(&args.input.inputs).map_err(|error| explain(&error))?;
    let named =
        |input: &Input<'_>| input.path().map_or_else(NamedFile::stdin, |path| NamedFile::new(Role::Input, path));
    let mut files: Vec<_> = inputs.iter().map(named).collect();
    files.extend(args.input.base.iter().map(|path| NamedFile::new(Role::Table, path)));
    files.extend(args.bad_rows_file().map(|path| NamedFile::new(Role::BadRows, path)));
    check(files, &args.output)?;
    let input_len_bytes = len_bytes(&inputs);
    let options = &with_key_type_of_file(args, options, &inputs);
    let progress = &mut |progress| match progress {
        Progress::Warning(Warning::PossibleHeader { .. }) if args.input.no_header => {}
        progress => live.show(progress, input_len_bytes),
    };
    let output = &args.output.output;
    let baked = match shards {
        None => bake::bake(inputs, output, options.with_progress(progress)).map(|report| Baked::Table(report.into())),
        Some(shards) => bake::bake_shards(inputs, output, shards, options.with_progress(progress)).map(Baked::Shards),
    };
    baked.map_err(|error| explain(&error))
}

/// Returns the options with the type of the keys that the first input has, if it is a Parquet file and no option selects
/// the type.
#[cfg(feature = "parquet")]
fn with_key_type_of_file(args: &BakeArgs, options: &Options, inputs: &[Input<'_>]) -> Options {
    let mut options = options.clone();
    // Other files are not opened twice: an error of the first time would be ignored.
    let is_parquet = |path: &Path| {
        options.format == bake::Format::Parquet || path.extension().is_some_and(|extension| extension == "parquet")
    };
    if args.leaves_keys_to_file()
        && let Some(path) = inputs.first().and_then(|input| input.path()).filter(|path| is_parquet(path))
        && let Some(key_type) = bake::parquet_key_type(path, &options)
    {
        options.keys = key_type.into();
    }
    options
}

#[cfg(not(feature = "parquet"))]
fn with_key_type_of_file(_: &BakeArgs, options: &Options, _: &[Input<'_>]) -> Options {
    options.clone()
}

fn merge_tables(
    args: &MergeArgs,
    options: &Options,
    shards: Option<Shards>,
    live: &ProgressDisplay,
) -> anyhow::Result<Baked> {
    let files = args.tables.iter().map(|path| NamedFile::new(Role::Table, path));
    check(files.collect(), &args.output)?;
    let progress = &mut |progress| live.show(progress, None);
    let (tables, output) = (&args.tables, &args.output.output);
    let baked = match shards {
        None => bake::merge(tables, output, options.with_progress(progress)).map(|report| Baked::Table(report.into())),
        Some(shards) => bake::merge_shards(tables, output, shards, options.with_progress(progress)).map(Baked::Shards),
    };
    baked.map_err(|error| explain(&error))
}

/// Checks that the roles of these files, of the output, and of the report do not conflict, and that the report can be
/// written.
fn check(mut files: Vec<NamedFile>, args: &OutputArgs) -> anyhow::Result<()> {
    let report = args.report.as_deref().filter(|path| *path != Path::new(STDOUT));
    files.push(NamedFile::new(Role::Output, &args.output));
    files.extend(report.map(|path| NamedFile::new(Role::Report, path)));
    files::check_apart(&files)?;
    report.map_or(Ok(()), whole_file::check_can_be_written)
}

/// Returns the total length of the inputs, or `None` if one of them is not a regular file.
fn len_bytes(inputs: &[Input<'_>]) -> Option<u64> {
    let len_bytes = |input: &Input<'_>| {
        let metadata = input.path().and_then(|path| fs::metadata(path).ok());
        metadata.filter(Metadata::is_file).map(|metadata| metadata.len())
    };
    inputs.iter().map(len_bytes).sum()
}

/// Prints the summary and writes the report. A summary that cannot be printed is not an error, because the table is
/// already in place.
fn print_report(args: &OutputArgs, baked: &Baked, took: Duration) -> anyhow::Result<()> {
    let wants_stdout = args.report.as_deref() == Some(Path::new(STDOUT));
    if !args.quiet {
        let line = Printable(report::summary(&args.output, baked, took));
        // With `--report -`, only the report goes to standard output.
        let _ = if wants_stdout { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
    }
    let Some(path) = &args.report else { return Ok(()) };
    let text = format!("{:#}\n", report::json(&args.output, baked, took));
    let written = match wants_stdout {
        true => io::stdout().write_all(text.as_bytes()).context("standard output"),
        false => whole_file::write_whole(path, text.as_bytes()),
    };
    written.with_context(|| format!("{} is in place, but its report could not be written", args.output.display()))
}
