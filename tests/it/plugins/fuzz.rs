//! Components that nobody wrote: generated ones, honest ones with a few bytes changed, and pure noise. Whatever is uploaded, the gate
//! answers; it never panics, and never takes more than its limits.
//!
//! `ONCEWARD_FUZZ=1000 cargo test …` tries as many of each kind, `ONCEWARD_FUZZ_SEED=7` others of them.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use onceward::plugin::bundled::bundled;
use onceward::plugin::confined::{self, ConfinedError, Limits};
use onceward::plugin::{Engine, Plugin, Settings, caps};

use crate::support::random::Random;

/// How long the gate may look at bytes before it compiles them.
const LOOK: Duration = Duration::from_secs(1);

#[expect(clippy::disallowed_methods, reason = "how much to try, which no configuration says")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// One seed for each try of a kind.
fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let first = number("ONCEWARD_FUZZ_SEED", 1) << 32;
    (0..number("ONCEWARD_FUZZ", default)).map(move |turn| first + turn)
}

fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// What became of an upload.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Refused,
    Compiled,
    TooMuch,
}

/// What the gate does with bytes, in its order, each step within its time.
fn gate(wasm: &[u8], what: &str) -> Fate {
    let started = Instant::now();
    let seen = catch_unwind(|| Plugin::check_form(wasm).is_ok() && caps::check(wasm).is_ok());
    let seen = seen.unwrap_or_else(|_| panic!("{what}: the check panicked"));
    assert!(started.elapsed() < LOOK, "{what}: looked for {:?}", started.elapsed());
    if !seen {
        return Fate::Refused;
    }
    let limits = Limits::default();
    let started = Instant::now();
    match confined::compile(Path::new(env!("CARGO_BIN_EXE_onceward")), wasm, &limits) {
        Ok(compiled) => {
            assert!(compiled.resident_bytes <= limits.resident_bytes, "{what}: {compiled:?}");
            Fate::Compiled
        }
        Err(ConfinedError::Caps(_) | ConfinedError::Refused(_)) => Fate::Refused,
        Err(ConfinedError::TooMuch(_)) => {
            assert!(started.elapsed() < limits.wall + Duration::from_secs(2), "{what}: {:?}", started.elapsed());
            Fate::TooMuch
        }
        // The compiler's process broke by itself: a panic of the compiler would be seen here.
        Err(error @ ConfinedError::Process(_)) => panic!("{what}: {error}"),
    }
}

fn count(fates: &[Fate], fate: &Fate) -> usize {
    fates.iter().filter(|one| *one == fate).count()
}

/// A component that holds these bytes as its only core module.
fn around(module: &[u8]) -> Vec<u8> {
    let mut wasm = b"\0asm\x0d\0\x01\0\x01".to_vec();
    let mut length = module.len();
    loop {
        let low = u8::try_from(length & 0x7f).unwrap();
        length >>= 7;
        wasm.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    wasm.extend_from_slice(module);
    wasm
}

/// Generated modules, within what the host allows and beyond it.
#[test]
fn generated_modules() {
    let fates: Vec<Fate> = seeds(40)
        .map(|seed| {
            let mut random = Random(seed);
            let bytes = noise(&mut random, 40_000);
            let mut config = wasm_smith::Config::default();
            let beyond = random.percent(25);
            config.gc_enabled = beyond;
            config.exceptions_enabled = beyond;
            config.simd_enabled = true;
            config.relaxed_simd_enabled = beyond;
            config.memory64_enabled = beyond;
            config.tail_call_enabled = beyond;
            config.threads_enabled = beyond;
            config.max_memories = if beyond { 4 } else { 1 };
            config.min_funcs = 1;
            config.max_funcs = 200;
            config.max_instructions = 2_000;
            config.max_memory32_bytes = 32 << 20;
            config.max_imports = 0;
            let module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).unwrap();
            gate(&around(&module.to_bytes()), &format!("module {seed}"))
        })
        .collect();
    assert!(count(&fates, &Fate::Compiled) >= fates.len() / 8, "most never reach the compiler: {fates:?}");
}

/// Generated components: types, aliases, imports, instances.
#[test]
fn generated_components() {
    for seed in seeds(60) {
        let mut random = Random(seed);
        let length = random.below(8_000) as usize;
        let bytes = noise(&mut random, length);
        let config = wasm_smith::Config::default();
        let Ok(component) = wasm_smith::Component::new(config, &mut Unstructured::new(&bytes)) else { continue };
        gate(&component.to_bytes(), &format!("component {seed}"));
    }
}

/// Honest plugins with a few bytes changed, cut out, doubled or cut off. What is still valid is compiled, and asked what it is.
#[test]
fn changed_plugins() {
    let engine = Engine::new(Settings::default()).unwrap();
    let whole = bundled("standard-webhooks").unwrap();
    let mut fates = Vec::new();
    for seed in seeds(100) {
        let mut random = Random(seed);
        let mut wasm = whole.to_vec();
        for _ in 0..=random.below(3) {
            change(&mut wasm, &mut random);
        }
        let fate = gate(&wasm, &format!("change {seed}"));
        if fate == Fate::Compiled {
            // It may be a plugin, or none; what it does when it is called is bounded like any plugin's.
            let _ = engine.load("changed", &wasm);
        }
        fates.push(fate);
    }
    assert!(count(&fates, &Fate::Compiled) >= 2, "{} of {} compiled", count(&fates, &Fate::Compiled), fates.len());
    assert!(count(&fates, &Fate::Refused) >= 5, "all of them passed");
}

fn change(wasm: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(wasm.len() as u64) as usize;
    let length = (random.below(64) as usize).min(wasm.len() - at);
    match random.below(6) {
        // Most often in the middle of code, where one operand more or less is still valid.
        0..=2 => wasm[at] ^= 1 << random.below(8),
        3 => drop(wasm.drain(at..at + length)),
        4 => {
            let again = wasm[at..at + length].to_vec();
            wasm.splice(at..at, again);
        }
        _ => wasm.truncate(at.max(16)),
    }
}

/// Bytes that only begin like a component.
#[test]
fn noise_behind_a_head() {
    for seed in seeds(2_000) {
        let mut random = Random(seed);
        let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
        let length = random.below(4_000) as usize;
        wasm.extend(noise(&mut random, length));
        assert_eq!(gate(&wasm, &format!("noise {seed}")), if length == 0 { Fate::Compiled } else { Fate::Refused });
    }
}
