//! Wrong settings, as the real program is told them: each has a message of its own that names the variable, where its text
//! came from and what is expected; all of them are told at once; and the server does not start (exit 2).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::binary;
use tokio::process::Command;

const PREFIX: &str = "POWERCONTEXT_SERVER_";
/// Longest wait for a refusal.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// What is set (names without the prefix, but for those of others), and the one fault of it: which, from where, why.
struct Wrong {
    set: &'static [(&'static str, &'static str)],
    key: &'static str,
    from: &'static str,
    why: &'static str,
}

const ENV: &str = "environment";
const DEFAULT: &str = "default";

const fn wrong(
    set: &'static [(&'static str, &'static str)],
    key: &'static str,
    from: &'static str,
    why: &'static str,
) -> Wrong {
    Wrong { set, key, from, why }
}

/// One setting whose own rule refuses it.
macro_rules! refused {
    ($key:literal = $value:literal, $why:literal) => {
        wrong(&[($key, $value)], $key, ENV, $why)
    };
}

const WRONG: &[Wrong] = &[
    refused!(
        "HTTP_HOST" = "example.com",
        "must be an IPv4 or IPv6 address, or localhost"
    ),
    refused!(
        "HTTP_HOST" = "0.0.0.0",
        "other machines reach this address and nobody would have to authenticate; listen on a loopback address, set POWERCONTEXT_SERVER_AUTH_ENABLED to true, or waive authentication by POWERCONTEXT_SERVER_ALLOW_UNAUTHENTICATED_NON_LOOPBACK"
    ),
    refused!("HTTP_PORT" = "65536", "must be a whole number from 1 to 65535"),
    refused!(
        "AUTH_ENABLED" = "perhaps",
        "must be true or false (also 1, 0, yes, no, on, off)"
    ),
    wrong(
        &[("AUTH_ENABLED", "true")],
        "AUTH_TOKEN",
        DEFAULT,
        "must be set, because POWERCONTEXT_SERVER_AUTH_ENABLED is true",
    ),
    refused!(
        "AUTH_TOKEN" = "two words",
        "must be printable ASCII characters, at most 4096 (empty means unset)"
    ),
    refused!("RATE_LIMIT_REQUESTS" = "0", "must be a whole number from 1 to 1000000"),
    refused!(
        "RATE_LIMIT_WINDOW_SECONDS" = "86401",
        "must be whole seconds from 1 to 86400"
    ),
    refused!(
        "DATABASE_KIND" = "seekdb",
        "seekdb is not supported as a database of the server; use sqlite or oceanbase"
    ),
    refused!("DATABASE_KIND" = "postgres", "must be one of sqlite, oceanbase"),
    wrong(
        &[("DATABASE_KIND", "oceanbase")],
        "DATABASE_URL",
        DEFAULT,
        "must be set, because POWERCONTEXT_SERVER_DATABASE_KIND is oceanbase",
    ),
    wrong(
        &[("DATABASE_KIND", "oceanbase"), ("DATABASE_URL", "/a/b.db")],
        "DATABASE_URL",
        ENV,
        "does not name OceanBase, which POWERCONTEXT_SERVER_DATABASE_KIND asks for",
    ),
    wrong(
        &[("DATABASE_KIND", "sqlite"), ("DATABASE_URL", "mysql://u:p@h:2881/d")],
        "DATABASE_URL",
        ENV,
        "does not name a SQLite file, which POWERCONTEXT_SERVER_DATABASE_KIND asks for",
    ),
    refused!(
        "DATABASE_URL" = "postgres://u:p@h/d",
        "must be mysql://USER:PASSWORD@HOST:PORT/DATABASE (also oceanbase:// or mysql+aoceanbase://), or the path of a SQLite file"
    ),
    refused!(
        "DATABASE_URL" = ":memory:",
        "a database in memory is lost at the end of the process; name a file"
    ),
    refused!("DATABASE_POOL_SIZE" = "1", "must be a whole number from 2 to 1000"),
    refused!("POWERCONTEXT_HOME" = " ", "must be the path of a folder"),
    refused!(
        "DEPLOYMENT_ID" = " ",
        "must be 1 to 128 characters once trimmed, none of them a control character"
    ),
    refused!(
        "COORDINATION_MEMBER_TTL_SECONDS" = "2",
        "must be whole seconds from 3 to 86400"
    ),
    refused!(
        "COORDINATION_MEMBER_HEARTBEAT_SECONDS" = "11",
        "three times it must be at most POWERCONTEXT_SERVER_COORDINATION_MEMBER_TTL_SECONDS"
    ),
    refused!("WORKER_CONCURRENCY" = "257", "must be a whole number from 1 to 256"),
    refused!("WORKER_LEASE_SECONDS" = "2", "must be whole seconds from 3 to 86400"),
    refused!(
        "WORKER_HEARTBEAT_SECONDS" = "40",
        "three times it must be less than POWERCONTEXT_SERVER_WORKER_LEASE_SECONDS"
    ),
    refused!(
        "WORKER_SHUTDOWN_GRACE_SECONDS" = "120",
        "must be less than POWERCONTEXT_SERVER_WORKER_LEASE_SECONDS"
    ),
    refused!("WORKER_MAX_ATTEMPTS" = "101", "must be a whole number from 1 to 100"),
    refused!(
        "WORKER_RETRY_BASE_SECONDS" = "1e3",
        "must be seconds from 0.001 to 86400, with at most three decimals"
    ),
    refused!(
        "WORKER_RETRY_MAX_SECONDS" = "1",
        "must be at least POWERCONTEXT_SERVER_WORKER_RETRY_BASE_SECONDS"
    ),
    refused!(
        "WORKER_POLL_SECONDS" = "61",
        "must be seconds from 0.001 to 60, with at most three decimals"
    ),
    refused!(
        "OPERATIONS_MAXIMUM_WAIT_SECONDS" = "31",
        "must be whole seconds from 0 to 30"
    ),
    refused!(
        "OPERATIONS_DEFAULT_WAIT_SECONDS" = "0.5",
        "must be whole seconds from 0 to 30"
    ),
    wrong(
        &[("OPERATIONS_MAXIMUM_WAIT_SECONDS", "7")],
        "OPERATIONS_DEFAULT_WAIT_SECONDS",
        DEFAULT,
        "must be at most POWERCONTEXT_SERVER_OPERATIONS_MAXIMUM_WAIT_SECONDS",
    ),
    refused!(
        "OPERATIONS_POLL_SECONDS" = "0",
        "must be seconds from 0.001 to 30, with at most three decimals"
    ),
    refused!(
        "RUNTIME_SOURCE_WINDOW_LIMIT" = "101",
        "must be a whole number from 1 to 100"
    ),
    refused!(
        "RUNTIME_MEMORY_EXTRACTION_PROFILE" = "poetry",
        "must be one of coding, conversation"
    ),
    refused!(
        "RUNTIME_MEMORY_MAX_WORKERS" = "true",
        "must be a whole number from 1 to 256"
    ),
    refused!("RUNTIME_MEMORY_RETRY" = "never", "must be one of bounded, unbounded"),
    refused!(
        "INFERENCE_GENERATION_MODEL" = "gpt",
        "must be openai-chat:NAME (or openai:NAME) or anthropic:NAME, the name without blanks and at most 256 characters"
    ),
    refused!(
        "INFERENCE_GENERATION_MODEL" = "azure:gpt",
        "names a provider without a client here; if it is compatible, use openai-chat:NAME with POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL"
    ),
    wrong(
        &[("INFERENCE_GENERATION_MODEL", "anthropic:m")],
        "ANTHROPIC_API_KEY",
        DEFAULT,
        "must be set for the provider of POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL; for another one set POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL",
    ),
    refused!(
        "INFERENCE_GENERATION_BASE_URL" = "https://h/v1",
        "is set, but POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL is not"
    ),
    refused!(
        "INFERENCE_GENERATION_BASE_URL" = "http://10.1.2.3/v1",
        "must be https, because it is no loopback address and prompts and keys would go there in plain text; or set POWERCONTEXT_SERVER_ALLOW_INSECURE_HTTP to true"
    ),
    refused!(
        "INFERENCE_GENERATION_BASE_URL" = "https://u:p@h/v1",
        "must be an https URL without user, query or fragment (http on loopback, or where `ALLOW_INSECURE_HTTP` is true)"
    ),
    refused!(
        "INFERENCE_GENERATION_HEADERS" = "[]",
        "must be a JSON object of at most 32 header names, each with a text of printable ASCII of at most 4096 bytes; not connection, content-length, content-type, host, transfer-encoding"
    ),
    refused!(
        "INFERENCE_GENERATION_MODEL_SETTINGS" = "{\"model\":1}",
        "must be a JSON object of at most 16384 bytes, without model, messages, stream, system, extra_headers"
    ),
    refused!(
        "INFERENCE_GENERATION_MODEL_SETTINGS" = "{\"extra_headers\":{}}",
        "must not hold extra_headers: POWERCONTEXT_SERVER_INFERENCE_GENERATION_HEADERS is kept secret, this is not"
    ),
    refused!(
        "INFERENCE_GENERATION_MODEL_CONTEXT_WINDOW_TOKENS" = "999",
        "must be a whole number from 1000 to 100000000"
    ),
    refused!(
        "INFERENCE_GENERATION_TIMEOUT_SECONDS" = "-1",
        "must be seconds from 0.001 to 86400, with at most three decimals"
    ),
    refused!(
        "INFERENCE_GENERATION_MAX_REQUESTS" = "11",
        "must be a whole number from 1 to 10"
    ),
    refused!(
        "OPENAI_API_KEY" = "a\nb",
        "must be printable ASCII characters, at most 4096 (empty means unset)"
    ),
    refused!(
        "LOGGING_LEVEL" = "LOUD",
        "must be one of TRACE, DEBUG, INFO, WARNING, WARN, ERROR, CRITICAL"
    ),
    refused!("LOGGING_FORMAT" = "xml", "must be one of console, json"),
    refused!(
        "METRICS_ENABLED" = "2",
        "must be true or false (also 1, 0, yes, no, on, off)"
    ),
    refused!(
        "TRACING_ENABLED" = "",
        "must be true or false (also 1, 0, yes, no, on, off)"
    ),
    refused!(
        "OTEL_EXPORTER_OTLP_ENDPOINT" = "collector:4318",
        "must be an http or https URL without user, query or fragment (empty means unset)"
    ),
    refused!(
        "OTEL_EXPORTER_OTLP_TIMEOUT" = "0",
        "must be a whole number from 1 to 60000"
    ),
];

