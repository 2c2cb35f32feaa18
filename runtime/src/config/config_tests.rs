//! Whole tables: what settings are read as, and every fault of a set of variables.

use std::io::Write as _;

use powercontext_core::supervise::member::Role;
use powercontext_core::supervise::mode::Mode;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use secrecy::ExposeSecret;

use super::keys::{Default, GROUPS};
use super::*;

#[path = "deployment_tests.rs"]
mod deployment;

fn sources(env: &[(&str, &str)]) -> Sources {
    let mut variables = BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]);
    for (name, value) in env {
        let name = match *name {
            name @ ("HOME" | "XDG_DATA_HOME" | "POWERCONTEXT_HOME" | "OPENAI_API_KEY" | "ANTHROPIC_API_KEY") => {
                name.to_owned()
            }
            name if name.starts_with("OTEL_") => name.to_owned(),
            name => format!("{PREFIX}{name}"),
        };
        variables.insert(name, (*value).to_owned());
    }
    Sources {
        env: variables,
        ..Sources::default()
    }
}

fn settings(env: &[(&str, &str)]) -> Settings {
    load(sources(env)).unwrap_or_else(|faults| panic!("{env:?}: {faults:?}"))
}

fn told(sources: Sources) -> Vec<String> {
    match load(sources) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

/// The names of the refused settings, without their prefix.
fn refused(env: &[(&str, &str)]) -> Vec<&'static str> {
    let faults = load(sources(env)).err().unwrap_or_default();
    faults
        .iter()
        .map(|fault| fault.key.trim_start_matches(PREFIX))
        .collect()
}

#[test]
fn an_empty_environment_gives_the_documented_defaults() {
    let s = settings(&[]);
    assert_eq!(s.http.address.to_string(), "127.0.0.1:8000");
    assert!(matches!(&s.database.location, DatabaseLocation::Sqlite(path)
        if path.to_str() == Some("/home/u/.local/share/powercontext/powercontext.db")));
    assert!(s.access.token.is_none() && s.access.quota.is_none());
    assert_eq!(s.database.connections_max, 16);
    assert_eq!(s.deployment.id, "local");
    assert_eq!(s.deployment.behavior_revision, "default");
    assert_eq!(s.coordination.member_ttl, Span::seconds(30));
    assert_eq!(s.coordination.member_heartbeat, Span::seconds(10));
    assert_eq!(
        s.worker,
        WorkerSettings {
            concurrency: 4,
            lease: Span::seconds(120),
            heartbeat: Span::seconds(30),
            shutdown_grace: Span::seconds(90),
            poll: Span::seconds(1),
        }
    );
    assert_eq!(
        s.operations,
        OperationsSettings {
            default_wait: Span::seconds(8),
            maximum_wait: Span::seconds(30),
            poll: Span::millis(200),
        }
    );
    assert_eq!(s.memory.window_sources_max, 100);
    assert_eq!(s.memory.profile, ExtractionProfile::Coding);
    assert_eq!(s.memory.workers_max.map(std::num::NonZeroU16::get), Some(4));
    assert_eq!(s.memory.schedule, None);
    assert_eq!(
        (s.deployment.mode, s.deployment.role),
        (DeploymentMode::SingleNode, Role::All)
    );
    assert_eq!(s.supervision.mode, Mode::Global);
    assert_eq!(
        (s.supervision.lease, s.supervision.renew),
        (Span::seconds(30), Span::seconds(10))
    );
    assert_eq!(s.maintenance.retention, Span::seconds(30 * 86_400));
    assert_eq!(s.memory.timeout, Span::seconds(600));
    assert_eq!(s.memory.retry, RetryPolicy::BOUNDED);
    assert!(s.generation.is_none());
    assert_eq!(s.logging.level, tracing::Level::INFO);
    assert_eq!(s.logging.format, LogFormat::Console);
    assert!(s.metrics);
}

