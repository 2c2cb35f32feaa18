//! Log lines on standard error, for people or as JSON.
//!
//! The level is that of our own modules. Libraries are held to warnings, and the database driver to errors: their fields
//! are not ours to check, and at finer levels some of them print statements, headers and bodies.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people; coloured on a terminal.
    Console,
    /// One JSON object a line.
    Json,
}

/// Somebody else writes this process's log already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log of this process was set up before")]
pub struct AlreadySet;

/// Sends log lines to standard error.
///
/// # Errors
/// [`AlreadySet`] at the second call in a process.
pub fn init(level: tracing::Level, format: Format) -> Result<(), AlreadySet> {
    let colour = std::io::stderr().is_terminal();
    subscriber(level, format, colour, std::io::stderr)
        .try_init()
        .map_err(|_| AlreadySet)
}

fn filter(level: tracing::Level) -> Targets {
    let level = LevelFilter::from_level(level);
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("sqlx", LevelFilter::ERROR)
        .with_target("powercontext", level)
        .with_target("powercontext_core", level)
}

fn subscriber<W>(
    level: tracing::Level,
    format: Format,
    colour: bool,
    writer: W,
) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        Format::Console => lines.with_ansi(colour).boxed(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    // The filter stands before the registry's only writer, not at it: a filter at a layer keeps its last decision for each
    // thread, and where a library only asks whether it may log, as the database driver does, the next line of ours is lost.
    tracing_subscriber::registry().with(filter(level)).with(lines)
}

/// Sends panics into the log, for the whole process. A panic is told by its place alone: its text may repeat what was
/// being worked on.
pub fn hide_panic_texts() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        if tracing::dispatcher::has_been_set() {
            tracing::error!(location, "a task panicked");
        } else {
            eprintln!("a task panicked at {location}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: tracing::Level, format: Format, speak: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = subscriber(level, format, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, speak);
        String::from_utf8(kept.0.lock().expect("no panic").clone()).expect("text")
    }

    #[test]
    fn a_json_line_is_one_object_with_the_fields_beside_the_message() {
        let text = logged(tracing::Level::INFO, Format::Json, || {
            tracing::info!(role = "all", attempt = 3, "started\nwith \"quotes\"");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["message"], "started\nwith \"quotes\"");
        assert_eq!(
            (&line["role"], &line["attempt"], &line["level"]),
            (&"all".into(), &3.into(), &"INFO".into())
        );
    }

    #[test]
    fn a_line_for_people_has_no_colours_where_nobody_sees_them() {
        let text = logged(tracing::Level::INFO, Format::Console, || {
            tracing::warn!(role = "all", "listening");
            tracing::debug!("not at this level");
        });
        assert!(text.contains("listening role=\"all\""), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("not at this level"), "{text}");
    }

    #[test]
    fn libraries_are_held_to_warnings_and_the_driver_to_errors_at_any_level() {
        let text = logged(tracing::Level::TRACE, Format::Console, || {
            tracing::trace!("ours");
            tracing::info!(target: "hyper::proto", "theirs");
            tracing::warn!(target: "sqlx::query", "a statement");
            tracing::warn!(target: "hyper::proto", "their warning");
            tracing::error!(target: "sqlx::pool", "the driver's error");
        });
        let told: Vec<_> = ["ours", "theirs", "a statement", "their warning", "the driver's error"]
            .map(|message| text.contains(message))
            .into();
        assert_eq!(told, [true, false, false, true, true], "{text}");
        let text = logged(tracing::Level::ERROR, Format::Console, || {
            tracing::warn!(target: "hyper::proto", "their warning");
        });
        assert_eq!(text, "");
    }
}
