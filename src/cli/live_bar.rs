//! Bars and lines that programs redraw on a terminal.

use indicatif::ProgressBar;

/// Creates a bar on standard error. The bar is hidden if `is_quiet` is true, if standard error is not a terminal, or if the
/// terminal cannot redraw lines (`TERM` is `dumb` or not set).
pub fn live_bar(is_quiet: bool) -> ProgressBar {
    if is_quiet { ProgressBar::hidden() } else { ProgressBar::no_length() }
}
