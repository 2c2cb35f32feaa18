//! `powercontext server switch-mode`: changes how supervision is organised.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use powercontext_core::supervise::mode::Mode;

use super::database::{exit_of_tx, open};
use super::{Exit, FileArgs, Streams, load_database, start_log, tell_faults};
use crate::store::TxError;
use crate::supervisor::switch::switch_mode;

#[derive(Debug, Args)]
pub(super) struct SwitchModeArgs {
    /// The mode to store
    #[arg(long, value_enum)]
    to: To,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    /// One Supervisor for all families
    Global,
    /// A Supervisor for each family
    Dedicated,
}

/// Stores the mode and ends every term.
pub(super) async fn run(args: SwitchModeArgs, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
    let settings = match load_database(env, args.file) {
        Ok(settings) => settings,
        Err(faults) => return tell_faults(&faults, streams),
    };
    start_log(&settings);
    let to = match args.to {
        To::Global => Mode::Global,
        To::Dedicated => Mode::Dedicated,
    };
    let opened = match open(&settings, streams).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let mut switched = switch_mode(&opened.db, to).await;
    if switched == Err(TxError::Unknown) {
        switched = switch_mode(&opened.db, to).await;
    }
    opened.db.close().await;
    match switched {
        Ok(before) => {
            let before = before.map_or("none", Mode::as_str);
            streams.say(format_args!(
                "The mode of supervision is {to}; it was {before}. Every term has ended: start the Schedulers with \
                 POWERCONTEXT_SERVER_RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE={to}."
            ));
            Exit::Done
        }
        Err(error) => {
            streams.complain(format_args!("The mode was not changed: {error}."));
            streams.complain("What to do: check that the database runs and can be reached, then try again.");
            exit_of_tx(&error)
        }
    }
}
