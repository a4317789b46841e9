//! `onceward plugin push | list | activate | rollback`: a running gateway's plugins, through its admin API.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::Done;
use super::ask::Answer;
use super::events::{To, segment};
use super::explanation::clean;
use super::plugin_compared as compared;

/// Brings versions of a tenant's plugin to a gateway.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Upload a component as a new version. Example: onceward plugin push acme/orders orders.wasm --cases cases
    Push {
        #[command(flatten)]
        plugin: Named,
        /// The component, as `plugin build` makes it.
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,
        /// A folder of case files that it must pass, each run twice.
        #[arg(long, value_name = "DIR")]
        cases: Option<PathBuf>,
        /// Activate it at once.
        #[arg(long)]
        activate: bool,
        #[command(flatten)]
        to: To,
    },
    /// A tenant's plugins with their versions, and which of them serve. Example: onceward plugin list acme
    List {
        /// The tenant, or one plugin of it.
        #[arg(value_name = "TENANT[/NAME]")]
        of: String,
        #[command(flatten)]
        to: To,
    },
    /// Make a version the active one on every gateway. Example: onceward plugin activate acme/orders 5d41402abc4b
    Activate {
        #[command(flatten)]
        plugin: Named,
        /// The version's digest, or its first six digits or more.
        digest: String,
        /// Run it beside the active version, to be compared: nothing else changes.
        #[arg(long)]
        shadow: bool,
        #[command(flatten)]
        to: To,
    },
    /// Run a version and the active one over the requests that the gateway has captured, and say how they differ. Example: onceward plugin compare acme/orders 5d41402abc4b
    Compare {
        #[command(flatten)]
        plugin: Named,
        /// The version's digest, or its first six digits or more.
        digest: String,
        #[command(flatten)]
        to: To,
    },
    /// Make the version before the active one active again. Example: onceward plugin rollback acme/orders
    Rollback {
        #[command(flatten)]
        plugin: Named,
        #[command(flatten)]
        to: To,
    },
}

/// Which plugin.
#[derive(Debug, Args)]
pub struct Named {
    /// The tenant and its plugin's name.
    #[arg(value_name = "TENANT/NAME")]
    plugin: String,
}

impl Named {
    fn path(&self) -> anyhow::Result<String> {
        let (tenant, name) = self
            .plugin
            .split_once('/')
            .with_context(|| format!("`{}` is not TENANT/NAME; for example: acme/orders", self.plugin))?;
        Ok(path(tenant, name))
    }
}

fn path(tenant: &str, name: &str) -> String {
    format!("/v1/tenants/{}/plugins/{}", segment(tenant), segment(name))
}

impl RemoteCommand {
    /// Asks, and prints the answer.
    pub fn run(self) -> anyhow::Result<Done> {
        match self {
            Self::Push { plugin, file, cases, activate, to } => push(&plugin, &file, cases.as_deref(), activate, &to),
            Self::List { of, to } => match of.split_once('/') {
                Some((tenant, name)) => {
                    let tenant_name = clean(&of);
                    let answer = to.ask(&Method::GET, &path(tenant, name), None)?;
                    to.print(answer, |plugin| Ok(plugin_text(&tenant_name, &plugin)))
                }
                None => {
                    let answer = to.ask(&Method::GET, &format!("/v1/tenants/{}/plugins", segment(&of)), None)?;
                    to.print(answer, |list| Ok(list_text(&of, &list)))
                }
            },
            Self::Activate { plugin, digest, shadow, to } => match resolve(&plugin, digest, &to)? {
                Ok(whole) => activate(&plugin, &whole, shadow, &to),
                Err(refused) => to.print(refused, |_| Ok(String::new())),
            },
            Self::Compare { plugin, digest, to } => match resolve(&plugin, digest, &to)? {
                Ok(whole) => {
                    let wish = json!({ "digest": whole, "captured": true });
                    let answer = to.ask(&Method::POST, &format!("{}/test", plugin.path()?), Some(wish))?;
                    to.print(answer, |found| Ok(compared::replay(&found)))
                }
                Err(refused) => to.print(refused, |_| Ok(String::new())),
            },
            Self::Rollback { plugin, to } => {
                let answer = to.ask(&Method::POST, &format!("{}/rollback", plugin.path()?), None)?;
                to.print(answer, |done| Ok(activated_text(&plugin.plugin, &done)))
            }
        }
    }
}

