//! Assigns each row an origin: one number that identifies the row's input and its line.

/// Maps origins to inputs and lines. Origins ascend from line to line, and from one input to the next.
#[derive(Debug, Default)]
pub(super) struct Origins {
    inputs: Vec<InputOrigins>,
}

#[derive(Debug)]
struct InputOrigins {
    /// The origin of line 0 of the input. The origin of a row is this number plus the row's line or row number.
    base: u64,
    unit: RowUnit,
    name: String,
}

/// The unit in which messages count the rows of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowUnit {
    /// Lines of text, counted from 1.
    Line,
    /// Rows, counted from 1.
    Row,
    /// Rows of a table, counted from 0.
    TableRow,
}

impl Origins {
    /// Adds an input, and returns the origin of the input's line 0. `last_line_before` must be at least the number of
    /// the previous input's last line.
    pub(super) fn begin(&mut self, name: &str, unit: RowUnit, last_line_before: u64) -> u64 {
        let base = self.inputs.last().map_or(0, |last| last.base + last_line_before + 1);
        self.inputs.push(InputOrigins { base, unit, name: name.to_owned() });
        base
    }

    /// Returns the input of the row with this origin, the unit in which the input's rows are counted, and the row's
    /// number in this unit.
    pub(super) fn locate(&self, origin: u64) -> (&str, RowUnit, u64) {
        let input = self.input(origin);
        (&input.name, input.unit, origin - input.base)
    }

    /// Returns the line or row number of the row with the origin `origin`, for a message about the row with the origin
    /// `other`. If the two rows are in different inputs, the result also names the input of the row with the origin
    /// `origin`.
    pub(super) fn describe(&self, origin: u64, other: u64) -> String {
        let InputOrigins { base, unit, name } = self.input(origin);
        let place = match unit {
            RowUnit::Line => format!("line {}", origin - base),
            RowUnit::Row | RowUnit::TableRow => format!("row {}", origin - base),
        };
        if self.input(other).base == *base { place } else { format!("{place} of {name}") }
    }

    fn input(&self, origin: u64) -> &InputOrigins {
        &self.inputs[self.inputs.partition_point(|input| input.base <= origin).saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_identifies_its_input_and_line() {
        let mut origins = Origins::default();
        let a = origins.begin("a.csv", RowUnit::Line, 0);
        let b = origins.begin("b.db", RowUnit::TableRow, 7);
        let c = origins.begin("c.csv", RowUnit::Line, 0);
        assert_eq!(origins.locate(a + 7), ("a.csv", RowUnit::Line, 7));
        assert_eq!(origins.locate(c + 1), ("c.csv", RowUnit::Line, 1));
        assert_eq!(origins.locate(b), ("b.db", RowUnit::TableRow, 0));
        assert_eq!(origins.describe(a + 3, a + 7), "line 3");
        assert_eq!(origins.describe(b, c + 1), "row 0 of b.db");
    }
}
