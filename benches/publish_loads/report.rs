//! Tables of figures.

/// The figures of all rounds, by name.
#[derive(Default)]
pub(crate) struct Figures {
    /// The name, the unit with a space before it, and the figure of each round.
    rows: Vec<(String, &'static str, Vec<f64>)>,
}

impl Figures {
    /// Adds the figure of a round. A ratio has no unit.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, figure: f64) {
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.2.push(figure),
            None => self.rows.push((name.to_owned(), unit, vec![figure])),
        }
    }

    /// Prints a Markdown table with the median, the smallest, and the greatest figure of all rounds.
    pub(crate) fn print(mut self) {
        println!("\n<!-- figures: publish -->\n\n| measured | median | least | greatest |\n|---|---:|---:|---:|");
        for (name, unit, figures) in &mut self.rows {
            figures.sort_by(f64::total_cmp);
            let (median, last) = (figures[figures.len() / 2], figures[figures.len() - 1]);
            println!("| {name} | {median:.2}{unit} | {:.2} | {last:.2} |", figures[0]);
        }
    }
}

/// Returns a quantile of figures.
pub(crate) fn quantile(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * share) as usize]
}