fn push(plugin: &Named, file: &Path, cases: Option<&Path>, and_activate: bool, to: &To) -> anyhow::Result<Done> {
    let wasm = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let versions = format!("{}/versions", plugin.path()?);
    let answer = match cases {
        None => to.send(&versions, "application/wasm", wasm.into())?,
        Some(cases) => {
            let (kind, form) = form(&wasm, cases)?;
            to.send(&versions, &kind, form)?
        }
    };
    let digest = answer.body.get("digest").and_then(Value::as_str).map(str::to_owned);
    let pushed = to.print(answer, |told| Ok(pushed_text(&plugin.plugin, &told, and_activate)))?;
    match (pushed, digest) {
        (Done::Ok, Some(digest)) if and_activate => activate(plugin, &digest, false, to),
        (pushed, _) => Ok(pushed),
    }
}

/// The component and its cases as a form, with its content type.
fn form(wasm: &[u8], cases: &Path) -> anyhow::Result<(String, Bytes)> {
    let entries = fs::read_dir(cases).with_context(|| format!("cannot read {}", cases.display()))?;
    let mut files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    ensure!(!files.is_empty(), "{} holds no case file (*.json)", cases.display());
    // No file holds this by chance.
    let boundary = format!("onceward-{:016x}{:016x}", getrandom::u64()?, getrandom::u64()?);
    let mut body = Vec::new();
    let mut part = |name: &str, file: &str, bytes: &[u8]| {
        let file: String = file.chars().filter(|c| c.is_ascii_graphic() && *c != '"' && *c != '\\').collect();
        let head = format!("content-disposition: form-data; name=\"{name}\"; filename=\"{file}\"");
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    };
    part("plugin", "plugin.wasm", wasm);
    for file in files {
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        part("case", &file.file_name().unwrap_or_default().to_string_lossy(), &bytes);
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), body.into()))
}

fn activate(plugin: &Named, digest: &str, shadow: bool, to: &To) -> anyhow::Result<Done> {
    let mut wish = json!({ "digest": digest });
    if let Some(members) = wish.as_object_mut().filter(|_| shadow) {
        members.insert("shadow".to_owned(), json!(true));
    }
    let answer = to.ask(&Method::POST, &format!("{}/activate", plugin.path()?), Some(wish))?;
    to.print(answer, |done| Ok(activated_text(&plugin.plugin, &done)))
}

/// The one version whose digest begins so, or what the API has against the question.
fn resolve(plugin: &Named, start: String, to: &To) -> anyhow::Result<Result<String, Answer>> {
    if start.len() == 64 {
        return Ok(Ok(start));
    }
    let is_hex = start.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    ensure!(is_hex && start.len() >= 6, "`{start}` is no digest: give at least its first six hex digits");
    let answer = to.ask(&Method::GET, &plugin.path()?, None)?;
    if !answer.status.is_success() {
        return Ok(Err(answer));
    }
    let digests = versions(&answer.body).map(|version| text(version, "digest"));
    let mut found: Vec<String> = digests.filter(|digest| digest.starts_with(&start)).collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(Ok(one)),
        (None, _) => bail!("no version of {} begins with {start}; `onceward plugin list` shows them", plugin.plugin),
        _ => bail!("several versions of {} begin with {start}: give more digits", plugin.plugin),
    }
}

fn versions(plugin: &Value) -> impl Iterator<Item = &Value> {
    plugin.get("versions").and_then(Value::as_array).into_iter().flatten()
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).map(clean).unwrap_or_default()
}

fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

