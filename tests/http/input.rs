//! Bad input at the real server: a 4xx that names the place and the reason and never the value; and names that differ in
//! one byte stay apart.

use anyhow::{Context, ensure};
use powercontext_tests::client::{Answer, Client, encoded};
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};
use serde_json::{Value, json};

/// Stands in every bad value; no answer and no log may show it.
const CANARY: &str = "canary7f3a91";

powercontext_tests::on_both_databases! {
    bad_input_is_refused_with_its_place_and_never_its_value,
    names_that_differ_in_one_byte_stay_apart,
}

async fn server(database: &Database) -> anyhow::Result<(Server, Provider)> {
    let provider = Provider::start().await?;
    let server = Setup::new(database, &provider).start().await?;
    Ok((server, provider))
}

/// A 422 with a fault of this type at this place, and no trace of the value.
fn refused(case: &str, answer: &Answer, kind: &str, place: &[&str]) -> anyhow::Result<()> {
    ensure!(
        answer.status == 422 && answer.code() == "invalid_request",
        "{case}: {answer:?}"
    );
    ensure!(!answer.text.contains(CANARY), "{case}: the value is in {answer:?}");
    let faults = answer.body["error"]["details"]["errors"]
        .as_array()
        .context("no faults")?;
    let found = faults
        .iter()
        .any(|fault| fault["type"] == kind && fault["loc"] == json!(place) && fault["msg"].is_string());
    ensure!(found, "{case}: no {kind} at {place:?} in {answer:?}");
    Ok(())
}

async fn bad_input_is_refused_with_its_place_and_never_its_value(database: Database) -> anyhow::Result<()> {
    let (server, _provider) = server(&database).await?;
    let client = &server.client;
    identifiers(client).await?;
    bodies(client).await?;
    operations(client).await?;
    ensure!(
        !server.log().contains(CANARY),
        "a value is in the log:\n{}",
        server.log()
    );
    let stored = facts::number(&database, "select count(*) from pc_sources").await?;
    ensure!(
        stored == 8,
        "what was refused left nothing behind, but there are {stored} sources"
    );
    server.stop().await
}

fn capture(scope: &str, source: &str) -> Value {
    json!({"scope_id": scope, "source_id": source, "content": "user: I like tea."})
}

/// Lengths count characters, not bytes; blanks alone, control and direction characters are refused.
async fn identifiers(client: &Client) -> anyhow::Result<()> {
    for unit in ["a", "é", "記", "🦀"] {
        for chars in [255, 256] {
            let name = unit.repeat(chars);
            client.post(CAPTURE, &capture(&name, &name)).await?.expect(202)?;
        }
        let name = unit.repeat(257);
        let answer = client.post(CAPTURE, &capture(&name, &name)).await?;
        refused(unit, &answer, "string_too_long", &["body", "scope_id"])?;
        refused(unit, &answer, "string_too_long", &["body", "source_id"])?;
        let flushed = client.post("/v1/memory/flush", &json!({"scope_id": name})).await?;
        refused(unit, &flushed, "string_too_long", &["body", "scope_id"])?;
    }
    for (case, bad) in [
        ("nul", "\0"),
        ("line", "\n"),
        ("delete", "\u{7f}"),
        ("next line", "\u{85}"),
        ("override", "\u{202e}"),
        ("isolate", "\u{2066}"),
    ] {
        let name = format!("{CANARY}{bad}x");
        let answer = client.post(CAPTURE, &capture(&name, &name)).await?;
        refused(case, &answer, "value_error", &["body", "scope_id"])?;
        refused(case, &answer, "value_error", &["body", "source_id"])?;
        let query = client
            .get(&format!("/v1/operations?scope_id={}", encoded(&name)))
            .await?;
        refused(case, &query, "value_error", &["query", "scope_id"])?;
    }
    for blank in ["", "   ", "\u{3000}"] {
        let answer = client.post(CAPTURE, &capture(blank, blank)).await?;
        refused("blank", &answer, "string_pattern_mismatch", &["body", "scope_id"])?;
        refused("blank", &answer, "string_pattern_mismatch", &["body", "source_id"])?;
    }
    Ok(())
}

const CAPTURE: &str = "/v1/sources/content";

/// A body with one member changed; null takes it out.
fn with(mut body: Value, member: &str, value: Value) -> Value {
    match body.as_object_mut() {
        Some(members) if value.is_null() => drop(members.remove(member)),
        Some(members) => drop(members.insert(member.to_owned(), value)),
        None => {}
    }
    body
}

