//! What `server config` shows: every value with its source, and no secret.

use std::io::Write as _;

use clap::Parser as _;

use super::super::Cli;
use super::*;

fn shown(arguments: &[&str], env: &[(&str, &str)]) -> (Exit, String, String) {
    let arguments = [&["powercontext", "server", "config"], arguments].concat();
    let cli = Cli::try_parse_from(arguments).expect("valid arguments");
    let super::super::Command::Server(super::super::ServerCommand::Config(args)) = cli.command else {
        panic!("another command");
    };
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        out: &mut out,
        err: &mut err,
    };
    let exit = run(args, env.collect(), &mut streams);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(err))
}

/// The setting of a document by its name without the prefix.
fn one<'d>(document: &'d Value, name: &str) -> &'d Value {
    let settings = document["settings"].as_array().expect("a list");
    let has_name = |setting: &&Value| setting["name"].as_str().is_some_and(|n| n.ends_with(name));
    settings.iter().find(has_name).expect("every setting is shown")
}

#[test]
fn every_setting_is_a_line_with_its_value_and_its_source() {
    let (exit, out, err) = shown(&["--port", "9"], &[("HOME", "/home/u")]);
    assert_eq!((exit, err.as_str()), (Exit::Done, ""));
    let line = |start: &str| {
        let line = out.lines().find(|line| line.trim_start().starts_with(start));
        line.expect("every setting has a line")
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("POWERCONTEXT_SERVER_HTTP_HOST"), "127.0.0.1 default");
    assert_eq!(line("POWERCONTEXT_SERVER_HTTP_PORT"), "9 flag --port");
    assert_eq!(line("POWERCONTEXT_SERVER_AUTH_TOKEN"), "(unset) default");
    assert_eq!(
        line("POWERCONTEXT_SERVER_DATABASE_URL"),
        "sqlite at /home/u/.local/share/powercontext/powercontext.db default"
    );
    assert!(out.ends_with("\nThe settings are valid.\n"), "{out}");
}

#[test]
fn a_document_says_where_each_value_came_from() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    write!(file, "\nPOWERCONTEXT_SERVER_LOGGING_LEVEL=debug\n").expect("writable");
    let path = file.path().to_str().expect("text");
    let env = [
        ("HOME", "/home/u"),
        ("POWERCONTEXT_SERVER_RUNTIME_MEMORY_MAX_WORKERS", "7"),
    ];
    let arguments = ["--output", "json", "--env-file", path, "--host", "::1"];
    let (exit, out, err) = shown(&arguments, &env);
    assert_eq!((exit, err.as_str()), (Exit::Done, ""));
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let is = |name: &str, expected: Value| {
        let mut expected = expected;
        expected["name"] = one(&document, name)["name"].clone();
        assert_eq!(one(&document, name), &expected);
    };
    is(
        "HTTP_HOST",
        json!({"value": "::1", "hidden": false, "source": "flag", "flag": "--host"}),
    );
    is(
        "LOGGING_LEVEL",
        json!({"value": "debug", "hidden": false, "source": "env_file", "line": 2}),
    );
    is(
        "MEMORY_MAX_WORKERS",
        json!({"value": "7", "hidden": false, "source": "environment"}),
    );
    is(
        "HTTP_PORT",
        json!({"value": "8000", "hidden": false, "source": "default"}),
    );
    // What follows from other settings is told as well.
    is(
        "WORKER_CONCURRENCY",
        json!({"value": "7", "hidden": false, "source": "default"}),
    );
    is(
        "DATABASE_KIND",
        json!({"value": "sqlite", "hidden": false, "source": "default"}),
    );
    is(
        "AUTH_TOKEN",
        json!({"value": null, "hidden": false, "source": "default"}),
    );
    assert_eq!(document["warnings"], json!([]));
}

#[test]
fn secrets_are_hidden_and_the_rest_of_what_holds_them_is_not() {
    let env = [
        ("HOME", "/home/u"),
        ("POWERCONTEXT_SERVER_AUTH_TOKEN", "hunter2"),
        (
            "POWERCONTEXT_SERVER_DATABASE_URL",
            "oceanbase://me:hunter2@db.example:2881/pc?ssl-mode=disabled",
        ),
        ("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", "openai-chat:m"),
        (
            "POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL",
            "https://gateway.example:8443/hunter2/v1",
        ),
        (
            "POWERCONTEXT_SERVER_INFERENCE_GENERATION_HEADERS",
            r#"{"hunter2": "hunter2"}"#,
        ),
        (
            "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL_SETTINGS",
            r#"{"user": "hunter2"}"#,
        ),
        ("OPENAI_API_KEY", "hunter2"),
        ("ANTHROPIC_API_KEY", "hunter2"),
    ];
    for arguments in [&[][..], &["--output", "json"]] {
        let (exit, out, err) = shown(arguments, &env);
        assert_eq!(exit, Exit::Done, "{err}");
        assert!(!out.contains("hunter2") && !err.contains("hunter2"), "{out}{err}");
        for kept in ["oceanbase at db.example:2881/pc", "https://gateway.example:8443/…"] {
            assert!(out.contains(kept), "{out}");
        }
        assert!(
            err.starts_with("warning: POWERCONTEXT_SERVER_AUTH_TOKEN: nobody is asked"),
            "{err}"
        );
    }
    let (_, out, _) = shown(&["--output", "json"], &env);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    for name in [
        "AUTH_TOKEN",
        "_HEADERS",
        "MODEL_SETTINGS",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
    ] {
        let setting = one(&document, name);
        assert_eq!(
            (&setting["value"], &setting["hidden"]),
            (&Value::Null, &true.into()),
            "{name}"
        );
    }
    assert_eq!(document["warnings"][0]["name"], "POWERCONTEXT_SERVER_AUTH_TOKEN");
}

#[test]
fn faults_are_a_document_too() {
    let env = [("HOME", "/home/u"), ("POWERCONTEXT_SERVER_METRICS_ENABLED", "hunter2")];
    let (exit, out, err) = shown(&["--output", "json"], &env);
    assert_eq!(exit, Exit::BadConfiguration);
    assert_eq!(err.lines().count(), 1);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let expected = json!({"faults": [{
        "name": "POWERCONTEXT_SERVER_METRICS_ENABLED",
        "source": "environment",
        "reason": "must be true or false (also 1, 0, yes, no, on, off)",
    }]});
    assert_eq!(document, expected);
}

#[test]
fn the_path_of_the_old_scheduler_is_accepted_and_told_to_be_ignored() {
    for (arguments, env) in [
        (&["--scheduler-path", "/a/b.db"][..], &[("HOME", "/home/u")][..]),
        (
            &[],
            &[("HOME", "/home/u"), ("POWERCONTEXT_SERVER_SCHEDULER_PATH", "/a/b.db")],
        ),
    ] {
        let (exit, _, err) = shown(arguments, env);
        assert_eq!(exit, Exit::Done);
        let expected = "warning: POWERCONTEXT_SERVER_SCHEDULER_PATH: ignored: work is scheduled in the database\n";
        assert_eq!(err, expected);
    }
}
