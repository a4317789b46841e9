//! `onceward plugin test`: runs case files through a plugin and compares the decisions.

use std::io::Write;
use std::path::Path;

use super::bench::{self, Bench};

/// Runs every case in `cases`, prints a line for each and the sum; gives the exit status: 0, or 1 if any failed.
///
/// # Errors
/// When the plugin or the cases cannot be read, or `out` cannot be written.
pub fn test(plugin: &str, cases: &Path, out: &mut impl Write) -> anyhow::Result<u8> {
    let cases = bench::read_all(cases)?;
    let outcomes = Bench::new(plugin)?.try_out(&cases);
    for outcome in &outcomes {
        if outcome.faults.is_empty() {
            writeln!(out, "ok    {}", outcome.name)?;
        } else {
            writeln!(out, "FAIL  {}: {}", outcome.name, outcome.faults.join("; "))?;
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.faults.is_empty()).count();
    writeln!(out, "{} passed, {failed} failed", outcomes.len() - failed)?;
    Ok(u8::from(failed > 0))
}
