//! How things are printed: colours on a terminal and nowhere else, ages as kubectl has them, columns, JSON and YAML.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use serde::Serialize;

use super::args::Format;
use super::fault::PluginError;

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Green,
    Yellow,
    Red,
    Faint,
    Bold,
    /// One of a few that tell pods apart.
    Pod(usize),
}

/// Whether anything is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint(bool);

/// Colours that tell pods apart.
const POD_CODES: [&str; 6] = ["36", "33", "35", "34", "32", "31"];

impl Paint {
    /// No colours.
    #[cfg(test)]
    pub(super) const OFF: Self = Self(false);

    /// Of this process's standard output.
    pub(super) fn of_output() -> Self {
        #[expect(clippy::disallowed_methods, reason = "what terminals agree on, no settings of ours")]
        let variable = |name: &str| std::env::var_os(name);
        let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|value| value == "dumb");
        Self(std::io::stdout().is_terminal() && !refused && !is_dumb)
    }

    /// A text in a colour.
    pub(super) fn text(self, colour: Colour, text: &str) -> String {
        if !self.0 || text.is_empty() {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
            Colour::Faint => "2",
            Colour::Bold => "1",
            Colour::Pod(number) => POD_CODES[number % POD_CODES.len()],
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Writes to standard output. Whoever stops reading, as `head` does, has read enough.
pub(super) fn show(text: &str) {
    let mut output = std::io::stdout().lock();
    if let Err(error) = output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        let enough = error.kind() == ErrorKind::BrokenPipe;
        std::process::exit(if enough { super::DONE } else { super::FAILED }.into());
    }
}

/// A value for programs; `None` for people.
pub(super) fn document(value: &impl Serialize, format: Format) -> Result<Option<String>, PluginError> {
    let failed = |error: &dyn std::fmt::Display| PluginError::Api(format!("it cannot be printed: {error}"));
    Ok(match format {
        Format::Text => None,
        Format::Json => {
            let text = serde_json::to_string_pretty(value).map_err(|error| failed(&error))?;
            Some(text + "\n")
        }
        Format::Yaml => Some(serde_yaml::to_string(value).map_err(|error| failed(&error))?),
    })
}

/// A length of time as kubectl tells it: its largest unit.
pub(super) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Rows under a heading, each column as wide as its widest cell, the last one as it is.
pub(super) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let heading: Vec<String> = heading.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing into a String cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One thing or several of it.
pub(super) fn count(number: i64, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = vec![vec!["a".to_owned(), "long".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["ID", "B", "C"], &rows), "ID  B     C\na   long  x\n");
    }

    #[test]
    fn colours_are_written_only_where_they_are_on() {
        assert_eq!(Paint(true).text(Colour::Red, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Paint::OFF.text(Colour::Red, "x"), "x");
        assert_eq!(Paint(true).text(Colour::Pod(7), "x"), "\u{1b}[33mx\u{1b}[0m");
    }
}
