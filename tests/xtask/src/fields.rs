//! The page of every field of a PowerContextDeployment, from its definition.
//!
//! A part that is the same in several places, such as what pods are given, has one table that the others name; where they differ
//! after all, each is written out.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, ensure};
use serde_json::Value;

/// Parts that several roles have: the field's name, the heading of its table, what it is called.
const SHARED: [(&str, &str); 2] = [("pod", "Pods"), ("resources", "Resources")];

struct Row {
    path: String,
    kind: String,
    default: String,
    meaning: String,
}

/// The page.
pub(crate) fn page(yaml: &str) -> anyhow::Result<String> {
    let definition: Value = serde_yaml::from_str(yaml).context("the definition")?;
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let names = &definition["spec"]["names"];
    let mut page = format!(
        "# {}\n\nWritten by `make gen` from the types in `crds/src/v1alpha1`.\n\n\
         `apiVersion: {}/{}`, short name `{}`. `kubectl explain {}.spec` shows the same from a cluster. A field without a default may be left out. \
         What is not listed here is refused under strict validation, which `kubectl apply` asks for. An example: \
         [deployment.yaml](../examples/deployment.yaml); conditions: [runbook](../runbook.md).\n",
        names["kind"].as_str().context("a kind")?,
        definition["spec"]["group"].as_str().context("a group")?,
        version["name"].as_str().context("a version")?,
        names["shortNames"][0].as_str().context("a short name")?,
        names["shortNames"][0].as_str().context("a short name")?,
    );
    let shared = shared(&schema["spec"]);
    for part in ["spec", "status"] {
        write!(page, "\n## {part}\n")?;
        let fields = schema[part]["properties"].as_object().context("properties")?;
        let mut rows = Vec::new();
        let mut rules = rules(part, &schema[part]);
        for (name, field) in fields {
            let required = is_required(&schema[part], name);
            walk(
                &format!("{part}.{name}"),
                field,
                required,
                &shared,
                &mut rows,
                &mut rules,
            )?;
        }
        table(&mut page, &rows, &rules)?;
    }
    for (name, heading) in SHARED {
        let Some(field) = shared.get(name) else { continue };
        write!(page, "\n## {heading}\n\nBelow each `{name}`.\n")?;
        let (mut rows, mut rules) = (Vec::new(), Vec::new());
        below(name, field, &BTreeMap::new(), &mut rows, &mut rules)?;
        table(&mut page, &rows, &rules)?;
    }
    Ok(page)
}

/// The parts that are the same wherever a role has them.
fn shared(spec: &Value) -> BTreeMap<&'static str, &Value> {
    let fields = spec["properties"].as_object();
    let mut shared = BTreeMap::new();
    for (name, _) in SHARED {
        let all: Vec<&Value> = fields
            .into_iter()
            .flat_map(|fields| fields.values())
            .filter_map(|role| role["properties"].get(name))
            .collect();
        let is_same = all.windows(2).all(|two| two[0]["properties"] == two[1]["properties"]);
        if let (Some(first), true) = (all.first(), is_same && all.len() > 1) {
            shared.insert(name, *first);
        }
    }
    shared
}

fn is_required(parent: &Value, name: &str) -> bool {
    let required = parent["required"].as_array();
    required.is_some_and(|all| all.iter().any(|one| one == name))
}

/// One field and everything below it.
fn walk(
    path: &str,
    field: &Value,
    required: bool,
    shared: &BTreeMap<&str, &Value>,
    rows: &mut Vec<Row>,
    rules: &mut Vec<String>,
) -> anyhow::Result<()> {
    let described = field["description"].as_str().unwrap_or_default();
    ensure!(!described.is_empty(), "{path} of the definition has no description");
    let name = path.rsplit('.').next().unwrap_or(path);
    let link = SHARED.iter().find(|(one, _)| *one == name && shared.contains_key(one));
    let mut meaning = described
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    if let Some((_, heading)) = link {
        write!(meaning, " See [{heading}](#{}).", heading.to_lowercase())?;
    }
    rows.push(Row {
        path: path.to_owned(),
        kind: kind(field),
        default: default(field, required),
        meaning,
    });
    match link {
        Some(_) => Ok(()),
        None => below(path, field, shared, rows, rules),
    }
}

