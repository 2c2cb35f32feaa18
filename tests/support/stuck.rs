//! Children of a server that do not end, however they are killed: a small program is compiled and the server runs under it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::children::{self, Process};
use crate::database::Database;
use crate::server::{Server, Setup};
use crate::wait::until;

/// The program, and the file that says whose exit it holds up.
#[derive(Debug)]
pub struct StuckExits {
    program: PathBuf,
    file: PathBuf,
}

impl StuckExits {
    /// Compiles the program.
    ///
    /// # Errors
    /// When there is no C compiler, which SQLite needs too.
    pub fn new(database: &Database) -> anyhow::Result<Self> {
        let (program, file) = (database.beside("stuck_exit"), database.beside("stuck"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("support/stuck_exit.c");
        let mut compiler = Command::new("cc");
        let output = compiler.args(["-O1", "-o"]).args([&program, &source]).output();
        let output = output.context("cc compiles the program of a test")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { program, file })
    }

    /// Servers whose children's exits can be held up.
    #[must_use]
    pub fn under(&self, setup: Setup) -> Setup {
        setup.under(self.program.clone(), &[&self.file])
    }

    /// The children that such a server has now.
    ///
    /// # Errors
    /// When it has ended.
    pub fn children(&self, server: &Server) -> anyhow::Result<Vec<Process>> {
        let servers = children::of(server.pid()?)?;
        let server = servers.first().context("the program runs no server")?;
        children::of(server.id())
    }

    /// From now on these do not end.
    ///
    /// # Errors
    /// When the kernel does not let them be held.
    pub async fn hold(&self, processes: &[Process]) -> anyhow::Result<()> {
        let ids: Vec<_> = processes.iter().map(|process| process.id().to_string()).collect();
        // Under another name first: the program must not read half of it.
        let beside = self.file.with_extension("new");
        fs::write(&beside, ids.join("\n"))?;
        fs::rename(beside, &self.file)?;
        let held = self.file.with_extension("held");
        until("their exits are held up", Duration::from_secs(5), async || {
            Ok(held.exists().then_some(()))
        })
        .await
    }

    /// Lets them end.
    ///
    /// # Errors
    /// When none are held.
    pub fn let_go(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(&self.file)?)
    }
}
