//! What the commands print about settings: never what one says.

use std::process::Output;

use anyhow::{Context, ensure};
use powercontext_tests::database::Database;
use powercontext_tests::server::Setup;

use crate::canary::{Canaries, Place};

/// The commands with settings that are full of secrets and right.
pub(crate) async fn good(setup: &Setup, canaries: &Canaries) -> anyhow::Result<()> {
    for arguments in [
        &["server", "config"][..],
        &["server", "config", "--output", "json"],
        &["server", "config", "--example"],
        &["server", "config", "--reference"],
        &["server", "migrate", "--plan"],
        &["server", "migrate", "--output", "json"],
        &["server", "migrate"],
    ] {
        let (status, said) = said(&setup.run(arguments).await?);
        ensure!(status == Some(0), "{arguments:?} ended with {status:?}:\n{said}");
        canaries.absent(&format!("{arguments:?}"), &said, &[])?;
    }
    Ok(())
}

fn said(output: &Output) -> (Option<i32>, String) {
    let bytes = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&bytes).into_owned())
}

/// Settings that are refused, with the word as their value or in it.
fn bad(word: &str) -> Vec<(&'static str, String)> {
    let mut bad: Vec<_> = [
        "HTTP_HOST",
        "HTTP_PORT",
        "AUTH_ENABLED",
        "RATE_LIMIT_ENABLED",
        "RATE_LIMIT_REQUESTS",
        "RATE_LIMIT_WINDOW_SECONDS",
        "DATABASE_KIND",
        "DATABASE_POOL_SIZE",
        "DEPLOYMENT_MODE",
        "DEPLOYMENT_ROLE",
        "COORDINATION_MEMBER_TTL_SECONDS",
        "WORKER_CONCURRENCY",
        "WORKER_POLL_SECONDS",
        "RUNTIME_MEMORY_EXTRACTION_PROFILE",
        "INFERENCE_GENERATION_MODEL",
        "INFERENCE_GENERATION_BASE_URL",
        "ALLOW_INSECURE_HTTP",
        "INFERENCE_GENERATION_HEADERS",
        "INFERENCE_GENERATION_MODEL_SETTINGS",
        "LOGGING_LEVEL",
        "LOGGING_FORMAT",
        "METRICS_ENABLED",
        "TRACING_ENABLED",
    ]
    .map(|key| (key, word.to_owned()))
    .into();
    let base = |url: &str| ("INFERENCE_GENERATION_BASE_URL", url.replace('*', word));
    let headers = |json: &str| ("INFERENCE_GENERATION_HEADERS", json.replace('*', word));
    let database = |url: &str| ("DATABASE_URL", url.replace('*', word));
    bad.extend([
        base("https://provider.example/v1?key=*"),
        base("https://provider.example/v1#*"),
        base("https://user:*@provider.example/v1"),
        base("https://*:x:y/v1"),
        base("http://provider.example/*"),
        headers("{\"*\": 1}"),
        headers("{\"x\": [\"*\"]}"),
        headers("{\"x\": \"*\n\"}"),
        headers("{\"host\": \"*\"}"),
        (
            "INFERENCE_GENERATION_MODEL_SETTINGS",
            format!("{{\"extra_headers\": {{\"x\": \"{word}\"}}}}"),
        ),
        database("mysql://user:*@127.0.0.1:port/schema"),
        database("mysql://user:*@127.0.0.1:2881"),
        database("mysql://user:*@127.0.0.1:2881/schema?ssl-mode=*"),
        database("postgres://user:*@127.0.0.1/schema"),
        database("MYSQL://user:*@127.0.0.1/schema"),
        database("user:*@127.0.0.1:2881/schema"),
        database("mysql:user:*@127.0.0.1:2881/schema"),
        database("mysql:/user:*@127.0.0.1:2881/schema"),
        database("sqlite:user:*@127.0.0.1/schema"),
        ("AUTH_TOKEN", format!("{word} with blanks")),
        ("AUTH_TOKEN", format!("{word}é")),
        ("DEPLOYMENT_ID", format!("{word}\u{7}")),
    ]);
    bad
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_a_setting_never_tells_its_value() -> anyhow::Result<()> {
    let (database, canaries) = (Database::sqlite().await?, Canaries::new());
    let word = canaries.of(Place::Setting);
    let setup = Setup::asking(&database, "http://127.0.0.1:9/v1");
    for (key, value) in bad(word) {
        let setup = setup.clone().with(key, &value);
        for command in ["config", "migrate", "run"] {
            let (status, said) = said(&setup.run(&["server", command]).await?);
            ensure!(
                status == Some(2),
                "{command} with {key}={value} ended with {status:?}:\n{said}"
            );
            ensure!(said.contains(key), "{key} is not named:\n{said}");
            canaries.absent(&format!("{command} with {key}={value}"), &said, &[])?;
        }
    }
    for (variable, value) in [
        ("OPENAI_API_KEY", format!("{word}\n")),
        ("ANTHROPIC_API_KEY", format!("{word} {word}")),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("https://user:{word}@collector.example"),
        ),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={word}%0a")),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", word.to_owned()),
    ] {
        let setup = setup.clone().with_variable(variable, &value);
        for form in ["text", "json"] {
            let (status, said) = said(&setup.run(&["server", "config", "--output", form]).await?);
            ensure!(status == Some(2) && said.contains(variable), "{status:?}:\n{said}");
            canaries.absent(variable, &said, &[])?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_an_env_file_or_a_flag_never_tells_its_text() -> anyhow::Result<()> {
    let (database, canaries) = (Database::sqlite().await?, Canaries::new());
    let word = canaries.of(Place::Setting);
    let setup = Setup::asking(&database, "http://127.0.0.1:9/v1");
    let file = database.beside("settings");
    let lines = [
        word.to_owned(),
        format!("1{word}=1"),
        format!("A='{word}"),
        format!("B=\"{word}\"{word}"),
        format!("POWERCONTEXT_SERVER_AUTH_TOKEN={word} {word}"),
        format!("POWERCONTEXT_SERVER_HTTP_PORT={word}"),
    ];
    std::fs::write(&file, lines.join("\n"))?;
    let file = file.to_str().context("a path that is not UTF-8")?;
    for arguments in [
        &["server", "config", "--env-file", file][..],
        &["server", "run", "--env-file", file],
        &["server", "run", "--port", word, "--host", word],
    ] {
        let (status, said) = said(&setup.run(arguments).await?);
        ensure!(status == Some(2), "{arguments:?} ended with {status:?}:\n{said}");
        canaries.absent(&format!("{arguments:?}"), &said, &[])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_answer_is_named_without_its_password() -> anyhow::Result<()> {
    let (database, canaries) = (Database::sqlite().await?, Canaries::new());
    // Nothing listens on the discard port of this machine.
    let url = format!("mysql://user:{}@127.0.0.1:9/schema", canaries.of(Place::Password));
    let setup = Setup::asking(&database, "http://127.0.0.1:9/v1")
        .with("DATABASE_URL", &url)
        .with("LOGGING_LEVEL", "DEBUG");
    for (command, status) in [("migrate", 3), ("run", 1)] {
        let (ended, said) = said(&setup.run(&["server", command]).await?);
        ensure!(ended == Some(status), "{command} ended with {ended:?}:\n{said}");
        canaries.absent(command, &said, &[])?;
    }
    Ok(())
}
