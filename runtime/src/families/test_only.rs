//! Two families that only test builds have (feature `test-families`): one of each retry policy, each with a binding, a
//! prefix, a schedule, a cap, a timeout, an input and a cursor of its own. Everything around their processor is what Memory
//! has: intents, admission, claims, child processes, fenced commits.
//!
//! A test names them in the environment of a server, `TEST_FAMILIES={"door":"/path","bounded":{},"unbounded":{}}`; without
//! that there are none. It tells their runs what to do by files behind the door: `<door>/<family>/<scope>`, or
//! `<door>/<family>/all`, holds a [`Word`], with ` once` behind it for one run of that scope; `<door>/<family>/discovery`
//! says what becomes of their discovery.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, FamilyName, ScopeId, WorkKind};
use powercontext_core::refs::{Cursor, Position};
use powercontext_core::schedule::Schedule;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host::Load;
use super::{Cancel, DomainWrite, Done, Family, FamilySpec, Loaded, ProcessorHost, Reached, ResultCode, RunResult};
use crate::inference::Usage;
use crate::ledger::{self, KindSpec, Wanted};
use crate::rt;
use crate::store::error::corrupt;
use crate::store::{Db, Tx, TxError, TxName, cursors, sources};

/// The variable that names them.
pub const VARIABLE: &str = "TEST_FAMILIES";
/// Name of the family that gives up.
pub const BOUNDED: &str = "test-bounded";
/// Name of the family that tries for ever.
pub const UNBOUNDED: &str = "test-unbounded";

const VALID: &str = "a constant of the right form";
/// Pause between two looks behind the door.
const LOOK: Duration = Duration::from_millis(20);

/// What a test says of the families.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestFamilies {
    /// Where its words lie.
    pub door: PathBuf,
    /// The family that gives up after three attempts.
    #[serde(default)]
    pub bounded: Option<Settings>,
    /// The family that tries for ever.
    #[serde(default)]
    pub unbounded: Option<Settings>,
}

/// What a deployment sets for one of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Pause between two checks, in milliseconds; `None`: never by itself.
    pub schedule_ms: Option<u64>,
    /// Most runs at once; `None` for no cap.
    pub workers_max: Option<NonZeroU16>,
    /// Longest run, in milliseconds.
    pub timeout_ms: u64,
    /// First delay after a failure, in milliseconds.
    pub retry_base_ms: u64,
    /// Longest delay after a failure, in milliseconds.
    pub retry_max_ms: u64,
    /// Another prefix than its own.
    pub prefix: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            schedule_ms: None,
            workers_max: None,
            timeout_ms: 60_000,
            retry_base_ms: 50,
            retry_max_ms: 400,
            prefix: None,
        }
    }
}

/// What a run is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// Nothing is said: consume what is pending.
    All,
    /// Consume one source and succeed.
    One,
    /// Wait for another word.
    Hold,
    /// Fail as a provider does that is too slow.
    Fail,
    /// Fail as input does that nobody can read.
    Refuse,
    /// Commit one source as a window of its own, and fail then.
    Part,
    /// End the process.
    Crash,
}

impl Word {
    fn read(text: &str) -> Self {
        match text.trim() {
            "" => Self::All,
            "one" => Self::One,
            "hold" => Self::Hold,
            "fail" => Self::Fail,
            "refuse" => Self::Refuse,
            "part" => Self::Part,
            "crash" => Self::Crash,
            other => panic!("no word of a test: {other}"),
        }
    }
}