fn pushed_text(plugin: &str, told: &Value, goes_on: bool) -> String {
    let digest = text(told, "digest");
    let none = json!({});
    let limit = |name: &str| number(told.get("limits").unwrap_or(&none), name);
    let code = told.get("code").unwrap_or(&none);
    let namespace = Some(text(told, "key_namespace")).filter(|namespace| !namespace.is_empty());
    let lines = [
        ("sha256", digest.clone()),
        ("key namespace", namespace.unwrap_or_else(|| "(none)".to_owned())),
        ("size", format!("{} of {} bytes", number(told, "size"), limit("size"))),
        ("fuel", format!("{} of {}, and more for each byte of a body", number(told, "fuel"), limit("fuel"))),
        ("memory", format!("{} of {} bytes", number(told, "memory"), limit("memory"))),
        ("compiled in", format!("{} ms", number(told, "compile_ms"))),
        ("cases", format!("{} passed", number(told, "cases"))),
        ("tenant's code", format!("{} of {} bytes", number(code, "used"), number(code, "limit"))),
    ];
    let mut said = format!("{plugin} has a new version, {}\n", text(told, "version"));
    for (name, value) in lines {
        let _ = writeln!(said, "  {name:<15}{value}");
    }
    for removed in told.get("removed").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(said, "  {:<15}{}, an older version", "removed", short(removed));
    }
    if !goes_on {
        let _ = writeln!(said, "It serves once it is active: onceward plugin activate {plugin} {}", short(&digest));
    }
    said
}

fn activated_text(plugin: &str, done: &Value) -> String {
    let (generation, active) = (number(done, "generation"), short(&text(done, "active")));
    let serving = done.get("serving").and_then(Value::as_bool).unwrap_or_default();
    let mut said = match (serving, done.get("fault").and_then(Value::as_str)) {
        (true, _) => {
            format!("{plugin}: generation {generation} serves, {active}. Other gateways follow within two seconds.\n")
        }
        (false, Some(fault)) => {
            format!(
                "{plugin}: generation {generation} is {active}; this gateway does not serve it yet: {}\n",
                clean(fault)
            )
        }
        (false, None) => {
            format!(
                "{plugin}: generation {generation} is {active}. No route of this gateway serves it yet: a route does with plugin = \"{plugin}\"\n"
            )
        }
    };
    if let Some(shadow) = done.get("shadow").and_then(Value::as_str) {
        let _ = writeln!(said, "  beside it runs {}, to be compared", short(&clean(shadow)));
    }
    match done.get("previous").and_then(Value::as_str) {
        Some(previous) => {
            let _ = writeln!(said, "  a rollback returns to {}", short(&clean(previous)));
        }
        None => said.push_str("  there is no version to roll back to\n"),
    }
    said
}

fn list_text(tenant: &str, list: &Value) -> String {
    let none = json!({});
    let code = list.get("code").unwrap_or(&none);
    let plugins = list.get("plugins").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut said = String::new();
    for plugin in plugins {
        said.push_str(&plugin_text(&format!("{}/{}", clean(tenant), text(plugin, "name")), plugin));
    }
    if plugins.is_empty() {
        said.push_str("No plugin was uploaded, and no route names one.\n");
    }
    let (used, limit) = (number(code, "used"), number(code, "limit"));
    let _ = writeln!(
        said,
        "code: {used} of {limit} bytes; of each plugin {} versions are kept",
        number(list, "versions_kept")
    );
    said
}

fn plugin_text(name: &str, plugin: &Value) -> String {
    let (generation, serving) = (number(plugin, "generation"), number(plugin, "serving_generation"));
    let routes: Vec<String> = plugin
        .get("routes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(clean)
        .collect();
    let routes =
        if routes.is_empty() { "no route names it".to_owned() } else { format!("routes: {}", routes.join(", ")) };
    let state = match (generation, serving) {
        (0, _) => "nothing is active".to_owned(),
        (generation, serving) if generation == serving => format!("generation {generation} serves"),
        (generation, 0) => format!("generation {generation}; this gateway serves none"),
        (generation, serving) => format!("generation {generation}; this gateway serves {serving}"),
    };
    let mut said = format!("{name}: {state}; {routes}\n");
    if let Some(fault) = plugin.get("fault").and_then(Value::as_str) {
        let _ = writeln!(said, "  fault: {}", clean(fault));
    }
    for version in versions(plugin) {
        let _ = writeln!(
            said,
            "  {:<12}  {:<9} {:<12} {:>9} bytes  {}  by {}",
            short(&text(version, "digest")),
            text(version, "state"),
            text(version, "version"),
            number(version, "size"),
            text(version, "at"),
            text(version, "by"),
        );
    }
    if let Some(report) = plugin.get("shadow_report") {
        let _ = writeln!(said, "  beside the active version runs {}", short(&text(plugin, "shadow")));
        said.push_str(&compared::live(report));
    }
    said
}
