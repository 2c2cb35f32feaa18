//! The table: figures, their samples, and the verdict over the medians.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a figure must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
    /// Exactly so much, to one hundredth.
    Exactly(f64),
    /// At least `value` where the machine commits `raw_min` times a second, else so many times what it does.
    AtLeastOrTimesRaw { value: f64, raw_min: f64, times: f64 },
    /// Shown for comparison.
    Shown,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// What is measured.
    pub(crate) name: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// What it must be.
    pub(crate) target: Target,
}

/// What the machine did just before a measurement, per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Raw {
    /// Bare commits in the engine that the figure uses.
    pub(crate) commits: f64,
    /// Bare `fdatasync` calls on the same disk.
    pub(crate) fsyncs: f64,
}

#[derive(Debug, Clone)]
struct Row {
    figure: Figure,
    samples: Vec<(f64, Raw)>,
}

/// Everything that was measured, in the order in which figures first came.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
    places: BTreeMap<&'static str, usize>,
}

impl Table {
    /// Adds a measurement.
    pub(crate) fn add(&mut self, figure: Figure, value: f64, raw: Raw) {
        let place = *self.places.entry(figure.name).or_insert(self.rows.len());
        if place == self.rows.len() {
            self.rows.push(Row {
                figure,
                samples: Vec::new(),
            });
        }
        self.rows[place].samples.push((value, raw));
        // Whoever waits sees that it goes on.
        eprintln!(
            "{:<58} {:>12} {:<9} raw {:>7} commits/s {:>7} fsyncs/s",
            figure.name,
            number(value),
            figure.unit,
            number(raw.commits),
            number(raw.fsyncs)
        );
    }

    /// The table as text.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "\n{:<58} {:>11} {:>11} {:>11} {:<9} {:>16} {:<7} {:>10} {:>9} {:>3}\n",
            "figure", "median", "min", "max", "unit", "target", "verdict", "commits/s", "fsyncs/s", "n"
        );
        for row in &self.rows {
            row.render(&mut text);
        }
        text.push_str(
            "\ncommits/s and fsyncs/s: what the bare engine and the bare disk did beside each measurement (medians)\n",
        );
        text
    }
}

impl Row {
    fn render(&self, text: &mut String) {
        let values = || self.samples.iter().map(|(value, _)| *value);
        let median = median(values());
        let commits = self::median(self.samples.iter().map(|(_, raw)| raw.commits));
        let fsyncs = self::median(self.samples.iter().map(|(_, raw)| raw.fsyncs));
        let (target, is_held) = self.figure.target.judge(median, commits);
        let verdict = match is_held {
            Some(true) => "held",
            Some(false) => "missed",
            None => "",
        };
        writeln!(
            text,
            "{:<58} {:>11} {:>11} {:>11} {:<9} {:>16} {:<7} {:>10} {:>9} {:>3}",
            self.figure.name,
            number(median),
            number(values().fold(f64::INFINITY, f64::min)),
            number(values().fold(f64::NEG_INFINITY, f64::max)),
            self.figure.unit,
            target,
            verdict,
            number(commits),
            number(fsyncs),
            self.samples.len(),
        )
        .expect("a String takes everything");
    }
}

impl Target {
    /// The target as text, and whether the value holds it.
    fn judge(self, value: f64, raw: f64) -> (String, Option<bool>) {
        match self {
            Self::AtLeast(least) => (format!(">= {}", number(least)), Some(value >= least)),
            Self::AtMost(most) => (format!("<= {}", number(most)), Some(value <= most)),
            Self::Exactly(exact) => (format!("= {}", number(exact)), Some((value - exact).abs() < 0.005)),
            Self::AtLeastOrTimesRaw {
                value: least,
                raw_min,
                times,
            } => {
                let least = if raw >= raw_min { least } else { raw * times };
                (format!(">= {}", number(least)), Some(value >= least))
            }
            Self::Shown => (String::new(), None),
        }
    }
}

/// The middle value; of an even number the lower of the two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The smallest value that so many per cent of all do not exceed; 0 for none.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// A number with as many digits as say something.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        v if v < 1.0 => 3,
        v if v < 100.0 => 2,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = || [3.0, 1.0, 2.0, 4.0].into_iter();
        assert_eq!(median(values()).to_bits(), 2.0_f64.to_bits());
        assert_eq!(percentile(values(), 99).to_bits(), 4.0_f64.to_bits());
        assert_eq!(percentile(std::iter::empty(), 50).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn a_target_in_proportion_to_the_machine_counts_only_on_a_slow_one() {
        let target = Target::AtLeastOrTimesRaw {
            value: 10_000.0,
            raw_min: 4_000.0,
            times: 2.5,
        };
        assert_eq!(target.judge(9_999.0, 4_000.0).1, Some(false));
        assert_eq!(target.judge(10_000.0, 9_000.0).1, Some(true));
        assert_eq!(target.judge(2_500.0, 1_000.0).1, Some(true));
        assert_eq!(target.judge(2_499.0, 1_000.0).1, Some(false));
    }

    #[test]
    fn the_verdict_is_about_the_median() {
        let figure = Figure {
            name: "a",
            unit: "/s",
            target: Target::AtLeast(2.0),
        };
        let mut table = Table::default();
        for value in [1.0, 2.0, 9.0] {
            table.add(figure, value, Raw::default());
        }
        let text = table.render();
        assert!(text.contains("held") && !text.contains("missed"), "{text}");
    }
}
