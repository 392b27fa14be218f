//! Where rows come from: one number for a row says its input and its line.

/// The inputs of a bake, in order. The lines of each follow those of the one before.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The origin of an input's line 0, which no row is on, and the input's name.
    inputs: Vec<(u64, Unit, String)>,
}

/// What rows of an input are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// From 1, as lines of text are.
    Line,
    /// From 1, as rows of Parquet are.
    Row,
    /// From 0, as rows of a table are.
    TableRow,
}

impl Origins {
    /// Adds an input, behind all that were added, the last of which ended on this line.
    pub(super) fn begin(&mut self, name: &str, unit: Unit, lines_before: u64) -> u64 {
        let base = self.inputs.last().map_or(0, |(base, ..)| base + lines_before + 1);
        self.inputs.push((base, unit, name.to_owned()));
        base
    }

    /// The input of a row, what its rows are counted by, and which of them it is.
    pub(super) fn of(&self, origin: u64) -> (&str, Unit, u64) {
        let (base, unit, name) = self.input(origin);
        (name, *unit, origin - base)
    }

    /// A row as a message about a row of another input names it.
    pub(super) fn seen_from(&self, origin: u64, other: u64) -> String {
        let (base, unit, name) = self.input(origin);
        let place = match unit {
            Unit::Line => format!("line {}", origin - base),
            Unit::Row | Unit::TableRow => format!("row {}", origin - base),
        };
        if self.input(other).0 == *base { place } else { format!("{place} of {name}") }
    }

    fn input(&self, origin: u64) -> &(u64, Unit, String) {
        &self.inputs[self.inputs.partition_point(|(base, ..)| *base <= origin).saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_input_and_its_line() {
        let mut origins = Origins::default();
        let a = origins.begin("a.csv", Unit::Line, 0);
        let b = origins.begin("b.db", Unit::TableRow, 7);
        let c = origins.begin("c.csv", Unit::Line, 0);
        assert_eq!(origins.of(a + 7), ("a.csv", Unit::Line, 7));
        assert_eq!(origins.of(c + 1), ("c.csv", Unit::Line, 1));
        assert_eq!(origins.of(b), ("b.db", Unit::TableRow, 0));
        assert_eq!(origins.seen_from(a + 3, a + 7), "line 3");
        assert_eq!(origins.seen_from(b, c + 1), "row 0 of b.db");
    }
}
