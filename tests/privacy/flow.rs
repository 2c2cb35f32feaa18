//! One server from its start to its end, with a word in everything.

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::children;
use powercontext_tests::client::Client;
use powercontext_tests::collector::Collector;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::SOON;
use powercontext_tests::rows;
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;
use reqwest::Url;
use serde_json::{Value, json};

use crate::canary::{Canaries, Place};
use crate::model::{Manner, Talkative};
use crate::{requests, settings};

powercontext_tests::on_both_databases! {
    no_canary_leaves_its_home_with_console_logs,
    no_canary_leaves_its_home_with_json_logs,
}

/// What names content and shows none: ids of scopes and of sources.
const NAMES: &[Place] = &[Place::Scope, Place::SourceId];
/// What an answer about Memory may show beside names.
const CONTENT: &[Place] = &[Place::Scope, Place::SourceId, Place::Memory, Place::Reply];

async fn no_canary_leaves_its_home_with_console_logs(database: Database) -> anyhow::Result<()> {
    under_a_secret_password(&database, "console").await
}

async fn no_canary_leaves_its_home_with_json_logs(database: Database) -> anyhow::Result<()> {
    under_a_secret_password(&database, "json").await
}

/// OceanBase gets a user whose password is a word, and loses it again however the case ends.
async fn under_a_secret_password(database: &Database, format: &str) -> anyhow::Result<()> {
    let canaries = Canaries::new();
    if database.is_sqlite() {
        return in_all_places(database, database.url(), format, &canaries).await;
    }
    let mut url = Url::parse(database.url())?;
    let user = format!("pc_test_{}", &rt::hex_id()[..12]);
    let (schema, password) = (
        url.path().trim_start_matches('/').to_owned(),
        canaries.of(Place::Password),
    );
    let create = format!("create user if not exists {user} identified by '{password}'");
    administered(database, &create).await?;
    let done = async {
        administered(database, &format!("grant all privileges on {schema}.* to {user}")).await?;
        let named = url.set_username(&user).and_then(|()| url.set_password(Some(password)));
        named.ok().context("a URL without a host")?;
        in_all_places(database, url.as_str(), format, &canaries).await
    }
    .await;
    done.and(administered(database, &format!("drop user if exists {user}")).await)
}

/// Runs a statement about users; the server refuses one while it carries out another.
async fn administered(database: &Database, sql: &str) -> anyhow::Result<()> {
    until("a change of users is taken", SOON, async || {
        database.raw().await?.execute(sql).await.map(|_| Some(()))
    })
    .await
}

/// A server, and what is needed to talk to it.
struct Case<'a> {
    database: &'a Database,
    canaries: &'a Canaries,
    model: Talkative,
    server: Server,
    client: Client,
}

async fn in_all_places(database: &Database, url: &str, format: &str, canaries: &Canaries) -> anyhow::Result<()> {
    let (model, collector) = (Talkative::start(canaries).await?, Collector::start().await?);
    let panics = ["capture", "finish"].map(|tx| {
        let (text, armed) = (canaries.of(Place::Panic), database.beside(tx).display().to_string());
        format!("{tx}.before_commit=panic({text})@{armed}")
    });
    let setup = Setup::asking(database, &model.base_url())
        .with("DATABASE_URL", url)
        .with("LOGGING_LEVEL", "DEBUG")
        .with("LOGGING_FORMAT", format)
        .with("AUTH_ENABLED", "true")
        .with("AUTH_TOKEN", canaries.of(Place::Bearer))
        .with("WORKER_MAX_ATTEMPTS", "2")
        .with("INFERENCE_GENERATION_TIMEOUT_SECONDS", "2")
        .with(
            "INFERENCE_GENERATION_MODEL_SETTINGS",
            &json!({"user": canaries.of(Place::Parameter)}).to_string(),
        )
        .with(
            "INFERENCE_GENERATION_HEADERS",
            &json!({"x-gateway": canaries.of(Place::Header)}).to_string(),
        )
        .with_variable("OPENAI_API_KEY", canaries.of(Place::ProviderKey))
        .with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())
        .with_variable(
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("x-key={}", canaries.of(Place::Collector)),
        )
        .with_variable("FAILPOINTS", &panics.join(","));
    settings::good(&setup, canaries).await?;
    let server = setup.start().await?;
    let client = server.client.clone().bearing(canaries.of(Place::Bearer))?;
    let case = Case {
        database,
        canaries,
        model,
        server,
        client,
    };
    case.memory().await?;
    case.failing_models().await?;
    case.panics().await?;
    requests::refused(case.server.address, canaries).await?;
    let operations = case.shown().await?;
    case.stored().await?;
    let Case { server, .. } = case;
    let log = server.stop_and_log().await?;
    for id in &operations {
        ensure!(log.contains(id), "nothing is told of {id}:\n{log}");
    }
    spans(&collector, canaries, &operations)?;
    ensure!(
        log.contains("a task panicked") && log.contains("an attempt ended"),
        "{log}"
    );
    canaries.absent("the log", &log, &[])
}

