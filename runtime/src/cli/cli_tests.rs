//! The commands as a shell sees them: what they print, and how they end.

use clap::CommandFactory as _;
use serde_json::Value;

use super::*;

struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

async fn run(arguments: &[&str], env: &[(&str, &str)]) -> Ran {
    let arguments = [&["powercontext"], arguments].concat();
    let cli = Cli::try_parse_from(arguments).expect("valid arguments");
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        out: &mut out,
        err: &mut err,
    };
    let exit = cli.run(env.collect(), &mut streams).await;
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran {
        exit,
        out: text(out),
        err: text(err),
    }
}

fn last_line(text: &str) -> Value {
    let line = text.lines().last().expect("a last line");
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn the_arguments_are_well_formed() {
    Cli::command().debug_assert();
    for arguments in [
        "server run --host ::1 --port 1 --env-file f",
        "server migrate --plan --output json",
        "dev model --port 0",
    ] {
        let arguments = ["powercontext"].into_iter().chain(arguments.split(' '));
        assert!(Cli::try_parse_from(arguments).is_ok());
    }
    assert!(Cli::try_parse_from(["powercontext", "server", "migrate", "--output", "yaml"]).is_err());
}

#[tokio::test]
async fn faults_of_settings_are_lines_on_standard_error_and_exit_2() {
    let env = [("HOME", "/nowhere"), ("POWERCONTEXT_SERVER_METRICS_ENABLED", "hunter2")];
    for command in ["run", "config", "migrate"] {
        let ran = run(&["server", command], &env).await;
        assert_eq!(ran.exit, Exit::BadConfiguration, "{command}");
        let first = ran.err.lines().next().expect("a line");
        let expected =
            "POWERCONTEXT_SERVER_METRICS_ENABLED (environment): must be true or false (also 1, 0, yes, no, on, off)";
        assert_eq!(first, expected, "{command}");
        assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"));
    }
    let ran = run(
        &["server", "run", "--port", "65536", "--host", "h"],
        &[("HOME", "/nowhere")],
    )
    .await;
    assert_eq!(
        (ran.exit, ran.err.lines().count()),
        (Exit::BadConfiguration, 2),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn the_reference_and_the_example_are_printed_as_they_are() {
    let ran = run(&["server", "config", "--reference"], &[]).await;
    assert_eq!(ran.out, config::reference());
    let ran = run(&["server", "config", "--example"], &[]).await;
    assert_eq!(ran.out, config::example());
}

#[tokio::test]
async fn a_migration_ends_with_one_json_object() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let env = [("POWERCONTEXT_HOME", home.path().to_str().expect("text"))];
    let plan = run(&["server", "migrate", "--plan", "--output", "json"], &env).await;
    assert_eq!(plan.exit, Exit::Done, "{}", plan.err);
    let planned = last_line(&plan.out);
    assert_eq!((&planned["current"], &planned["code"]), (&0.into(), &0.into()));
    let steps = planned["steps"].as_array().expect("a list").len();
    assert!(steps > 0);
    let done = run(&["server", "migrate", "--output", "json"], &env).await;
    assert_eq!(done.exit, Exit::Done, "{}", done.err);
    let report = last_line(&done.out);
    assert_eq!(report["current"], report["target"]);
    assert!(
        done.out.lines().count() > steps,
        "progress comes before the last line: {}",
        done.out
    );
    let again = run(&["server", "migrate"], &env).await;
    assert_eq!(again.exit, Exit::Done, "{}", again.err);
    assert!(again.out.ends_with("0 steps done.\n"), "{}", again.out);
}

#[tokio::test]
async fn a_migration_that_cannot_go_on_tells_why_by_its_exit() {
    // Nothing listens on the discard port of this machine.
    let url = "mysql://root:hunter2@127.0.0.1:9/pc";
    let ran = run(
        &["server", "migrate", "--output", "json"],
        &[("POWERCONTEXT_SERVER_DATABASE_URL", url)],
    )
    .await;
    assert_eq!(
        (ran.exit, last_line(&ran.out)["code"].as_u64()),
        (Exit::NotReachable, Some(3)),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("hunter2") && !ran.out.contains("hunter2"));
    let ran = run(&["server", "migrate", "--output", "json"], &[]).await;
    assert_eq!(
        (ran.exit, last_line(&ran.out)["code"].as_u64()),
        (Exit::BadConfiguration, Some(2))
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_tells_what_where_and_what_to_do() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let file = home.path().join("a-file");
    std::fs::write(&file, "not a folder").expect("writable");
    let url = file.join("powercontext.db").display().to_string();
    let ran = run(&["server", "run"], &[("POWERCONTEXT_SERVER_DATABASE_URL", &url)]).await;
    assert_eq!(ran.exit, Exit::Refused, "{}", ran.err);
    for start in ["The server did not start: ", "Where: sqlite at ", "What to do: "] {
        assert!(ran.err.lines().any(|line| line.starts_with(start)), "{}", ran.err);
    }
}

#[test]
fn settings_accept_a_database_exactly_when_the_store_does() {
    for text in [
        "mysql://u:p@h:2881/pc",
        "oceanbase://u:p@h/pc",
        "mysql+aoceanbase://u:p@h:2881/pc?charset=utf8mb4",
        "mysql://h:2881",
        "mysql://u:p@h:x/pc",
        "mysql://u:p@h/pc?ssl-mode=perhaps",
        "mysql://",
        "postgres://h/pc",
        "/var/lib/pc.db",
        "sqlite:///var/lib/pc.db",
        "sqlite://",
        "relative.db",
        "u:p@h:2881/pc",
        "mysql:/u:p@h/pc",
        "sqlite:u:p@h/pc",
        "/var/lib/u:p@h/pc.db",
        "./u:p@h/pc.db",
        "u@h.db",
        " ",
    ] {
        let env = BTreeMap::from([("POWERCONTEXT_SERVER_DATABASE_URL".to_owned(), text.to_owned())]);
        let settings = config::load(Sources {
            env,
            ..Sources::default()
        });
        let store = DatabaseUrl::parse(text);
        assert_eq!(settings.is_ok(), store.is_ok(), "{text:?}");
        if let (Ok(settings), Ok(store)) = (settings, store) {
            let url = database_url(&settings.database.location).expect("accepted");
            assert_eq!(format!("{url:?}"), format!("{store:?}"));
        }
    }
}