fn below(
    path: &str,
    field: &Value,
    shared: &BTreeMap<&str, &Value>,
    rows: &mut Vec<Row>,
    rules: &mut Vec<String>,
) -> anyhow::Result<()> {
    rules.extend(self::rules(path, field));
    let (inner, path) = if field["items"].is_object() {
        rules.extend(self::rules(&format!("{path}[]"), &field["items"]));
        (&field["items"], format!("{path}[]"))
    } else {
        (field, path.to_owned())
    };
    for (name, field) in inner["properties"].as_object().into_iter().flatten() {
        walk(
            &format!("{path}.{name}"),
            field,
            is_required(inner, name),
            shared,
            rows,
            rules,
        )?;
    }
    Ok(())
}

/// Type and limits.
fn kind(field: &Value) -> String {
    let plain = |field: &Value| {
        let kind = field["type"].as_str().unwrap_or_default();
        if field["x-kubernetes-int-or-string"] == true {
            "number or text"
        } else {
            match kind {
                "string" => "text",
                "integer" => "number",
                "boolean" => "true or false",
                "array" => "list",
                _ => "object",
            }
        }
    };
    if let Some(choices) = field["enum"].as_array() {
        let choices: Vec<String> = choices
            .iter()
            .filter_map(|one| one.as_str().map(|one| format!("`{one}`")))
            .collect();
        return choices.join(", ");
    }
    let mut kind = plain(field).to_owned();
    if field["additionalProperties"].is_object() {
        "map".clone_into(&mut kind);
    }
    // A minimum is stored as a fraction, `1.0`; every one of ours is whole.
    let whole = |name: &str| field[name].as_f64().map(|number| format!("{number:.0}"));
    let range = |least: &str, most: &str| match (whole(least), whole(most)) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    };
    kind.push_str(&range("minimum", "maximum"));
    let lengths = range("minLength", "maxLength");
    if !lengths.is_empty() {
        kind.push_str(&lengths);
        kind.push_str(" characters");
    }
    let items = range("minItems", "maxItems") + &range("minProperties", "maxProperties");
    kind.push_str(&items);
    kind
}

/// What holds where the field is left out. Defaults of objects are those of their fields.
fn default(field: &Value, required: bool) -> String {
    match &field["default"] {
        Value::Null if required => "**required**".to_owned(),
        Value::Null | Value::Object(_) => String::new(),
        value => format!("`{value}`"),
    }
}

fn rules(path: &str, field: &Value) -> Vec<String> {
    let all = field["x-kubernetes-validations"].as_array().into_iter().flatten();
    all.filter_map(|rule| rule["message"].as_str())
        .map(|message| format!("`{path}`: {message}"))
        .collect()
}

fn table(page: &mut String, rows: &[Row], rules: &[String]) -> anyhow::Result<()> {
    page.push_str("\n| field | type | default | what it is |\n|---|---|---|---|\n");
    for Row {
        path,
        kind,
        default,
        meaning,
    } in rows
    {
        writeln!(page, "| `{path}` | {kind} | {default} | {meaning} |")?;
    }
    if !rules.is_empty() {
        page.push_str("\nRefused at admission, with these words:\n\n");
        for rule in rules {
            writeln!(page, "- {rule}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_row_and_a_shared_part_one_table() {
        let page = page(&powercontext_crds::yaml()).expect("a page");
        for row in [
            "| `spec.image` | text, 1 to 512 characters | **required** |",
            "| `spec.worker.replicas` | number, 0 to 1000 | `2` | How many. |",
            "| `spec.background.replicas` | number, 0 to 1000 | `0` | How many. |",
            "| `spec.supervisor.mode` | `global`, `dedicated` | `\"global\"` |",
            "| `pod.extraEnv[].name` |",
            "| `status.leaders[].fence` | number |",
            "- `spec.worker`: ",
        ] {
            assert!(page.contains(row), "no {row}\n{page}");
        }
        assert_eq!(page.matches("extraEnv[].name` |").count(), 1);
        assert!(page.contains("See [Pods](#pods)."));
    }

    #[test]
    fn a_field_without_a_description_is_a_fault() {
        let yaml = "spec:\n  group: g\n  names: {kind: K, shortNames: [k]}\n  versions:\n  - name: v\n    schema: {openAPIV3Schema: \
                    {properties: {spec: {properties: {a: {type: string}}}, status: {properties: {}}}}}\n";
        assert!(page(yaml).expect_err("none").to_string().contains("spec.a"));
    }
}
