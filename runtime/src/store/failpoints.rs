//! Named points of every transaction at which a test stops this process until it is killed, or makes it panic. No shipped
//! build has this module.
//!
//! `FAILPOINTS=finish.before_commit,claim.after_commit@/tmp/armed` stops at the first point reached, and at the second
//! only while the named file exists. A point is the label of a [`TxName`] with `.before_commit` or `.after_commit`; before
//! the process stops there it says so on standard error, so that a test knows when to kill it. With `=panic(TEXT)` behind
//! its name a point panics with that text instead; with `=hold` it goes on once the named file is gone.

use std::path::PathBuf;

use crate::store::names::TxName;

const VARIABLE: &str = "FAILPOINTS";
const SUFFIXES: [&str; 2] = [".before_commit", ".after_commit"];

/// Arms what the environment names.
///
/// # Panics
/// When a name is none of a point: a test that waits for it would wait in vain.
pub fn arm() {
    #[expect(clippy::disallowed_methods, reason = "no setting of the product: test builds only")]
    let Ok(points) = std::env::var(VARIABLE) else {
        return;
    };
    for point in points.split(',').filter(|point| !point.is_empty()) {
        let (name, armed_by) = match point.split_once('@') {
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (point, None),
        };
        let (name, action) = match name.split_once('=') {
            Some((name, "hold")) => (name, Action::Hold),
            Some((name, action)) => (name, Action::Panic(panic_text(action))),
            None => (name, Action::Stop),
        };
        let is_known = TxName::ALL
            .iter()
            .any(|tx| SUFFIXES.iter().any(|suffix| format!("{}{suffix}", tx.label()) == name));
        assert!(is_known, "{VARIABLE} names no point of a transaction: {name}");
        let reached = format!("failpoint reached {name}");
        let armed = fail::cfg_callback(name, move || {
            if armed_by.as_ref().is_some_and(|file| !file.exists()) {
                return;
            }
            match (&action, &armed_by) {
                (Action::Panic(text), _) => panic!("{text}"),
                (Action::Hold, Some(file)) => stop(&reached, || file.exists()),
                (Action::Hold | Action::Stop, _) => stop(&reached, || true),
            }
        });
        armed.expect("a callback has no text that could be wrong");
    }
}

fn panic_text(action: &str) -> String {
    let text = action.strip_prefix("panic(").and_then(|text| text.strip_suffix(')'));
    text.expect("an action is hold or panic(TEXT)").to_owned()
}

/// What happens at a point.
enum Action {
    /// It stops there for ever.
    Stop,
    /// It stops there while the file exists.
    Hold,
    /// It panics with this text.
    Panic(String),
}

/// Stops this task for as long as this holds, and lets the others go on.
fn stop(reached: &str, holds: impl Fn() -> bool) {
    eprintln!("{reached}");
    tokio::task::block_in_place(|| {
        while holds() {
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    });
}
