//! `powercontext server run`.

use std::collections::BTreeMap;

use super::{Exit, RunArgs, Streams, database_url, load, refusal, signals, start_log, tell_faults};
use crate::roles;

/// Runs the server until a signal, or tells why it cannot.
pub(super) async fn run(args: RunArgs, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
    let settings = match load(env, args.file, args.flags.into_flags()) {
        Ok(settings) => settings,
        Err(faults) => return tell_faults(&faults, streams),
    };
    start_log(&settings);
    // Handled from here on, so that no signal is missed while the role starts.
    let shutdown = match signals::shutdown() {
        Ok(shutdown) => shutdown,
        Err(error) => return refusal::failed(&error, streams),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        role = settings.deployment.role.as_str(),
        "starting"
    );
    let place = database_url(&settings.database.location).ok();
    match roles::run(settings, shutdown).await {
        Ok(()) => {
            tracing::info!("ended in order");
            Exit::Done
        }
        Err(error) => refusal::role(&error, place.as_ref(), streams),
    }
}
