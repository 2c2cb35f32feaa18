//! What a document names exists: tests by their names, files by their links.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::ensure;

use crate::{read, repository};

/// Names in backticks with this many underscores are sentences, so names of tests.
const UNDERSCORES_MIN: usize = 4;

#[test]
fn every_test_that_a_document_names_exists() -> anyhow::Result<()> {
    let files = repository()?;
    let mut tests = BTreeSet::new();
    for path in files.iter().filter(|path| has_extension(path, "rs")) {
        let text = read(path)?;
        tests.extend(
            text.split("fn ")
                .skip(1)
                .filter_map(|rest| rest.split('(').next())
                .map(str::to_owned),
        );
    }
    let mut missing = Vec::new();
    for path in files.iter().filter(|path| has_extension(path, "md")) {
        let text = read(path)?;
        let named = text.split('`').skip(1).step_by(2).filter(|name| is_sentence(name));
        missing.extend(
            named
                .filter(|name| !tests.contains(*name))
                .map(|name| format!("{path}: {name}")),
        );
    }
    ensure!(missing.is_empty(), "no such test: {missing:#?}");
    Ok(())
}

#[test]
fn every_link_inside_the_repository_leads_to_a_file() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for path in repository()?.iter().filter(|path| has_extension(path, "md")) {
        let text = read(path)?;
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let is_ours = !target.contains("://") && !file.is_empty();
            if is_ours && !crate::root()?.join(folder).join(file).exists() {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    ensure!(broken.is_empty(), "links to nowhere: {broken:#?}");
    Ok(())
}

#[test]
fn every_setting_of_the_compose_file_is_in_the_reference() -> anyhow::Result<()> {
    let reference = read("docs/reference/configuration.md")?;
    let compose = read("docs/examples/compose.distributed.yaml")?;
    let named: BTreeSet<_> = compose
        .split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| word.starts_with("POWERCONTEXT_SERVER_"))
        .collect();
    ensure!(named.len() > 5, "the topology names its settings: {named:?}");
    let unknown: Vec<_> = named
        .iter()
        .filter(|name| !reference.contains(&format!("`{name}`")))
        .collect();
    ensure!(unknown.is_empty(), "no such setting: {unknown:?}");
    Ok(())
}

fn is_sentence(name: &str) -> bool {
    let is_name = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    is_name && name.matches('_').count() >= UNDERSCORES_MIN
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}
