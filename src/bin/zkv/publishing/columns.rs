//! Text in columns.

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Returns rows as lines, in which all cells of a column have the same width. The first row has the names of the
/// columns.
pub(super) fn lines<const N: usize>(aligns: [Align; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).zip(aligns).map(|((cell, width), align)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
