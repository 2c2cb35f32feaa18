//! `powercontext server migrate`: progress as lines, then one line that says how it ended.

use std::collections::BTreeMap;

use powercontext_core::limits::PAYLOAD_VERSIONS;
use powercontext_core::time::Span;

use super::{Exit, MigrateArgs, Output, Streams, database_url, load_database, refusal, start_log};
use crate::store::DatabaseUrl;
use crate::store::migrate::revisions::TARGET;
use crate::store::migrate::{Code, Mode, Progress, Report, migrate};

/// How long to wait for another migrator before giving up for now: its lease, and a margin.
const WAIT: Span = Span::seconds(660);

/// Migrates, or tells the plan.
pub(super) async fn run(args: MigrateArgs, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
    let mode = if args.plan {
        Mode::Plan
    } else {
        Mode::Apply { wait: WAIT }
    };
    let settings = match load_database(env, args.file) {
        Ok(settings) => settings,
        Err(faults) => {
            let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
            return told(&misconfigured(reasons.join("\n")), None, mode, args.output, streams);
        }
    };
    start_log(&settings);
    let url = match database_url(&settings.database.location) {
        Ok(url) => url,
        Err(fault) => {
            let report = misconfigured(format!("POWERCONTEXT_SERVER_DATABASE_URL: {fault}"));
            return told(&report, None, mode, args.output, streams);
        }
    };
    let report = migrate(&url, mode, &mut |progress| streams.say(line(&progress))).await;
    told(&report, Some(&url), mode, args.output, streams)
}

fn misconfigured(reason: String) -> Report {
    Report {
        current: 0,
        target: TARGET,
        steps: Vec::new(),
        code: Code::BadConfiguration,
        payload_version: *PAYLOAD_VERSIONS.end(),
        reason: Some(reason),
        cause: None,
    }
}

fn line(progress: &Progress) -> String {
    match progress {
        Progress::Waiting { owner, seconds_left } => {
            format!("waiting for another migrator ({owner}); its lease has {seconds_left} s left")
        }
        Progress::Statement {
            revision,
            name,
            file,
            number,
            of,
        } => {
            format!("revision {revision} {name}: statement {number} of {of} ({file})")
        }
        Progress::Completed { revision, name } => format!("revision {revision} {name}: complete"),
    }
}

/// Prints the end: reasons on standard error, the report as the last line of the output.
fn told(
    report: &Report,
    database: Option<&DatabaseUrl>,
    mode: Mode,
    output: Output,
    streams: &mut Streams<'_>,
) -> Exit {
    if let Some(reason) = &report.reason {
        streams.complain(reason);
    }
    if let Some(advice) = advice(report) {
        if let Some(database) = database {
            streams.complain(format_args!("Where: {database:?}."));
        }
        streams.complain(format_args!("What to do: {advice}."));
    }
    match output {
        Output::Json => {
            // Numbers, names of ours and a reason: nothing in it can fail to be JSON.
            streams.say(serde_json::to_string(report).unwrap_or_default());
        }
        Output::Text => {
            for step in &report.steps {
                if mode == Mode::Plan {
                    let kind = if step.additive { "additive" } else { "not additive" };
                    streams.say(format_args!(
                        "revision {} {}: {} statements, {kind}",
                        step.revision, step.name, step.statements
                    ));
                }
            }
            streams.say(summary(report, mode));
        }
    }
    match report.code {
        Code::Done => Exit::Done,
        Code::Refused => Exit::Refused,
        Code::BadConfiguration => Exit::BadConfiguration,
        Code::NotReachable => Exit::NotReachable,
    }
}

fn summary(report: &Report, mode: Mode) -> String {
    let (current, target, steps) = (report.current, report.target, report.steps.len());
    match (report.code, mode) {
        (Code::Done, Mode::Plan) => {
            format!("The database is at revision {current}; this build works on {target}; {steps} steps to do.")
        }
        (Code::Done, Mode::Apply { .. }) => {
            format!("The database is at revision {current}; this build works on {target}; {steps} steps done.")
        }
        (Code::Refused, _) => "Refused; nothing more was changed.".to_owned(),
        (Code::BadConfiguration, _) => "Bad configuration.".to_owned(),
        (Code::NotReachable, _) => "Not reachable.".to_owned(),
    }
}

fn advice(report: &Report) -> Option<&'static str> {
    match (report.code, &report.cause) {
        (Code::Done, _) => None,
        (Code::Refused, _) => Some("read docs/operations.md, \"Migrating\"; trying again will not help"),
        (Code::BadConfiguration, Some(cause)) => Some(refusal::database(cause)),
        (Code::BadConfiguration, None) => Some("correct the settings"),
        (Code::NotReachable, _) => Some("check that the database runs and can be reached, then try again"),
    }
}
