//! What programs write to standard error: errors with their causes, and bars that they redraw.

use std::fmt::{self, Display};

use indicatif::ProgressBar;

/// Displays an error with its causes. Messages of the library already contain the messages of their causes, so causes
/// that the line contains are left out.
pub struct WithCauses<'e>(pub &'e anyhow::Error);

impl Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        for cause in self.0.chain().skip(1).map(ToString::to_string) {
            if !line.contains(&cause) {
                line.push_str(": ");
                line.push_str(&cause);
            }
        }
        f.write_str(&line)
    }
}

/// Creates a bar on standard error. The bar is hidden if `is_quiet` is true, if standard error is not a terminal, or if
/// the terminal cannot redraw lines (`TERM` is `dumb` or not set).
pub fn live_bar(is_quiet: bool) -> ProgressBar {
    if is_quiet { ProgressBar::hidden() } else { ProgressBar::no_length() }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use anyhow::Context;

    use super::*;
    use crate::store::StoreError;

    #[test]
    fn each_cause_is_displayed_once() {
        let cause = || io::Error::other("the disk is on fire");
        let error = anyhow::Error::new(StoreError::Io { path: PathBuf::from("a.db"), error: cause() });
        assert_eq!(WithCauses(&error).to_string(), "a.db: the disk is on fire");
        let error = Err::<(), _>(cause()).context("a.db").unwrap_err();
        assert_eq!(WithCauses(&error).to_string(), "a.db: the disk is on fire");
    }
}
