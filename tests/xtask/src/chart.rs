//! What of the chart is generated: the template of the definition, and the page about its values.
//!
//! The template is the file in `crds/` under other metadata, so the two can never differ. The page has a row for each `# --`
//! comment of `values.yaml`; a value that has none is a fault, so that no value stays undocumented.

use std::fmt::Write;

use anyhow::{Context, bail, ensure};
use serde_yaml::Value;

/// Where the definition's own metadata stands in its file.
const METADATA: &str = "metadata:\n  name: powercontextdeployments.powercontext.io\n";
/// What stands there in the chart.
const CHART_METADATA: &str = r#"metadata:
  name: powercontextdeployments.powercontext.io
  labels:
    {{- include "powercontext.labels" (dict "root" . "component" "definition") | nindent 4 }}
  {{- $annotations := dict }}
  {{- if .Values.crds.keep }}
  {{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
  {{- end }}
  {{- with include "powercontext.annotations" (dict "root" . "more" $annotations) }}
  {{- . | nindent 2 }}
  {{- end }}
"#;

/// The definition as a template: it is left out where it belongs to somebody else.
pub(crate) fn definition(yaml: &str) -> anyhow::Result<String> {
    ensure!(
        !yaml.contains("{{"),
        "the definition holds `{{{{`, which Helm would take for a template"
    );
    let body: Vec<&str> = yaml.lines().filter(|line| !line.starts_with('#')).collect();
    let body = body.join("\n") + "\n";
    ensure!(
        body.matches(METADATA).count() == 1,
        "the definition's metadata are not where they were"
    );
    Ok(format!(
        "{{{{- /* Written by `make gen` from crds/powercontextdeployments.yaml; do not edit. */}}}}\n\
         {{{{- if eq (include \"powercontext.crdOwner\" .) \"release\" }}}}\n{}{{{{- end }}}}\n",
        body.replace(METADATA, CHART_METADATA)
    ))
}

/// The page about the chart.
pub(crate) fn page(chart: &str, values: &str) -> anyhow::Result<String> {
    let chart: Value = serde_yaml::from_str(chart).context("Chart.yaml")?;
    let text = |key: &str| chart[key].as_str().with_context(|| format!("Chart.yaml has no {key}"));
    let mut page = format!(
        "# {}\n\nWritten by `make gen` from Chart.yaml and values.yaml; do not edit.\n\n{}.\n\n\
         Chart {}, application {}, Kubernetes {}. How to install it: [docs/guides/install.md](../../docs/guides/install.md).\n\n\
         ## Values\n\nOther values, and values of another type, are refused.\n\n\
         | value | default | what it is |\n|---|---|---|\n",
        text("name")?,
        text("description")?,
        text("version")?,
        text("appVersion")?,
        text("kubeVersion")?.trim_end_matches("-0")
    );
    for row in rows(values)? {
        writeln!(
            page,
            "| `{}` | `{}` | {} |",
            row.path,
            row.default.replace('|', "\\|"),
            row.meaning
        )?;
    }
    Ok(page)
}

struct Row {
    path: String,
    default: String,
    meaning: String,
}

fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    let values: Value = serde_yaml::from_str(text).context("values.yaml")?;
    let mut rows: Vec<Row> = Vec::new();
    // The keys that the line is inside of, each with its indentation.
    let mut inside: Vec<(usize, &str)> = Vec::new();
    let mut meaning: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(begun) = trimmed.strip_prefix("# -- ") {
            meaning = Some(begun.to_owned());
        } else if let (Some(meaning), Some(more)) = (&mut meaning, trimmed.strip_prefix("# ")) {
            meaning.push(' ');
            meaning.push_str(more);
        } else if let Some((key, _)) = trimmed.split_once(':').filter(|_| !trimmed.starts_with(['#', '-'])) {
            let indent = line.len() - trimmed.len();
            inside.retain(|(outer, _)| *outer < indent);
            inside.push((indent, key));
            let path = inside.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
            let covered = rows.iter().any(|row| path.starts_with(&format!("{}.", row.path)));
            let value = inside.iter().try_fold(&values, |value, (_, key)| value.get(*key));
            let value = value.with_context(|| format!("values.yaml: {path} is not where it seems"))?;
            let default = serde_json::to_string(value)?;
            match meaning.take() {
                Some(meaning) => rows.push(Row { path, default, meaning }),
                None if covered || value.as_mapping().is_some_and(|map| !map.is_empty()) => {}
                None => bail!("values.yaml: {path} has no comment that begins with `# --`"),
            }
        }
    }
    ensure!(
        meaning.is_none(),
        "values.yaml: a comment that begins with `# --` belongs to no value"
    );
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str =
        "# -- One\n# and more.\none: 1\nmap:\n  # -- Two.\n  two: [a]\n# -- Three.\nthree:\n  four: {x: y}\n";

    #[test]
    fn each_comment_becomes_a_row_with_its_path_and_default() {
        let rows = rows(VALUES).expect("documented");
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.path.as_str(), row.default.as_str(), row.meaning.as_str()))
            .collect();
        let expected = [
            ("one", "1", "One and more."),
            ("map.two", "[\"a\"]", "Two."),
            ("three", "{\"four\":{\"x\":\"y\"}}", "Three."),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_value_without_a_comment_is_a_fault() {
        assert!(rows("# -- One.\none: 1\ntwo: 2\n").is_err());
        assert!(rows("map:\n  one: 1\n").is_err());
        assert!(rows("one: 1 # -- not here\n").is_err());
    }

    #[test]
    fn the_definition_keeps_every_line_but_its_metadata() {
        let yaml = format!("# Comment.\napiVersion: x\n{METADATA}spec:\n  a: 1\n");
        let template = definition(&yaml).expect("a definition");
        assert!(
            template.contains("apiVersion: x\nmetadata:\n") && template.contains("spec:\n  a: 1\n{{- end }}\n"),
            "{template}"
        );
        assert!(
            template.contains("helm.sh/resource-policy") && !template.contains("Comment"),
            "{template}"
        );
        assert!(definition("spec: {}\n").is_err());
        assert!(definition(&format!("{METADATA}{{{{ x }}}}")).is_err());
    }
}
