//! The child processes of a server, as the kernel shows them.

use std::path::PathBuf;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A process, named by its id. The id may have been given to another process once this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    fn at(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.0))
    }

    /// Its id.
    pub fn id(self) -> u32 {
        self.0
    }

    /// Whether it still exists and is more than an exit status that nobody has read.
    pub fn lives(self) -> bool {
        stat(self).is_some_and(|(state, _)| state != "Z" && state != "X")
    }

    /// Its arguments and environment.
    ///
    /// # Errors
    /// When it is gone.
    pub fn arguments_and_environment(self) -> anyhow::Result<String> {
        let mut text = std::fs::read(self.at("cmdline"))?;
        text.extend(std::fs::read(self.at("environ"))?);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("no process id")?, signal)?)
    }
}

/// The children of a process that live now.
///
/// # Errors
/// When the processes cannot be listed.
pub fn of(parent: u32) -> anyhow::Result<Vec<Process>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let process = Process(pid);
        if stat(process).is_some_and(|(_, of)| of == parent) && process.lives() {
            children.push(process);
        }
    }
    Ok(children)
}

/// State and parent of a process; `None` when it is gone.
fn stat(process: Process) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(process.at("stat")).ok()?;
    // The name in brackets may hold anything, brackets too.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.next()?.parse().ok()?))
}
