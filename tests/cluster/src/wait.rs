//! Waiting for facts. No test sleeps for a span and hopes: it looks again and again, and tells what it waited for.

use std::time::Duration;

use anyhow::{Context as _, bail};
use powercontext_operator::rt;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks until `look` finds something, or `within` is over.
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
        match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if rt::now() >= give_up => bail!("waited {within:?} in vain: {what}"),
            Err(error) if rt::now() >= give_up => {
                return Err(error).with_context(|| format!("waited {within:?} in vain: {what}"));
            }
            _ => rt::sleep(PAUSE).await,
        }
    }
}

/// Looks for the whole span and fails at once when what must hold does not.
///
/// # Errors
/// What `look` says.
pub async fn throughout(span: Duration, mut look: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let end = rt::now() + span;
    while rt::now() < end {
        look().await?;
        rt::sleep(PAUSE).await;
    }
    look().await
}
