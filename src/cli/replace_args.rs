//! Command-line options for the rules that a new table must meet to replace another one.

use crate::replace::ReplaceRules;

#[derive(clap::Args)]
pub struct ReplaceArgs {
    /// Reject a table with fewer rows than this, even if there is no table to replace
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    min_rows: u64,
    /// Reject a table that lost more than this percentage of the old table's rows, such as 50%
    /// [default: reject only the loss of all rows]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_shrink: Option<u8>,
    /// Allow a table without rows to replace a table with rows
    #[arg(long, conflicts_with = "min_rows")]
    allow_empty: bool,
    /// Allow a table to replace a table with the other kind of keys
    #[arg(long)]
    allow_key_kind_change: bool,
}

impl ReplaceArgs {
    pub fn rules(&self) -> ReplaceRules {
        ReplaceRules {
            rows_min: self.min_rows,
            shrink_max_percent: self.max_shrink,
            allow_empty: self.allow_empty,
            allow_key_kind_change: self.allow_key_kind_change,
        }
    }
}

fn parse_percent(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "expected a whole percentage from 0% to 100%, such as 50%".to_owned())
}
