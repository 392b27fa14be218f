//! The command-line options that can avoid a failure or a wrong table.

use std::{env, fmt};

use zero_kv::bake::{BakeError, Remedy, RowFault, Warning, parse_types, write_types};
use zero_kv::typed::ColumnType;

/// Characters that a shell does not pass on unchanged unless they are quoted.
const SHELL_CHARS: &[char] =
    &['(', ')', '?', '*', '[', ']', '\'', '"', '$', '`', '\\', '&', '|', ';', '<', '>', '!', '#', '~', '{', '}'];

/// Returns the message of the error, followed by the command-line options that can avoid the failure. If probably all
/// keys are text, complete commands follow the message.
pub(crate) fn explain(error: &BakeError) -> anyhow::Error {
    let remedies = error.remedies();
    let is_first_key = matches!(error, BakeError::Row { fault: RowFault::Key { is_first: true, .. }, .. });
    let message = if is_first_key { with_commands(error, &remedies) } else { with_options(error, &remedies) };
    anyhow::anyhow!(message)
}

/// Returns the text of a warning, followed by the options or the commands that avoid it.
pub(crate) fn explain_warning(warning: &Warning) -> String {
    match warning {
        Warning::PossibleHeader { .. } => with_commands(warning, warning.remedies()),
        _ => with_options(warning, warning.remedies()),
    }
}

/// Returns a message, followed by this command with an option added, for each of these remedies. A remedy whose value
/// only the user knows is an option alone.
fn with_commands(message: &impl fmt::Display, remedies: &[Remedy]) -> String {
    let args: Option<Vec<String>> = env::args_os().skip(1).map(|arg| arg.into_string().ok()).collect();
    let Some(args) = args else { return with_options(message, remedies) };
    let option = |remedy: Remedy| flag(remedy).map(str::to_owned);
    let commands = remedies.iter().filter_map(|remedy| command(&args, *remedy).or_else(|| option(*remedy)));
    let commands: Vec<_> = commands.collect();
    match commands.is_empty() {
        true => with_options(message, remedies),
        false => format!("{message} ({})", commands.join(", or ")),
    }
}

/// Returns the command with these arguments and the option that a remedy asks for.
fn command(args: &[String], remedy: Remedy) -> Option<String> {
    let mut args = args.to_vec();
    let added: &[&str] = match remedy {
        Remedy::ReadHeader => &["--header"],
        Remedy::ReadNoHeader => &["--no-header"],
        Remedy::TakeKeysAsBytes => {
            take_option(&mut args, "--keys");
            if let Some(types) = take_option(&mut args, "--types") {
                let key = take_option(&mut args, "--key");
                args.splice(0..0, ["--types".to_owned(), with_text_key(&types, key.as_deref())]);
                args.splice(0..0, key.into_iter().flat_map(|key| ["--key".to_owned(), key]));
            }
            &["--keys", "bytes"]
        }
        _ => return None,
    };
    args.splice(0..0, added.iter().map(|arg| (*arg).to_owned()));
    let quoted: Vec<_> = args.iter().map(|arg| shell_quoted(arg)).collect();
    Some(format!("baker {}", quoted.join(" ")))
}

/// Removes an option from the arguments, and returns its value.
fn take_option(args: &mut Vec<String>, option: &str) -> Option<String> {
    let at = args
        .iter()
        .position(|arg| arg.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
    let arg = args.remove(at);
    match arg.split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None if at < args.len() => Some(args.remove(at)),
        None => None,
    }
}

/// Returns a list of types in which the key has the type text, if its type is listed.
fn with_text_key(types: &str, key: Option<&str>) -> String {
    let Ok(mut columns) = parse_types(types) else { return types.to_owned() };
    columns.iter_mut().filter(|column| Some(column.name.as_str()) == key).for_each(|column| {
        column.column_type = ColumnType::Text;
    });
    write_types(&columns)
}

/// Returns an argument as it is written in a shell.
pub(crate) fn shell_quoted(arg: &str) -> String {
    match arg.is_empty() || arg.contains(char::is_whitespace) || arg.contains(SHELL_CHARS) {
        true => format!("'{}'", arg.replace('\'', "'\\''")),
        false => arg.to_owned(),
    }
}

/// Returns a message, followed by the command-line options of these remedies.
fn with_options(message: &impl fmt::Display, remedies: &[Remedy]) -> String {
    let flags: Vec<_> = remedies.iter().filter_map(|remedy| flag(*remedy)).collect();
    match flags.is_empty() {
        true => message.to_string(),
        false => format!("{message} ({})", flags.join(", ")),
    }
}

fn flag(remedy: Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::ChooseKey => "--key",
        Remedy::ChooseValue => "--value",
        Remedy::ChooseColumns => "--columns",
        Remedy::UseTypedColumns => "--typed",
        Remedy::DeclareTypes => "--types",
        Remedy::MakeNullable => "--types NAME:TYPE?",
        Remedy::RequireColumns => "--require-columns",
        Remedy::CastBase => "--cast",
        Remedy::ChooseDeleteColumn => "--delete-column",
        Remedy::ReadHeader => "--header",
        Remedy::ReadNoHeader => "--no-header",
        Remedy::SetDelimiter => "--delimiter",
        Remedy::SetQuote => "--quote",
        Remedy::ReadWithoutQuotes => "--quote none",
        Remedy::SetEscape => "--escape",
        Remedy::SkipComments => "--comment",
        Remedy::SetNullText => "--null",
        Remedy::ChooseKeyKind => "--keys",
        Remedy::ChooseLayout => "--layout",
        Remedy::TakeKeysAsAddresses => "--keys ip",
        Remedy::TakeKeysAsUuids => "--keys uuid",
        Remedy::ChooseRanges => "--ranges or --cidr",
        Remedy::ChooseOverlaps => "--overlaps first, --overlaps last, or --overlaps narrowest",
        Remedy::TakeKeysAsBytes => "--keys bytes",
        Remedy::TakeKeysAsBase => "--keys auto",
        Remedy::KeepOneDuplicate => "--duplicates first or --duplicates last",
        Remedy::AllowMoreBadRows => "--max-bad-rows",
        Remedy::UseAsBase => "--base, or baker merge",
        Remedy::BakeShards => "--shards",
        Remedy::ChooseShards => "--shards or --shard-size",
        Remedy::AllowMoreMemory => "--memory",
        Remedy::UseFewerThreads => "--threads",
        Remedy::ChooseTempDir => "--temp-dir",
        Remedy::ChangeRule(setting) => setting.option(),
        _ => return None,
    })
}