fn full(name: &str) -> String {
    let is_whole = name.starts_with("OTEL_") || name.ends_with("_API_KEY") || name == "POWERCONTEXT_HOME";
    if is_whole {
        name.to_owned()
    } else {
        format!("{PREFIX}{name}")
    }
}

impl Wrong {
    fn message(&self, from: &str) -> String {
        format!("{} ({from}): {}", full(self.key), self.why)
    }

    fn env(&self) -> BTreeMap<String, String> {
        self.set
            .iter()
            .map(|(name, value)| (full(name), (*value).to_owned()))
            .collect()
    }
}

async fn run(home: &Path, arguments: &[&str], env: &BTreeMap<String, String>) -> anyhow::Result<Output> {
    let mut command = Command::new(binary::server()?);
    command.args(arguments).env_clear().env("HOME", home).envs(env);
    command.stdin(Stdio::null()).kill_on_drop(true);
    // Settings that were accepted after all would run a server.
    let ended = rt::within(ENDS_WITHIN, command.output()).await;
    ended
        .context("the program runs instead of refusing")?
        .context("starting the program")
}

fn lines(output: &Output) -> anyhow::Result<Vec<String>> {
    let told = String::from_utf8(output.stderr.clone())?;
    Ok(told.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn each_wrong_setting_has_a_message_of_its_own() -> anyhow::Result<()> {
    let home = tempfile::tempdir()?;
    let mut messages = BTreeSet::new();
    for wrong in WRONG {
        let output = run(home.path(), &["server", "run"], &wrong.env()).await?;
        let (told, message) = (lines(&output)?, wrong.message(wrong.from));
        ensure!(told == [message.as_str()], "{message}\nbut it says\n{told:#?}");
        ensure!(output.status.code() == Some(2), "{message}: {}", output.status);
        ensure!(messages.insert(message), "{told:?} is told of two things");
    }
    ensure!(messages.len() >= 30);
    let left: Vec<_> = std::fs::read_dir(home.path())?.collect();
    ensure!(left.is_empty(), "a server that did not start has made {left:?}");
    Ok(())
}

/// One fault of each variable, none of which hides another's.
fn together() -> Vec<&'static Wrong> {
    let mut keys = BTreeSet::new();
    let hidden = [
        "HTTP_HOST",
        "DATABASE_URL",
        "DATABASE_KIND",
        "INFERENCE_GENERATION_BASE_URL",
        "ANTHROPIC_API_KEY",
    ];
    let own = |wrong: &&Wrong| wrong.from == ENV && wrong.set.len() == 1 && wrong.why.starts_with("must be ");
    let relative = |wrong: &&Wrong| wrong.why.contains(PREFIX);
    let all = WRONG.iter().filter(own).filter(|wrong| !relative(wrong));
    all.filter(|wrong| !hidden.contains(&wrong.key))
        .filter(|wrong| keys.insert(wrong.key))
        .collect()
}

#[tokio::test]
async fn all_wrong_settings_are_told_at_once_wherever_they_come_from() -> anyhow::Result<()> {
    let home = tempfile::tempdir()?;
    let all = together();
    ensure!(all.len() >= 30, "{}", all.len());
    let file = home.path().join("settings");
    let (mut env, mut text, mut expected) = (BTreeMap::new(), vec!["no setting".to_owned()], BTreeSet::new());
    expected.insert("--env-file (env file line 1): must have the form NAME=VALUE".to_owned());
    expected.insert(format!(
        "{PREFIX}HTTP_HOST (flag --host): must be an IPv4 or IPv6 address, or localhost"
    ));
    for (n, wrong) in all.iter().enumerate() {
        let (name, value) = (full(wrong.key), wrong.set[0].1);
        if wrong.key == "HTTP_PORT" {
            expected.insert(wrong.message("flag --port"));
        } else if n % 2 == 0 && !value.contains('\n') {
            text.push(format!("{name}='{value}'"));
            expected.insert(wrong.message(&format!("env file line {}", text.len())));
        } else {
            env.insert(name, value.to_owned());
            expected.insert(wrong.message(ENV));
        }
    }
    std::fs::write(&file, text.join("\n"))?;
    let file = file.to_str().context("a path that is not UTF-8")?;
    for command in ["run", "config"] {
        let arguments = ["server", command, "--env-file", file, "--port", "65536", "--host", "h"];
        let output = run(home.path(), &arguments, &env).await?;
        ensure!(output.status.code() == Some(2), "{}", output.status);
        let told: BTreeSet<_> = lines(&output)?.into_iter().collect();
        let missing: Vec<_> = expected.difference(&told).collect();
        let more: Vec<_> = told.difference(&expected).collect();
        ensure!(
            missing.is_empty() && more.is_empty(),
            "missing {missing:#?}, more {more:#?}"
        );
    }
    Ok(())
}
