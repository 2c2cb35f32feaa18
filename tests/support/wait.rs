//! Waiting for facts. No test sleeps for a span and hopes: it looks again and again, and tells what it waited for.

use std::time::Duration;

use anyhow::{Context, bail};
use powercontext::rt;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `look` finds something, or `within` is over. An error of a look is no end: a server that starts refuses.
///
/// # Errors
/// When nothing was found in time, with the last error of a look.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let give_up = rt::now() + within;
    loop {
        let looked = look().await;
        match looked {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if rt::now() >= give_up => bail!("waited {within:?} in vain: {what}"),
            Err(error) if rt::now() >= give_up => {
                return Err(error).with_context(|| format!("waited {within:?} in vain: {what}"));
            }
            _ => rt::sleep(PAUSE).await,
        }
    }
}