fn said(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// One of the families, as the roles register it.
pub struct TestFamily {
    /// What it is.
    pub spec: FamilySpec,
    /// First part of the names of its settings.
    pub prefix: String,
    /// When it is checked.
    pub schedule: Schedule,
    /// Its own condition for a scope.
    pub wanted: Arc<dyn Wanted>,
    /// Its processor, as a child builds it.
    pub job: Job,
}

/// The families that the environment names.
///
/// # Panics
/// When it names them wrongly: a test that relies on one would test nothing.
pub fn named() -> Vec<TestFamily> {
    #[expect(clippy::disallowed_methods, reason = "no setting of the product: test builds only")]
    let Ok(text) = std::env::var(VARIABLE) else {
        return Vec::new();
    };
    let named: TestFamilies = serde_json::from_str(&text).expect("TEST_FAMILIES has the form of its type");
    let pairs = [(BOUNDED, named.bounded), (UNBOUNDED, named.unbounded)];
    let named = pairs
        .into_iter()
        .filter_map(|(name, settings)| Some(family(name, &settings?, &named.door)));
    named.collect()
}

fn family(name: &'static str, settings: &Settings, door: &Path) -> TestFamily {
    let (door, prefix) = (door.join(name), settings.prefix.clone());
    TestFamily {
        spec: FamilySpec {
            work: kind(name, settings),
            workers_max: settings.workers_max,
            timeout: Span::millis(settings.timeout_ms),
            needs_model: false,
        },
        prefix: prefix.unwrap_or_else(|| name.to_uppercase().replace('-', "_")),
        schedule: settings
            .schedule_ms
            .map_or(Schedule::Disabled, |ms| Schedule::Interval(Span::millis(ms))),
        wanted: Arc::new(Discovery(door.join("discovery"))),
        job: Job {
            name: name.to_owned(),
            door,
        },
    }
}

/// What the ledger knows of a family's work, in a process that counts no slots.
pub fn kind(name: &str, settings: &Settings) -> KindSpec {
    let (base, max) = (
        Span::millis(settings.retry_base_ms),
        Span::millis(settings.retry_max_ms),
    );
    let retry = if name == BOUNDED {
        RetryPolicy::Bounded {
            attempts_max: 3,
            base,
            max,
        }
    } else {
        RetryPolicy::Unbounded { base, max }
    };
    KindSpec {
        kind: WorkKind::parse(format!("powercontext.{name}.scope")).expect(VALID),
        family: FamilyName::parse(name).expect(VALID),
        binding: BindingName::parse(format!("{name}-sources")).expect(VALID),
        payload_version: 1,
        retry,
        slots_max: None,
    }
}

/// Whether this is the work of one of them.
pub fn is_one(spec: &KindSpec) -> bool {
    [BOUNDED, UNBOUNDED].contains(&spec.family.as_str())
}

/// A family's condition for a scope: every one is wanted, unless the test says `fail` (it cannot be told) or `no`.
struct Discovery(PathBuf);

#[async_trait]
impl Wanted for Discovery {
    async fn is_wanted(&self, _tx: &mut Tx, _scope: &ScopeId) -> Result<bool, TxError> {
        match said(&self.0).as_deref().map(str::trim) {
            Some("fail") => Err(corrupt("discovery of a test family")),
            Some("no") => Ok(false),
            _ => Ok(true),
        }
    }
}

/// The processor, as it crosses to a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    name: String,
    door: PathBuf,
}

impl Job {
    /// The processor.
    pub fn family(&self) -> Arc<dyn Family> {
        let spec = FamilySpec {
            work: kind(&self.name, &Settings::default()),
            workers_max: None,
            timeout: Span::seconds(60),
            needs_model: false,
        };
        Arc::new(Processor {
            spec,
            job: self.clone(),
        })
    }

    /// What is said of this scope now. A word that is said once is taken back.
    fn word(&self, scope: &ScopeId) -> Word {
        let file = self.door.join(scope.as_str());
        let word = said(&file).or_else(|| said(&self.door.join("all"))).unwrap_or_default();
        match word.trim().strip_suffix(" once") {
            Some(once) => {
                std::fs::remove_file(&file).expect("a word that is said once is said of one scope");
                Word::read(once)
            }
            None => Word::read(&word),
        }
    }
}

struct Processor {
    spec: FamilySpec,
    job: Job,
}

