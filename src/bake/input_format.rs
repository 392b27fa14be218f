//! The formats of inputs, and the detection of an input's format.

/// The format of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Detects the format. Parquet is detected by the input's first bytes. Other formats are detected by the end of the
    /// input's name, after `.gz` or `.zst` is removed. Names that end in `.jsonl`, `.ndjson`, or `.json` mean JSON
    /// Lines, names that end in `.tsv` mean TSV, and all other names mean delimited text.
    #[default]
    Auto,
    /// Delimited text (RFC 4180).
    Delimited,
    /// Delimited text with tabs, or with [`Options::delimiter`](super::Options::delimiter) if it is set.
    Tsv,
    /// JSON Lines: one object per line.
    JsonLines,
    /// Apache Parquet. Requires the feature `parquet`.
    Parquet,
}

/// The first bytes of formats that have a magic number.
const MAGICS: &[(&[u8], Format)] = &[(b"PAR1", Format::Parquet)];
/// The endings of file names that identify formats without a magic number.
const NAME_ENDS: &[(&str, Format)] = &[
    (".jsonl", Format::JsonLines),
    (".ndjson", Format::JsonLines),
    (".json", Format::JsonLines),
    (".tsv", Format::Tsv),
];

impl Format {
    /// Returns `self`, or the detected format if `self` is `Auto`. The format is detected from the input's name and
    /// first bytes.
    pub(super) fn detect(self, name: &str, head: &[u8]) -> Format {
        if self != Format::Auto {
            return self;
        }
        let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
        let by_magic = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| *format);
        let by_name = || NAME_ENDS.iter().find(|(end, _)| plain.ends_with(end)).map(|(_, format)| *format);
        by_magic.or_else(by_name).unwrap_or(Format::Delimited)
    }
}
