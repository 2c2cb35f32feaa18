//! The benchmark runs: its smallest size, end to end, so that it cannot rot between two measurements.

use std::process::Command;

use anyhow::ensure;

#[test]
fn the_smallest_run_fills_every_row_of_the_table() -> anyhow::Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_powercontext-bench"))
        .args(["--smallest", "sqlite", "served"])
        .output()?;
    let (table, log) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    ensure!(output.status.success(), "it failed:\n{log}");
    let rows: Vec<&str> = table.lines().filter(|line| line.contains(": ")).collect();
    let measured = rows
        .iter()
        .filter(|row| row.contains("held") || row.contains("missed"))
        .count();
    ensure!(measured == 10, "{measured} rows have a verdict:\n{table}\n{log}");
    Ok(())
}