#[test]
fn every_default_passes_its_own_rule_and_every_name_is_unique() {
    let mut names: Vec<_> = GROUPS.iter().flat_map(|g| g.keys).map(|key| key.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    // A default that its rule refused would be a fault of an empty environment.
    assert_eq!(told(sources(&[])), Vec::<String>::new());
}

#[test]
fn a_setting_that_is_in_the_table_is_read() {
    for key in GROUPS.iter().flat_map(|group| group.keys) {
        let mut sources = sources(&[]);
        // No rule accepts this character, so that a setting which is read is refused.
        sources.env.insert(key.name().to_owned(), "\u{fffd}".to_owned());
        let expected = format!("{} (environment): is not UTF-8 text", key.name());
        assert!(told(sources).contains(&expected), "{}", key.name());
    }
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("{PREFIX}HTTP_HOST=::1\n{PREFIX}HTTP_PORT=1\n{PREFIX}LOGGING_LEVEL=debug\n{PREFIX}UNKNOWN=x\n");
    file.write_all(text.as_bytes()).expect("writable");
    let mut sources = sources(&[("HTTP_PORT", "2"), ("LOGGING_LEVEL", "ERROR"), ("OF_THE_FUTURE", "x")]);
    sources.env_file = Some(file.path().to_owned());
    sources.flags = vec![Flag::port("3".to_owned())];
    let s = load(sources.clone()).expect("valid");
    assert_eq!(s.http.address.to_string(), "[::1]:3");
    assert_eq!(s.logging.level, tracing::Level::ERROR);
    sources.flags.clear();
    sources.env.clear();
    sources.env.insert("POWERCONTEXT_HOME".to_owned(), "/data".to_owned());
    let s = load(sources).expect("valid");
    assert_eq!(s.http.address.to_string(), "[::1]:1");
    assert_eq!(s.logging.level, tracing::Level::DEBUG);
}

#[test]
fn all_faults_are_told_at_once_with_their_origin_and_without_their_value() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("hunter2\n{PREFIX}WORKER_MAX_ATTEMPTS=hunter2\n");
    file.write_all(text.as_bytes()).expect("writable");
    let mut sources = sources(&[
        ("DATABASE_URL", "hunter2://x"),
        ("METRICS_ENABLED", "hunter2"),
        ("WORKER_LEASE_SECONDS", "60"),
        ("OPENAI_API_KEY", "hunter2 "),
    ]);
    sources.env_file = Some(file.path().to_owned());
    sources.flags = vec![Flag::host("hunter2".to_owned()), Flag::port("0".to_owned())];
    let told = told(sources);
    let starts = [
        "--env-file (env file line 1): must have the form",
        "POWERCONTEXT_SERVER_HTTP_HOST (flag --host): must be an IPv4",
        "POWERCONTEXT_SERVER_HTTP_PORT (flag --port): must be a whole number from 1 to 65535",
        "POWERCONTEXT_SERVER_DATABASE_URL (environment): must be mysql://",
        "POWERCONTEXT_SERVER_WORKER_HEARTBEAT_SECONDS (default): three times it must be less than POWERCONTEXT_SERVER_WORKER_LEASE_SECONDS",
        "POWERCONTEXT_SERVER_WORKER_SHUTDOWN_GRACE_SECONDS (default): must be less than POWERCONTEXT_SERVER_WORKER_LEASE_SECONDS",
        "POWERCONTEXT_SERVER_WORKER_MAX_ATTEMPTS (env file line 2): must be a whole number from 1 to 100",
        "OPENAI_API_KEY (environment): must be printable ASCII",
        "POWERCONTEXT_SERVER_METRICS_ENABLED (environment): must be true or false",
    ];
    assert_eq!(told.len(), starts.len(), "{told:#?}");
    for (told, start) in told.iter().zip(starts) {
        assert!(told.starts_with(start), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn the_arithmetic_of_leases_holds_at_its_limits_and_breaks_one_past_them() {
    let worker = |lease, heartbeat, grace| {
        refused(&[
            ("WORKER_LEASE_SECONDS", lease),
            ("WORKER_HEARTBEAT_SECONDS", heartbeat),
            ("WORKER_SHUTDOWN_GRACE_SECONDS", grace),
        ])
    };
    let none: [&str; 0] = [];
    assert_eq!(worker("12", "3", "9"), none);
    assert_eq!(worker("12", "4", "9"), ["WORKER_HEARTBEAT_SECONDS"]);
    assert_eq!(worker("120", "39", "119"), none);
    assert_eq!(
        worker("120", "40", "120"),
        ["WORKER_HEARTBEAT_SECONDS", "WORKER_SHUTDOWN_GRACE_SECONDS"]
    );
    assert_eq!(worker("4", "1", "0"), none);
    assert_eq!(worker("3", "1", "0"), ["WORKER_HEARTBEAT_SECONDS"]);
    assert_eq!(worker("2", "1", "0"), ["WORKER_LEASE_SECONDS"]);

    let member = |ttl, heartbeat| {
        refused(&[
            ("COORDINATION_MEMBER_TTL_SECONDS", ttl),
            ("COORDINATION_MEMBER_HEARTBEAT_SECONDS", heartbeat),
        ])
    };
    assert_eq!(member("30", "10"), none);
    assert_eq!(member("29", "10"), ["COORDINATION_MEMBER_HEARTBEAT_SECONDS"]);
    assert_eq!(member("3", "1"), none);
    assert_eq!(member("2", "1"), ["COORDINATION_MEMBER_TTL_SECONDS"]);
}

#[test]
fn waits_and_delays_keep_their_order() {
    let none: [&str; 0] = [];
    let waits = |default, maximum| {
        refused(&[
            ("OPERATIONS_DEFAULT_WAIT_SECONDS", default),
            ("OPERATIONS_MAXIMUM_WAIT_SECONDS", maximum),
        ])
    };
    assert_eq!(waits("30", "30"), none);
    assert_eq!(waits("0", "0"), none);
    assert_eq!(waits("11", "10"), ["OPERATIONS_DEFAULT_WAIT_SECONDS"]);
    assert_eq!(waits("1", "31"), ["OPERATIONS_MAXIMUM_WAIT_SECONDS"]);
    let delays = |base, max| refused(&[("WORKER_RETRY_BASE_SECONDS", base), ("WORKER_RETRY_MAX_SECONDS", max)]);
    assert_eq!(delays("2", "2"), none);
    assert_eq!(delays("2.001", "2"), ["WORKER_RETRY_MAX_SECONDS"]);
    assert_eq!(delays("0", "2"), ["WORKER_RETRY_BASE_SECONDS"]);
}

#[test]
fn an_address_that_others_reach_is_refused_without_the_explicit_word() {
    let none: [&str; 0] = [];
    for host in ["127.0.0.1", "127.8.8.8", "::1", "localhost", "::ffff:127.0.0.1"] {
        assert_eq!(refused(&[("HTTP_HOST", host)]), none, "{host}");
    }
    for host in ["0.0.0.0", "::", "10.1.2.3", "::ffff:10.1.2.3"] {
        assert_eq!(refused(&[("HTTP_HOST", host)]), ["HTTP_HOST"], "{host}");
        let open = [("HTTP_HOST", host), ("ALLOW_UNAUTHENTICATED_NON_LOOPBACK", "true")];
        assert_eq!(refused(&open), none, "{host}");
    }
    let closed = [
        ("HTTP_HOST", "0.0.0.0"),
        ("AUTH_ENABLED", "true"),
        ("AUTH_TOKEN", "t0ken"),
    ];
    assert_eq!(refused(&closed), none);
    // A token that nobody asks for protects nothing.
    assert_eq!(refused(&[closed[0], closed[2]]), ["HTTP_HOST"]);
    assert_eq!(refused(&[closed[0], ("HTTP_PORT", "0")]), ["HTTP_HOST", "HTTP_PORT"]);
}

#[test]
fn authentication_needs_its_token_and_shows_it_nowhere() {
    let on = ("AUTH_ENABLED", "true");
    assert_eq!(refused(&[on]), ["AUTH_TOKEN"]);
    assert_eq!(refused(&[on, ("AUTH_TOKEN", "")]), ["AUTH_TOKEN"]);
    assert_eq!(refused(&[on, ("AUTH_TOKEN", "two words")]), ["AUTH_TOKEN"]);
    assert_eq!(refused(&[("AUTH_ENABLED", "perhaps")]), ["AUTH_ENABLED"]);
    // The address is judged by what else is good; all faults are told.
    assert_eq!(refused(&[on, ("HTTP_HOST", "0.0.0.0")]), ["AUTH_TOKEN"]);
    let s = settings(&[on, ("AUTH_TOKEN", "hunter2")]);
    assert!(!format!("{s:?}").contains("hunter2"));
    let token = s.access.token.as_ref().map(ExposeSecret::expose_secret);
    assert_eq!(token, Some("hunter2"));
    assert!(settings(&[("AUTH_TOKEN", "hunter2")]).access.token.is_none());
}

#[test]
fn the_limit_is_off_unless_it_is_asked_for() {
    let none: [&str; 0] = [];
    assert!(settings(&[("RATE_LIMIT_REQUESTS", "7")]).access.quota.is_none());
    let quota = settings(&[("RATE_LIMIT_ENABLED", "true")]).access.quota.expect("on");
    assert_eq!((quota.requests(), quota.window_seconds()), (120, 60));
    for (name, good, bad) in [
        ("RATE_LIMIT_REQUESTS", ["1", "1000000"], ["0", "1000001"]),
        ("RATE_LIMIT_WINDOW_SECONDS", ["1", "86400"], ["0", "86401"]),
    ] {
        for value in good {
            assert_eq!(refused(&[(name, value)]), none, "{value}");
        }
        for value in bad {
            assert_eq!(refused(&[(name, value)]), [name], "{value}");
        }
    }
}

#[test]
fn the_kind_of_database_must_agree_with_its_url() {
    let url = "mysql://u:p@h:2881/pc";
    let none: [&str; 0] = [];
    assert_eq!(refused(&[("DATABASE_URL", url)]), none);
    assert_eq!(refused(&[("DATABASE_URL", url), ("DATABASE_KIND", "oceanbase")]), none);
    assert_eq!(refused(&[("DATABASE_URL", "/a.db"), ("DATABASE_KIND", "sqlite")]), none);
    assert_eq!(refused(&[("DATABASE_KIND", "sqlite")]), none);
    assert_eq!(refused(&[("DATABASE_KIND", "oceanbase")]), ["DATABASE_URL"]);
    assert_eq!(
        refused(&[("DATABASE_KIND", "oceanbase"), ("DATABASE_URL", "/a.db")]),
        ["DATABASE_URL"]
    );
    assert_eq!(
        refused(&[("DATABASE_KIND", "sqlite"), ("DATABASE_URL", url)]),
        ["DATABASE_URL"]
    );
    assert_eq!(refused(&[("DATABASE_KIND", "seekdb")]), ["DATABASE_KIND"]);
    let pool = |role, size| {
        refused(&[
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", role),
            OCEANBASE,
            MODEL,
            KEY,
            ("DATABASE_POOL_SIZE", size),
        ])
    };
    for (role, fits, too_small) in [
        ("api", "4", "3"),
        ("background", "4", "3"),
        ("scheduler", "2", "1"),
        ("worker", "2", "1"),
    ] {
        assert_eq!(pool(role, fits), none, "{role}");
        assert_eq!(pool(role, too_small), ["DATABASE_POOL_SIZE"], "{role}");
    }
    assert_eq!(
        refused(&[OCEANBASE, ("DATABASE_POOL_SIZE", "3")]),
        ["DATABASE_POOL_SIZE"]
    );
}

#[test]
fn the_file_of_an_unnamed_database_stands_in_the_data_folder() {
    let path = |env: &[(&str, &str)]| match settings(env).database.location {
        DatabaseLocation::Sqlite(path) => path.display().to_string(),
        DatabaseLocation::OceanBase(_) => panic!("not a file"),
    };
    assert_eq!(
        path(&[("POWERCONTEXT_HOME", "/p"), ("XDG_DATA_HOME", "/x")]),
        "/p/powercontext.db"
    );
    assert_eq!(path(&[("XDG_DATA_HOME", "/x")]), "/x/powercontext/powercontext.db");
    assert_eq!(refused(&[("HOME", "")]), ["DATABASE_URL"]);
}

const OCEANBASE: (&str, &str) = ("DATABASE_URL", "mysql://u:p@h:2881/pc");
const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "openai-chat:m");
const KEY: (&str, &str) = ("OPENAI_API_KEY", "k");

#[test]
fn concurrency_follows_the_caps_of_the_families_unless_it_is_set() {
    assert_eq!(settings(&[("RUNTIME_MEMORY_MAX_WORKERS", "7")]).worker.concurrency, 7);
    let both = [("RUNTIME_MEMORY_MAX_WORKERS", "7"), ("WORKER_CONCURRENCY", "2")];
    assert_eq!(settings(&both).worker.concurrency, 2);
    assert_eq!(
        refused(&[("RUNTIME_MEMORY_MAX_WORKERS", "257")]),
        ["RUNTIME_MEMORY_MAX_WORKERS"]
    );
}

#[test]
fn the_retry_of_memory_is_built_from_the_settings_of_the_worker() {
    let env = [
        ("WORKER_MAX_ATTEMPTS", "1"),
        ("WORKER_RETRY_BASE_SECONDS", "0.1"),
        ("WORKER_RETRY_MAX_SECONDS", "1"),
    ];
    let bounded = RetryPolicy::Bounded {
        attempts_max: 1,
        base: Span::millis(100),
        max: Span::seconds(1),
    };
    assert_eq!(settings(&env).memory.retry, bounded);
    let unbounded = settings(&[env[0], env[1], env[2], ("RUNTIME_MEMORY_RETRY", "unbounded")]);
    assert_eq!(unbounded.memory.retry, RetryPolicy::UNBOUNDED);
}

#[test]
fn the_reference_has_a_line_for_every_setting() {
    let page = reference();
    for key in GROUPS.iter().flat_map(|group| group.keys) {
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", key.name())));
        let line = line.unwrap_or_else(|| panic!("{} is missing", key.name()));
        assert_eq!(line.matches(" | ").count(), 3, "{line}");
        if let Default::Text(text) = key.default() {
            assert!(line.contains(&format!("| `{text}` |")), "{line}");
        }
    }
}

#[test]
fn the_example_file_changes_nothing_and_names_every_setting() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(example().as_bytes()).expect("writable");
    let mut with = sources(&[]);
    with.env_file = Some(file.path().to_owned());
    let (loaded, shown) = load_and_show(with).expect("valid");
    assert_eq!(format!("{loaded:?}"), format!("{:?}", settings(&[])));
    for (key, setting) in GROUPS.iter().flat_map(|group| group.keys).zip(&shown) {
        let is_set = matches!(key.default(), Default::Text(_));
        assert_eq!(matches!(setting.origin, Origin::EnvFile(_)), is_set, "{}", key.name());
        let line = format!("{}{}=", if is_set { "" } else { "#" }, key.name());
        let lines = example().lines().filter(|l| l.starts_with(&line)).count();
        assert_eq!(lines, 1, "{line}");
    }
}

#[test]
fn what_is_set_in_vain_is_told_and_is_no_fault() {
    assert_eq!(settings(&[]).notices, []);
    let vain = settings(&[("SCHEDULER_PATH", "/a/b.db"), ("AUTH_TOKEN", "t0ken")]);
    assert_eq!(vain.notices, [Notice::SchedulerPathIgnored, Notice::TokenUnused]);
    let asked = settings(&[
        ("AUTH_ENABLED", "true"),
        ("AUTH_TOKEN", "t0ken"),
        ("SCHEDULER_PATH", ""),
    ]);
    assert_eq!(asked.notices, []);
}

#[test]
fn spans_go_to_a_collector_only_where_one_is_named_or_asked_for() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
    let of = |env: &[(&str, &str)]| settings(env).tracing.map(|tracing| tracing.endpoint);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
    assert_eq!(of(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")]), None);
    assert_eq!(of(&[endpoint, ("TRACING_ENABLED", "false")]), None);
    assert_eq!(of(&[endpoint]).as_deref(), Some("http://collector:4318/v1/traces"));
    let own = of(&[("TRACING_ENABLED", "true")]);
    assert_eq!(own.as_deref(), Some("http://localhost:4318/v1/traces"));
    assert_eq!(
        refused(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]),
        ["OTEL_EXPORTER_OTLP_TIMEOUT"]
    );
    let tracing = settings(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")]);
    assert!(!format!("{tracing:?}").contains("hunter2"));
}