async fn bodies(client: &Client) -> anyhow::Result<()> {
    let long = CANARY.repeat(200_001 / CANARY.len() + 1);
    for (member, value, kind) in [
        ("source_id", Value::Null, "missing"),
        ("source_id", json!(5), "string_type"),
        ("content", json!(""), "string_too_short"),
        ("content", json!(long), "string_too_long"),
        ("metadata", json!(CANARY), "object_type"),
        ("extra", json!(CANARY), "extra_forbidden"),
    ] {
        let body = with(capture("house", "s"), member, value);
        refused(member, &client.post(CAPTURE, &body).await?, kind, &["body", member])?;
    }
    for (member, value, kind) in [
        ("limit", json!(0), "greater_than_equal"),
        ("limit", json!(51), "less_than_equal"),
        ("limit", json!("5"), "int_type"),
        ("limit", json!(true), "int_type"),
        ("mode", json!(CANARY), "enum"),
    ] {
        let body = with(json!({"scope_id": "house", "query": CANARY}), member, value);
        let answer = client.post("/v1/memory/search", &body).await?;
        refused(member, &answer, kind, &["body", member])?;
    }
    for (media_type, body, kind) in [
        (
            "application/json",
            format!("{{\"scope_id\": \"{CANARY}"),
            "json_invalid",
        ),
        ("text/plain", json!({"scope_id": CANARY}).to_string(), "value_error"),
        ("application/json", format!("[\"{CANARY}\"]"), "object_type"),
    ] {
        let answer = client.post_bytes(CAPTURE, media_type, body).await?;
        refused(kind, &answer, kind, &["body"])?;
    }
    Ok(())
}

async fn operations(client: &Client) -> anyhow::Result<()> {
    let unknown = "0193e0a0-0000-7000-8000-000000000000";
    refused(
        "id",
        &client.get(&format!("/v1/operations/{CANARY}")).await?,
        "string_pattern_mismatch",
        &["path", "operation_id"],
    )?;
    let answer = client.get(&format!("/v1/operations/{unknown}")).await?;
    ensure!(
        answer.status == 404 && answer.code() == "operation_not_found",
        "{answer:?}"
    );
    for (query, kind, place) in [
        ("limit=0", "greater_than_equal", "limit"),
        ("limit=101", "less_than_equal", "limit"),
        ("limit=canary7f3a91", "int_parsing", "limit"),
        ("status=canary7f3a91", "enum", "status"),
        ("kind=canary7f3a91", "enum", "kind"),
        ("cursor=canary7f3a91", "value_error", "cursor"),
    ] {
        refused(
            query,
            &client.get(&format!("/v1/operations?{query}")).await?,
            kind,
            &["query", place],
        )?;
    }
    for (body, kind) in [
        (json!({}), "missing"),
        (json!({"expected_version": 0}), "greater_than_equal"),
        (json!({"expected_version": CANARY}), "int_type"),
    ] {
        for act in ["cancel", "retry"] {
            let answer = client.post(&format!("/v1/operations/{unknown}/{act}"), &body).await?;
            refused(act, &answer, kind, &["body", "expected_version"])?;
        }
    }
    Ok(())
}

async fn names_that_differ_in_one_byte_stay_apart(database: Database) -> anyhow::Result<()> {
    let (server, _provider) = server(&database).await?;
    let client = &server.client;
    let scopes = ["Team", "team", "team ", " team", "caf\u{e9}", "cafe\u{301}", "tëam"];
    for (n, scope) in scopes.iter().enumerate() {
        // The same source says something else in each scope, and its spellings are sources of their own in one.
        for source in ["S", "s", "s "] {
            let content = format!("user: I prefer door {n} for {source:?}.");
            let captured = client.capture(scope, source, &content).await?.expect(202)?;
            ensure!(captured.body["source"]["source_id"] == source, "{captured:?}");
        }
    }
    for (n, scope) in scopes.iter().enumerate() {
        let flushed = client.flush(scope, "wait=25").await?.expect(200)?;
        ensure!(flushed.body["processed_source_count"] == 3, "{scope:?}: {flushed:?}");
        let operations = client.operations(scope).await?;
        ensure!(
            operations.len() == 1 && operations[0]["scope_id"] == *scope,
            "{scope:?}: {operations:?}"
        );
        let entries = client.entries(scope).await?.to_string();
        ensure!(
            entries.contains(&format!("door {n} ")),
            "{scope:?} has not its own: {entries}"
        );
        for (other, _) in scopes.iter().enumerate().filter(|(other, _)| *other != n) {
            ensure!(
                !entries.contains(&format!("door {other} ")),
                "{scope:?} has another's: {entries}"
            );
        }
        let hits = client
            .post("/v1/memory/search", &json!({"scope_id": scope, "query": "door"}))
            .await?
            .expect(200)?;
        ensure!(
            !hits.body["hits"].as_array().context("no hits")?.is_empty(),
            "{scope:?}: {hits:?}"
        );
    }
    facts::hold(&database).await?;
    server.stop().await
}
