//! Reads every log call of the runtime: the fields are of the closed list, and nothing is formatted into a message.

use std::fs;
use std::path::Path;

use super::field;

const MACROS: [&str; 6] = ["trace!", "debug!", "info!", "warn!", "error!", "event!"];

/// A log call: the arguments between its parentheses, split at their commas, and its line.
struct Call {
    line: usize,
    arguments: Vec<String>,
}

/// Splits what stands between the first parenthesis and its partner at the commas outside of inner brackets and strings.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    let mut parts = vec![String::new()];
    for c in text.chars() {
        let is_quote = c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
        if is_quote {
            in_string = !in_string;
        }
        match c {
            '(' | '[' | '{' if !in_string => depth += 1,
            ')' | ']' | '}' if !in_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if c == ',' && depth == 1 && !in_string {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    if let Some(first) = parts.first_mut() {
        first.remove(0);
    }
    let parts = parts.iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

fn calls(text: &str) -> Vec<Call> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("tracing::") {
        let after = &text[at + "tracing::".len()..];
        if let Some(name) = MACROS.iter().find(|name| after.starts_with(**name)) {
            found.push(Call {
                line: text[..at].lines().count(),
                arguments: arguments(&after[name.len()..]),
            });
        }
    }
    found
}

/// What is wrong with an argument, if anything is.
fn fault(argument: &str) -> Option<&'static str> {
    if argument.starts_with('"') {
        // `{}` would put a value into a text where nobody looks for fields.
        return argument.contains('{').then_some("formats a value into the message");
    }
    if argument.starts_with("target:") || argument.starts_with("tracing::Level::") {
        return None;
    }
    let (name, value) = argument.split_once('=').unwrap_or((argument, argument));
    let (name, value) = (name.trim().trim_start_matches('%'), value.trim());
    if value.starts_with('?') && value != "?error.kind()" {
        return Some("logs with Debug");
    }
    (!field::ALL.contains(&name)).then_some("is no field of telemetry::field")
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for call in calls(text) {
        let bad = call
            .arguments
            .iter()
            .filter_map(|argument| Some((argument, fault(argument)?)));
        found.extend(bad.map(|(argument, fault)| format!("{path}:{}: `{argument}` {fault}", call.line)));
    }
    // A call by its bare name would not be seen.
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("use tracing::") && !line.starts_with("use tracing::level_filters") {
            found.push(format!("{path}:{}: call the macros as `tracing::…!`", at + 1));
        }
    }
    found
}

fn check(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources stand beside the test") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            check(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("field_tests.rs") {
            let text = fs::read_to_string(&path).expect("readable");
            found.extend(faults(&path.display().to_string(), &text));
        }
    }
}

#[test]
fn every_log_call_keeps_to_the_closed_list() {
    let mut found = Vec::new();
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_check_finds_what_it_is_for() {
    let text = r#"
fn f() {
    tracing::warn!(error = %error, left, role = name(1, "a, b"), "fine, (really)");
    tracing::info!(
        prompt = %prompt,
        ?error,
        error = ?error,
        kind = ?error.kind(),
        "message {scope}"
    );
}
"#;
    let expected = [
        "f.rs:4: `prompt = %prompt` is no field of telemetry::field",
        "f.rs:4: `?error` logs with Debug",
        "f.rs:4: `error = ?error` logs with Debug",
        "f.rs:4: `\"message {scope}\"` formats a value into the message",
    ];
    let found = faults("f.rs", text);
    assert_eq!(found, expected);
    assert_eq!(faults("f.rs", "use tracing::warn;\n").len(), 1);
    let names: std::collections::BTreeSet<_> = field::ALL.iter().collect();
    assert_eq!(names.len(), field::ALL.len());
}
