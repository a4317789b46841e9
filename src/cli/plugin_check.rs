//! `onceward plugin check`

use std::error::Error;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::plugin::caps::{BODY_BYTES_MAX, BYTES_MAX, Contents, DATA_SEGMENTS_MAX, FUNCTIONS_MAX, MODULES_MAX};
use crate::plugin::confined::{self, Compiled, Limits};
use crate::plugin::{Engine, Plugin, Settings};

/// Checks a component; writes what was found with used/limit, or the reason of the refusal. 0 when it is fine, else 1.
///
/// # Errors
/// When the file cannot be read, or the compiler's process cannot be run.
pub fn check(file: &Path, report: &mut impl Write) -> anyhow::Result<u8> {
    let wasm = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let limits = Limits::default();
    let engine = Engine::new(Settings::default())?;
    match refusal(&engine, &program, &wasm, &limits)? {
        Ok((compiled, plugin)) => {
            report.write_all(accepted(file, &wasm, &compiled, &limits, &plugin).as_bytes())?;
            Ok(0)
        }
        Err(why) => {
            writeln!(report, "{} is refused\n  {why}", file.display())?;
            Ok(1)
        }
    }
}

type Checked = Result<(Compiled, Plugin), String>;

/// The form is looked at first: its texts say more than a validator's about what is no component at all.
fn refusal(engine: &Engine, program: &Path, wasm: &[u8], limits: &Limits) -> anyhow::Result<Checked> {
    if let Err(error) = Plugin::check_form(wasm) {
        return Ok(Err(error.to_string()));
    }
    let compiled = match confined::compile(program, wasm, limits) {
        Ok(compiled) => compiled,
        Err(error @ confined::ConfinedError::Process(_)) => return Err(error.into()),
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(match engine.load("checked", wasm) {
        Ok(plugin) => Ok((compiled, plugin)),
        Err(error) => {
            let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
            Err(format!("{error}{cause}"))
        }
    })
}

fn accepted(file: &Path, wasm: &[u8], compiled: &Compiled, limits: &Limits, plugin: &Plugin) -> String {
    let Contents { functions, longest_body, modules, data_segments, memory: _ } = compiled.contents;
    let told = plugin.descriptor();
    let namespace = if told.key_namespace.is_empty() { "(none)" } else { &told.key_namespace };
    let lines = [
        ("name", format!("{} {}", told.name, told.version)),
        ("key namespace", namespace.to_owned()),
        ("sha256", hex::encode(Sha256::digest(wasm))),
        ("size", format!("{} of {BYTES_MAX} bytes", wasm.len())),
        ("core modules", format!("{modules} of {MODULES_MAX}")),
        ("functions", format!("{functions} of {FUNCTIONS_MAX}")),
        ("longest function", format!("{longest_body} of {BODY_BYTES_MAX} bytes")),
        ("data segments", format!("{data_segments} of {DATA_SEGMENTS_MAX}")),
        ("compiled in", format!("{} ms, limit {} s of processor time", compiled.wall.as_millis(), limits.cpu_seconds)),
        ("with", format!("{} of {} MiB of memory", compiled.resident_bytes >> 20, limits.resident_bytes >> 20)),
        ("native code", format!("{} of {} bytes", compiled.code_bytes, limits.output_bytes)),
    ];
    let mut text = format!("{} is a plugin for this gateway\n", file.display());
    for (name, value) in lines {
        text.push_str(&format!("  {name:<17}{value}\n"));
    }
    text
}