/// Everything that the collector was sent, bodies and headers.
fn spans(collector: &Collector, canaries: &Canaries, operations: &[String]) -> anyhow::Result<()> {
    let heard = collector.heard();
    ensure!(
        heard.contains(canaries.of(Place::Collector)),
        "the collector got no header"
    );
    canaries.absent("what the collector is told", &heard, &[Place::Collector])?;
    for id in operations {
        ensure!(!heard.contains(id), "{id} is in a span");
    }
    ensure!(!heard.contains("server-token"), "a principal is in a span");
    for (name, outcome) in [
        ("work.execute", "succeeded"),
        ("work.execute", "failed"),
        ("work.retry", "retry_wait"),
        ("work.enqueue", "created"),
        ("memory.commit", ""),
    ] {
        let mut named = collector.named(name).into_iter();
        ensure!(
            named.any(|span| span.attribute("outcome") == outcome),
            "no {name} {outcome}"
        );
    }
    Ok(())
}

impl Case<'_> {
    fn word(&self, place: Place) -> &str {
        self.canaries.of(place)
    }

    /// A scope of its own for each part, every one with the word of scopes in its name.
    fn scope(&self, part: &str) -> String {
        format!("{part} of {}", self.word(Place::Scope))
    }

    /// Captures a source that is full of words.
    async fn capture(&self, scope: &str, name: &str) -> anyhow::Result<u16> {
        let body = json!({
            "scope_id": scope,
            "source_id": format!("{name} {}", self.word(Place::SourceId)),
            "content": format!("user: my secret is {}.", self.word(Place::Source)),
            "metadata": {self.word(Place::Metadata): [self.word(Place::Metadata)]},
        });
        let answer = self.client.post("/v1/sources/content", &body).await?;
        self.canaries.absent("the answer to a capture", &answer.text, NAMES)?;
        Ok(answer.status)
    }

    async fn flush(&self, scope: &str) -> anyhow::Result<String> {
        let answer = self.client.flush(scope, "respond-async").await?.expect(202)?;
        self.canaries.absent("the answer to a flush", &answer.text, NAMES)?;
        answer.operation_id()
    }

    async fn edit(&self, verb: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self
            .client
            .post(&format!("/v1/memory/{verb}"), body)
            .await?
            .expect(200)?;
        self.canaries.absent(verb, &answer.text, CONTENT)?;
        Ok(answer.body)
    }

    /// Everything that makes, changes and shows Memory.
    async fn memory(&self) -> anyhow::Result<()> {
        let scope = self.scope("house");
        ensure!(self.capture(&scope, "one").await? == 202, "not captured");
        let operation = self.flush(&scope).await?;
        self.client.operation_is(&operation, "succeeded", SOON).await?;
        let heard = self.model.heard();
        let told = [
            Place::Source,
            Place::Metadata,
            Place::ProviderKey,
            Place::Header,
            Place::Parameter,
        ];
        for place in told {
            ensure!(heard.contains(self.word(place)), "the provider was not told {place:?}");
        }
        self.canaries.absent("what the provider is told", &heard, &told)?;

        let memory = self.word(Place::Memory);
        let text = format!("We remember {memory}.");
        let body = json!({"scope_id": scope, "kind": "fact", "text": text, "reason": memory});
        let made = self.edit("remember", &body).await?;
        let listed = self.edit("entries/list", &json!({"scope_id": scope})).await?;
        let entries = listed["entries"].as_array().context("no entries")?;
        let is_ours = |entry: &&Value| entry["text"] == text;
        let entry = entries
            .iter()
            .find(is_ours)
            .with_context(|| format!("not in {listed}, made {made}"))?;
        let citation = entry["citation"].clone();
        ensure!(
            listed.to_string().contains(self.word(Place::Reply)),
            "the model's entry is not in {listed}"
        );
        self.edit("entries/get", &json!({"scope_id": scope, "citation": citation}))
            .await?;
        let search = json!({"scope_id": scope, "query": format!("{memory} {}", self.word(Place::Query))});
        let found = self.edit("search", &search).await?;
        ensure!(found.to_string().contains(memory), "not found: {found}");
        let text = format!("We still remember {memory}.");
        let body = json!({"scope_id": scope, "citation": citation, "kind": "fact", "text": text, "reason": memory});
        self.edit("entries/revise", &body).await?;
        self.edit("changes", &json!({"scope_id": scope})).await?;
        Ok(())
    }

    /// A model that fails in every way, and then answers. Between two ways it answers once, or the provider would count as
    /// out of order.
    async fn failing_models(&self) -> anyhow::Result<()> {
        let manners = [
            Manner::NoJson,
            Manner::Refuse(500),
            Manner::OtherForm,
            Manner::Refuse(401),
            Manner::OtherCitation,
            Manner::Refuse(302),
            Manner::Page,
            Manner::Refuse(429),
            Manner::NoText,
            Manner::Refuse(400),
        ];
        for (n, manner) in manners.into_iter().enumerate() {
            self.model.behave(manner);
            let scope = self.scope(&format!("{n}"));
            ensure!(self.capture(&scope, "one").await? == 202, "not captured");
            let answer = self.client.flush(&scope, "wait=25").await?.expect(409)?;
            self.canaries.absent("a failed flush", &answer.text, NAMES)?;
            ensure!(answer.code() == "operation_failed", "{manner:?}: {answer:?}");
            self.model.behave(Manner::Answer);
            let operation = answer.operation_id()?;
            let retried = self.client.act(&operation, "retry").await?.expect(200)?;
            self.canaries.absent("a retry", &retried.text, NAMES)?;
            self.client.operation_is(&operation, "succeeded", SOON).await?;
        }
        Ok(())
    }

    /// A request and a run that panic: an answer without the text for the one, another attempt for the other.
    async fn panics(&self) -> anyhow::Result<()> {
        let scope = self.scope("panic");
        let armed = self.database.beside("capture");
        std::fs::write(&armed, "")?;
        ensure!(self.capture(&scope, "one").await? == 500, "the capture did not panic");
        std::fs::remove_file(armed)?;
        ensure!(
            self.capture(&scope, "one").await? == 202,
            "not captured after the panic"
        );

        let armed = self.database.beside("finish");
        std::fs::write(&armed, "")?;
        let panicked = self.server.log().matches("a task panicked").count();
        let operation = self.flush(&scope).await?;
        let second = until("the end of a run panics", SOON, async || {
            let now = self.server.log().matches("a task panicked").count();
            Ok((now > panicked).then_some(()))
        });
        second.await.with_context(|| self.server.log())?;
        std::fs::remove_file(armed)?;
        self.client.operation_is(&operation, "succeeded", SOON).await?;
        Ok(())
    }

    /// What the server shows about itself and its work; answers the ids of its operations.
    async fn shown(&self) -> anyhow::Result<Vec<String>> {
        let operations = self.client.get("/v1/operations?limit=100").await?.expect(200)?;
        ensure!(operations.text.contains(self.word(Place::Scope)), "{operations:?}");
        self.canaries
            .absent("the list of operations", &operations.text, NAMES)?;
        for path in ["/v1/capabilities", "/health/live", "/health/ready", "/metrics"] {
            let answer = self.client.get(path).await?.expect(200)?;
            self.canaries.absent(path, &answer.text, &[])?;
        }
        let metrics = self.client.get("/metrics").await?.text;
        let mut ids = Vec::new();
        for operation in operations.body["items"].as_array().context("no operations")? {
            let id = operation["operation_id"].as_str().context("no id")?;
            ensure!(!metrics.contains(id), "{id} is a label");
            ids.push(id.to_owned());
        }
        ensure!(!metrics.contains("server-token"), "a principal is a label");
        let arguments = std::fs::read(format!("/proc/{}/cmdline", self.server.pid()?))?;
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        ensure!(arguments.contains("server"), "{arguments}");
        self.canaries.absent("the process's arguments", &arguments, &[])?;
        let children = children::of(self.server.pid()?)?;
        ensure!(!children.is_empty(), "no child waits");
        for child in children {
            // One that has ended since says nothing.
            let said = child.arguments_and_environment().unwrap_or_default();
            self.canaries.absent("what a child was started with", &said, &[])?;
        }
        Ok(ids)
    }

    /// The rows of every table.
    async fn stored(&self) -> anyhow::Result<()> {
        self.canaries.at_home(&rows::all(self.database).await?)?;
        facts::hold(self.database).await
    }
}
