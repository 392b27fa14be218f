//! The options that a caller can change to avoid a failure.

use crate::setting::Setting;

/// An option of a bake that a caller can change to avoid a failure.
///
/// Error messages name no option, because each program presents options in its own way: as fields of
/// [`Options`](super::Options), as command-line flags, or as keyword arguments. Each program appends its own names for
/// the options that [`BakeError::remedies`](super::BakeError::remedies) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// Choose another key column ([`Options::key`](super::Options::key)).
    ChooseKey,
    /// Choose another value column ([`Options::value`](super::Options::value)).
    ChooseValue,
    /// Choose other columns to pack into the value ([`ValueSpec::Packed`](super::ValueSpec::Packed)).
    ChooseColumns,
    /// Bake a typed table ([`Options::typed`](super::Options::typed)).
    UseTypedColumns,
    /// Declare the types of columns ([`TypedColumns::types`](super::TypedColumns::types)).
    DeclareTypes,
    /// Declare that a column can be null
    /// ([`Column::is_nullable`](crate::typed::Column::is_nullable) in [`TypedColumns::types`](super::TypedColumns::types)).
    MakeNullable,
    /// Convert the values of the base ([`TypedColumns::cast`](super::TypedColumns::cast)).
    CastBase,
    /// Choose another delete column ([`Options::delete_column`](super::Options::delete_column)).
    ChooseDeleteColumn,
    /// Read column names from the first row ([`Options::header`](super::Options::header)).
    ReadHeader,
    /// Set the byte between fields ([`Options::delimiter`](super::Options::delimiter)).
    SetDelimiter,
    /// Choose whether keys are numbers or bytes ([`Options::keys`](super::Options::keys)).
    ChooseKeyKind,
    /// Read keys as bytes ([`Keys::Bytes`](super::Keys::Bytes)).
    TakeKeysAsBytes,
    /// Read keys as the same kind as the base's keys ([`Keys::Auto`](super::Keys::Auto)).
    TakeKeysAsBase,
    /// Keep one of the rows that have the same key ([`Options::duplicates`](super::Options::duplicates)).
    KeepOneDuplicate,
    /// Allow more bad rows ([`BadRows::Skip`](super::BadRows::Skip)).
    AllowMoreBadRows,
    /// Use the input, which is a baked table, as the base ([`Options::base`](super::Options::base)).
    UseAsBase,
    /// Divide the table into shards ([`bake_shards`](super::bake_shards)).
    BakeShards,
    /// Divide the table into another number of shards, or into shards of another length ([`Shards`](super::Shards)).
    ChooseShards,
    /// Allow more memory ([`Options::memory_bytes`](super::Options::memory_bytes)).
    AllowMoreMemory,
    /// Use fewer threads ([`Options::threads`](super::Options::threads)).
    UseFewerThreads,
    /// Choose another folder for temporary files ([`Options::temp_dir`](super::Options::temp_dir)).
    ChooseTempDir,
    /// Change the given rule for replacing a table, which is a field of [`ReplaceRules`](crate::replace::ReplaceRules).
    ChangeRule(Setting),
}
