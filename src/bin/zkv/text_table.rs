//! Tables of text for people.
//!
//! In: rows of cells, which may contain any text. Out: lines, in which each cell is printable, and is shortened if it
//! is long. Only this module aligns foreign text: the widths of Rust's formatting are 16-bit numbers, so a long text
//! would cause a panic.

use std::fmt::Write;

use zero_kv::printable::shortened;

const CELL_MAX_CHARS: usize = 120;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Returns rows as lines, in which all cells of a column have the same width. The first row has the names of the
/// columns.
pub(crate) fn lines<const N: usize>(aligns: [Align; N], rows: &[[String; N]]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| shortened(cell, CELL_MAX_CHARS))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), align) in row.iter().zip(widths).zip(aligns) {
            // Writing to a string cannot fail.
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_cells_are_shortened_and_printable() {
        let hostile = ["n\x1b[2J\u{9b}H\n1  3".to_owned(), "x".repeat(66_000)];
        let table = lines([Align::Left, Align::Right], &[["name", "note"].map(str::to_owned), hostile]);
        let [header, row] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
        assert!(row.starts_with(r"n\u001b[2J\u009bH\n1  3  xxx") && row.ends_with("xxx..."), "{row}");
        assert_eq!((header.len(), header.trim_start().len()), (row.len(), row.len()));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["name", "n"], ["ü", "10"]].map(|row| row.map(str::to_owned));
        assert_eq!(lines([Align::Left, Align::Right], &rows), "name   n\nü     10\n");
    }
}