#[async_trait]
impl Family for Processor {
    fn spec(&self) -> &FamilySpec {
        &self.spec
    }

    async fn run(&self, host: &dyn ProcessorHost, scope: &ScopeId, cancel: &Cancel) -> Result<Done, FailCode> {
        let nothing = Load {
            sources_max: 1,
            source_bytes_max: 0,
            entry_bytes_max: 0,
        };
        let loaded = host.load(nothing).await?;
        let word = loop {
            match self.job.word(scope) {
                Word::Hold if cancel.is_raised() => return Err(FailCode::CancelRequested),
                Word::Hold => rt::sleep(LOOK).await,
                word => break word,
            }
        };
        let next = loaded.cursor.sequence.next().min(loaded.journal_head);
        match word {
            Word::All | Word::Hold => Ok(self.done(scope, &loaded, loaded.journal_head)),
            Word::One => Ok(self.done(scope, &loaded, next)),
            Word::Fail => Err(FailCode::ProviderTimeout),
            Word::Refuse => Err(FailCode::InvalidPayload),
            Word::Part => {
                host.commit_window(self.step(scope, &loaded, next)).await?;
                Err(FailCode::ProviderTimeout)
            }
            Word::Crash => std::process::exit(7),
        }
    }
}

impl Processor {
    fn step(&self, scope: &ScopeId, loaded: &Loaded, through: Position) -> DomainWrite {
        DomainWrite::TestOnly(Step {
            scope: scope.clone(),
            binding: self.spec.work.binding.clone(),
            from: loaded.cursor,
            through,
        })
    }

    fn done(&self, scope: &ScopeId, loaded: &Loaded, through: Position) -> Done {
        let has_write = through > loaded.cursor.sequence;
        Done {
            write: has_write.then(|| self.step(scope, loaded, through)),
            ..ended(loaded.cursor.sequence, through, loaded.journal_head)
        }
    }
}

fn ended(from: Position, through: Position, head: Position) -> Done {
    Done {
        write: None,
        result: RunResult {
            code: if through > from {
                ResultCode::Processed
            } else {
                ResultCode::AlreadyCommitted
            },
            payload: json!({"previous_cursor": from, "current_cursor": through, "high_watermark": head}),
        },
        reached: Reached {
            cursor: through,
            journal_head: head,
        },
        usage: Usage::default(),
    }
}

/// A step of a family's cursor: its whole domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Where.
    pub scope: ScopeId,
    binding: BindingName,
    from: Cursor,
    through: Position,
}

#[async_trait]
impl ledger::DomainWrite for Step {
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError> {
        if cursors::lock(tx, &self.scope, &self.binding).await? != self.from {
            return Err(TxError::Refused(FailCode::CursorChanged));
        }
        let saved = cursors::save(tx, &self.scope, &self.binding, self.from, self.through).await?;
        Ok(saved.sequence)
    }
}

/// The cursor of a family in a scope, and the journal head, read after the claim.
///
/// # Errors
/// [`TxError`].
pub async fn load(db: &Db, scope: &ScopeId, spec: &KindSpec) -> Result<Loaded, TxError> {
    let input = Arc::new((scope.clone(), spec.binding.clone()));
    let read = db.read_with(TxName::Load, &input, |tx, (scope, binding)| {
        Box::pin(async move {
            Ok(Loaded {
                cursor: cursors::get(tx, scope, binding).await?,
                journal_head: sources::head(tx, scope).await?,
                sources: Vec::new(),
                memory: None,
            })
        })
    });
    read.await
}

/// The end of a run that would find nothing pending; `None` when there is something.
///
/// # Errors
/// [`TxError`].
pub async fn nothing_pending(db: &Db, scope: &ScopeId, spec: &KindSpec) -> Result<Option<Done>, TxError> {
    let loaded = load(db, scope, spec).await?;
    let at = loaded.cursor.sequence;
    Ok((loaded.journal_head <= at).then(|| ended(at, at, loaded.journal_head)))
}
