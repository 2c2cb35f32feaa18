//! The env file: lines of `NAME=VALUE`.
//!
//! Blank lines and lines that start with `#` are skipped, and `export ` before a name is. A value may stand in single
//! quotes (kept as it is) or in double quotes (`\n`, `\"`, `\\` are read); without quotes it is trimmed and ends before
//! ` #`. Nothing is expanded, and a value is one line: what a shell would make of the file does not matter.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::fault::{ConfigFault, Origin};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const KEY: &str = "--env-file";

/// What the file says: name to line and value.
pub(super) type Entries = BTreeMap<String, (usize, String)>;

/// Reads a file; what cannot be read is left out and told.
pub(super) fn read(path: &Path) -> (Entries, Vec<ConfigFault>) {
    let unreadable = |reason| (Entries::new(), vec![ConfigFault::new(KEY, Origin::Flag(KEY), reason)]);
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) => {
            return unreadable(match error.kind() {
                ErrorKind::NotFound => "there is no such file",
                ErrorKind::PermissionDenied => "the file may not be read by this user",
                _ => "the file cannot be opened",
            });
        }
    };
    let mut bytes = Vec::new();
    if file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).is_err() {
        return unreadable("the file cannot be read");
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return unreadable("the file is larger than 1 MiB");
    }
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text),
        Err(_) => unreadable("the file is not UTF-8 text"),
    }
}

/// Reads the text of a file. Of two lines with one name the second is refused: which of them was meant is anybody's guess.
fn parse(text: &str) -> (Entries, Vec<ConfigFault>) {
    let mut entries = Entries::new();
    let mut faults = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let read = assignment(line).and_then(|(name, value)| {
            if entries.contains_key(name) {
                return Err("names a variable that an earlier line has set");
            }
            entries.insert(name.to_owned(), (number, value));
            Ok(())
        });
        if let Err(reason) = read {
            faults.push(ConfigFault::new(KEY, Origin::EnvFile(number), reason));
        }
    }
    (entries, faults)
}

fn assignment(line: &str) -> Result<(&str, String), &'static str> {
    let line = line.strip_prefix("export ").map_or(line, str::trim_start);
    let (name, rest) = line.split_once('=').ok_or("must have the form NAME=VALUE")?;
    let name = name.trim_end();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("the name may hold letters, digits and _ only");
    }
    Ok((name, value(rest.trim())?))
}

fn value(text: &str) -> Result<String, &'static str> {
    let (read, rest) = if let Some(inside) = text.strip_prefix('\'') {
        let (inside, rest) = inside.split_once('\'').ok_or(UNCLOSED)?;
        (inside.to_owned(), rest)
    } else if let Some(inside) = text.strip_prefix('"') {
        double_quoted(inside)?
    } else {
        let end = text.find(" #").or_else(|| text.find("\t#")).unwrap_or(text.len());
        return Ok(text[..end].trim_end().to_owned());
    };
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        Ok(read)
    } else {
        Err("something follows the closing quote")
    }
}

const UNCLOSED: &str = "the quote is not closed in its line";

fn double_quoted(inside: &str) -> Result<(String, &str), &'static str> {
    let mut read = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((read, &inside[at + 1..])),
            '\\' => match chars.next().ok_or(UNCLOSED)?.1 {
                'n' => read.push('\n'),
                c @ ('"' | '\\') => read.push(c),
                _ => return Err("after \\ only n, \" and \\ are read"),
            },
            c => read.push(c),
        }
    }
    Err(UNCLOSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_documented() {
        let text = "\u{feff}# comment\r\n\n  A=1\r\nexport B = two words  # why\nC='a # \\n \"b\"' # why\nD=\"x\\n\\\"y\\\" \\\\ #\"\nE=\nF=a#b=c\n";
        let (entries, faults) = parse(text);
        assert_eq!(faults, []);
        let found: Vec<_> = entries.iter().map(|(k, (n, v))| (k.as_str(), *n, v.as_str())).collect();
        assert_eq!(
            found,
            [
                ("A", 3, "1"),
                ("B", 4, "two words"),
                ("C", 5, "a # \\n \"b\""),
                ("D", 6, "x\n\"y\" \\ #"),
                ("E", 7, ""),
                ("F", 8, "a#b=c"),
            ]
        );
    }

    #[test]
    fn every_bad_line_is_told_with_its_number_and_without_its_text() {
        let text = "hunter2\n1A=x\nA B=x\nC='x\nD=\"x\nE=\"x\"y\nF=\"\\t\"\nG=1\nG=1\n=x\n";
        let (entries, faults) = parse(text);
        assert_eq!(entries.len(), 1);
        let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let name = "the name may hold letters, digits and _ only";
        let open = "the quote is not closed in its line";
        let expected = [
            (1, "must have the form NAME=VALUE"),
            (2, name),
            (3, name),
            (4, open),
            (5, open),
            (6, "something follows the closing quote"),
            (7, "after \\ only n, \" and \\ are read"),
            (9, "names a variable that an earlier line has set"),
            (10, name),
        ]
        .map(|(line, reason)| format!("--env-file (env file line {line}): {reason}"));
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_one_fault() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("env");
        let told = |path: &Path| read(path).1.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(told(&path), ["--env-file (flag --env-file): there is no such file"]);
        assert_eq!(
            told(folder.path()),
            ["--env-file (flag --env-file): the file cannot be read"]
        );
        std::fs::write(&path, b"A=\xff").expect("writable");
        assert_eq!(
            told(&path),
            ["--env-file (flag --env-file): the file is not UTF-8 text"]
        );
        let size = usize::try_from(FILE_BYTES_MAX).expect("1 MiB");
        std::fs::write(&path, "#".repeat(size)).expect("writable");
        assert_eq!(told(&path), Vec::<String>::new());
        std::fs::write(&path, "#".repeat(size + 1)).expect("writable");
        assert_eq!(
            told(&path),
            ["--env-file (flag --env-file): the file is larger than 1 MiB"]
        );
    }
}
