//! Acceptance of supervised processing, points 7 to 9: what is asked for, what is joined, and what is recovered. Each with
//! both retry policies.

use anyhow::ensure;
use powercontext::families::test_only::Settings;
use powercontext_tests::facts;
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON};
use crate::stage::{BOTH, RUNNING, Stage, settings};

const TAKEN_OVER: [&str; 2] = ["lease_expired_retry", "succeeded"];
const AGAIN: [&str; 2] = ["retry_wait", "succeeded"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_07_without_a_schedule_ordinary_work_rests_and_what_was_asked_for_runs_and_recovers()
-> anyhow::Result<()> {
    let mut stage = Stage::new(settings(None, 0)).await?;
    for family in BOTH {
        stage.capture_many(family, "ordinary", 3).await?;
        stage.capture(family, "asked").await?;
        stage.capture(family, "accepted").await?;
        stage.say(family, "accepted", "hold")?;
        stage.flush(family, "accepted").await?;
    }
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.wait(family, RUNNING, 1).await?;
        stage.flush(family, "asked").await?;
        stage
            .wait(family, "status = 'succeeded' and scope_id = 'asked'", 1)
            .await?;
    }
    process.kill().await?;
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.say(family, "accepted", "")?;
        stage
            .wait(family, "status = 'succeeded' and scope_id = 'accepted'", 1)
            .await?;
        let outcomes = stage.outcomes(family, "accepted").await?;
        ensure!(outcomes == TAKEN_OVER, "{family}: {outcomes:?}");
        let ordinary = stage.items(family, "scope_id like 'ordinary%'").await?;
        ensure!(ordinary == 0, "{family}: {ordinary} items that nobody asked for");
        ensure!(stage.counters(family, "ordinary0").await? == [1, 0, 0, 0]);
    }
    process.stop().await?;
    // The marks are there when a schedule is.
    stage.families.bounded = Some(settings(Some(300), 0));
    stage.families.unbounded = stage.families.bounded.clone();
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.rests(family).await?;
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_08_requests_coalesce_and_an_end_swallows_no_later_one() -> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(500), 0)).await?;
    for family in BOTH {
        stage.say(family, "all", "hold")?;
        stage.capture(family, "asked").await?;
        stage.capture(family, "scanned").await?;
        // Nobody works yet: all of them wait as one.
        let first = stage.flush(family, "asked").await?;
        for _ in 0..3 {
            ensure!(
                stage.flush(family, "asked").await? == first,
                "{family}: joins what waits"
            );
        }
    }
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.wait(family, RUNNING, 2).await?;
        let first = stage.item(family, "scope_id = 'asked'").await?.0;
        ensure!(
            stage.flush(family, "asked").await? == first,
            "{family}: joins what runs"
        );
        stage.capture(family, "asked").await?;
        let second = stage.flush(family, "asked").await?;
        ensure!(second != first, "{family}: the run has read already");
        ensure!(
            stage.flush(family, "asked").await? == second,
            "{family}: joins what waits behind"
        );
        // Found by a scan, and captured again while it runs, without being asked for.
        stage.capture(family, "scanned").await?;
    }
    for family in BOTH {
        stage.say(family, "all", "")?;
        stage.rests(family).await?;
        for scope in ["asked", "scanned"] {
            ensure!(stage.cursor(family, scope).await? == (2, 2), "{family}, {scope}");
            ensure!(stage.items(family, &format!("scope_id = '{scope}'")).await? == 2);
            let [dirty, clean, requested, handled] = stage.counters(family, scope).await?;
            ensure!(dirty == 2 && clean == 2 && requested == handled, "{family}, {scope}");
        }
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_09_crashes_timeouts_and_partial_commits_go_on_from_what_was_committed() -> anyhow::Result<()> {
    let quick = Settings {
        timeout_ms: 3_000,
        retry_base_ms: 200,
        ..settings(None, 0)
    };
    let stage = Stage::new(quick).await?.set("WORKER_CONCURRENCY", "8");
    for family in BOTH {
        for (scope, word) in [("crash", "crash once"), ("part", "part once"), ("slow", "hold")] {
            stage.say(family, scope, word)?;
            stage.capture(family, scope).await?;
        }
        for _ in 0..2 {
            stage.capture(family, "part").await?;
        }
        for scope in ["crash", "part", "slow"] {
            stage.flush(family, scope).await?;
        }
    }
    let process = stage.start("background").await?;
    for family in BOTH {
        until("the slow one was ended", SOON, async || {
            let outcomes = stage.outcomes(family, "slow").await?;
            Ok((outcomes.first().map(String::as_str) == Some("retry_wait")).then_some(()))
        })
        .await?;
        stage.say(family, "slow", "")?;
    }
    for family in BOTH {
        stage.rests(family).await?;
        for (scope, code, cursor) in [
            ("crash", "missing_durable_acknowledgement", (1, 1)),
            ("slow", "worker_timeout", (1, 1)),
            // One source by the run that failed then, and the others by the next: none twice.
            ("part", "timeout", (3, 2)),
        ] {
            let outcomes = stage.outcomes(family, scope).await?;
            let (first, last) = (outcomes.first(), outcomes.last());
            ensure!(
                first.map(String::as_str) == Some("retry_wait") && last.map(String::as_str) == Some("succeeded"),
                "{family}, {scope}: {outcomes:?}"
            );
            let codes = stage.codes(family, scope).await?;
            ensure!(
                codes.first().map(String::as_str) == Some(code),
                "{family}, {scope}: {codes:?}"
            );
            let now = stage.cursor(family, scope).await?;
            ensure!(now == cursor, "{family}, {scope}: {now:?}");
        }
        ensure!(stage.outcomes(family, "crash").await? == AGAIN);
        ensure!(stage.outcomes(family, "part").await? == AGAIN);
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_09_a_commit_that_nobody_heard_of_and_a_worker_that_dies_cost_no_input() -> anyhow::Result<()> {
    let stage = Stage::new(settings(None, 0)).await?;
    let mortal = stage
        .role("background")?
        .stopping_at("finish.after_commit")
        .start()
        .await?;
    for family in BOTH {
        stage.say(family, "killed", "hold")?;
        for scope in ["killed", "unheard"] {
            stage.capture(family, scope).await?;
            stage.flush(family, scope).await?;
        }
    }
    for family in BOTH {
        stage
            .wait(family, "status = 'succeeded' and scope_id = 'unheard'", 1)
            .await?;
        stage.wait(family, RUNNING, 1).await?;
    }
    mortal.kill().await?;
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.say(family, "killed", "")?;
        stage.rests(family).await?;
        ensure!(stage.outcomes(family, "unheard").await? == ["succeeded"], "{family}");
        ensure!(stage.outcomes(family, "killed").await? == TAKEN_OVER, "{family}");
        for scope in ["killed", "unheard"] {
            ensure!(stage.cursor(family, scope).await? == (1, 1), "{family}, {scope}");
            // What was acknowledged finds nothing new to do, however often it is asked for.
            ensure!(stage.flush(family, scope).await.is_err(), "{family}, {scope}: not idle");
        }
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_09_input_and_its_mark_are_there_together_or_not_at_all() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?.with("RUNTIME_MEMORY_SCHEDULE_SECONDS", "0.3");
    let number =
        async |table: &str| facts::number(&deployment.database, &format!("select count(*) from {table}")).await;
    for (point, sources) in [("capture.before_commit", 0), ("capture.after_commit", 1)] {
        let api = deployment.role("api").stopping_at(point).start().await?;
        let client = api.client.clone();
        let captured =
            powercontext::rt::spawn(async move { client.capture("house", "s1", "user: I prefer blue.").await });
        api.reached(point).await?;
        api.kill().await?;
        ensure!(captured.await?.is_err(), "the client was answered");
        until("the server has seen its end", SOON, async || {
            let counts = (number("pc_sources").await?, number("pc_source_journal_heads").await?);
            Ok((counts == (sources, sources)).then_some(()))
        })
        .await?;
        let marks = number("pc_artifact_processing_intents where binding_name = 'memory-source-window'").await?;
        ensure!(marks == sources, "{point}: {marks} marks for {sources} sources");
    }
    // Nobody was told of it, and it is discovered all the same.
    let process = deployment.start("background").await?;
    until("it is extracted", SOON, async || {
        Ok((facts::revisions(&deployment.database, "house").await? == 1).then_some(()))
    })
    .await?;
    deployment.holds().await?;
    process.stop().await
}
