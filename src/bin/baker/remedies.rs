//! Error messages of a failed bake, with the command-line options that can avoid the failure.

use zero_kv::bake::{BakeError, Remedy};

/// Returns the message of the error, followed by the command-line options that can avoid the failure.
pub(crate) fn explain(error: &BakeError) -> anyhow::Error {
    let flags: Vec<_> = error.remedies().into_iter().filter_map(flag).collect();
    match flags.is_empty() {
        true => anyhow::anyhow!("{error}"),
        false => anyhow::anyhow!("{error} ({})", flags.join(", ")),
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
        Remedy::CastBase => "--cast",
        Remedy::ChooseDeleteColumn => "--delete-column",
        Remedy::ReadHeader => "--header",
        Remedy::SetDelimiter => "--delimiter",
        Remedy::ChooseKeyKind => "--keys u64 or --keys bytes",
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
