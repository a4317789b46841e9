//! `onceward events`: what a running gateway's admin API says and does.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::config::{Environment, load};
use crate::gateway::explain::{EventView, Explanation};
use crate::gateway::rfc3339::read;

use super::ask::{Answer, ask, send};
use super::explain::quoted;
use super::explanation::{clean, render, when};
use super::{Done, out};

/// What stays as it is in a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where the admin API is when nothing says otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8081";

/// Lists a tenant's events, and acts on one.
#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// A tenant's events, newest first. Example: onceward events list acme --state unknown --since 1h
    List {
        /// Whose.
        tenant: String,
        /// Of this route only.
        #[arg(long)]
        route: Option<String>,
        /// processing, succeeded, failed, unknown or mismatch.
        #[arg(long)]
        state: Option<String>,
        /// A time (RFC 3339), Unix seconds, or how long ago: 90s, 15m, 1h, 7d.
        #[arg(long)]
        since: Option<String>,
        /// At most so many: 1 to 1000.
        #[arg(long)]
        limit: Option<usize>,
        #[command(flatten)]
        to: To,
    },
    /// All that is known of an event, and what its next delivery would get. Example: onceward events show acme/orders ord_1
    Show(One),
    /// Let the next delivery claim the event, whatever it holds. Example: onceward events release acme/orders ord_1
    Release(One),
    /// Count the event as done: redeliveries get the given answer, or 200 with an empty body.
    Succeed {
        #[command(flatten)]
        event: One,
        /// The answer's status.
        #[arg(long)]
        status: Option<u16>,
        /// A field of the answer, as `name: value`; may be repeated.
        #[arg(long = "header", value_name = "NAME: VALUE")]
        headers: Vec<String>,
        /// The answer's body.
        #[arg(long, value_name = "FILE")]
        body: Option<PathBuf>,
    },
    /// Send the kept request again, as a new attempt. Example: onceward events redeliver acme/orders ord_1
    Redeliver(One),
}

/// Which event.
#[derive(Debug, Args)]
pub struct One {
    /// The tenant and the scope of the key, which is the route's name unless the configuration says otherwise.
    #[arg(value_name = "TENANT/SCOPE")]
    place: String,
    /// As it stands in Idempotency-Key after `tenant:scope:`.
    key: String,
    /// The plugin's key namespace, where the key stands in several.
    #[arg(long)]
    namespace: Option<String>,
    #[command(flatten)]
    to: To,
}

/// Which gateway, and as whom.
#[derive(Debug, Args)]
pub struct To {
    /// The admin listener; without it, admin.listen of --config, or http://127.0.0.1:8081.
    #[arg(long)]
    url: Option<String>,
    /// The gateway's configuration, for the address of its admin listener.
    #[arg(long, short, env = "ONCEWARD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin token.
    #[arg(long, env = "ONCEWARD_TOKEN", hide_env_values = true, hide = true)]
    token: Option<String>,
    /// A file with the admin token; without it, the variable ONCEWARD_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the API's JSON.
    #[arg(long)]
    json: bool,
}

impl EventsCommand {
    /// Asks, and prints the answer.
    pub fn run(self) -> anyhow::Result<Done> {
        match self {
            Self::List { tenant, route, state, since, limit, to } => {
                let limit = limit.map(|limit| limit.to_string());
                let asked = [("route", route), ("state", state), ("since", since), ("limit", limit)];
                let query: Vec<_> = asked
                    .into_iter()
                    .filter_map(|(name, value)| Some(format!("{name}={}", segment(&value?))))
                    .collect();
                let path = format!("/v1/tenants/{}/events?{}", segment(&tenant), query.join("&"));
                to.print(to.ask(&Method::GET, &path, None)?, table)
            }
            Self::Show(one) => {
                let answer = one.ask(&Method::GET, "", None)?;
                one.to.print(answer, |told| Ok(render(&serde_json::from_value::<Explanation>(told)?)))
            }
            Self::Release(one) => one.verb("release", None),
            Self::Redeliver(one) => one.verb("redeliver", None),
            Self::Succeed { event, status, headers, body } => {
                let answer = answer(status, &headers, body)?;
                event.verb("succeed", Some(answer))
            }
        }
    }
}

impl One {
    fn ask(&self, method: &Method, verb: &str, body: Option<Value>) -> anyhow::Result<Answer> {
        let (tenant, scope) = self
            .place
            .split_once('/')
            .with_context(|| format!("`{}` is not TENANT/SCOPE; for example: acme/orders", self.place))?;
        let mut path =
            format!("/v1/tenants/{}/events/{}/{}{verb}", segment(tenant), segment(scope), segment(&self.key));
        if let Some(namespace) = &self.namespace {
            let _ = write!(path, "?namespace={}", segment(namespace));
        }
        self.to.ask(method, &path, body)
    }

    fn verb(&self, verb: &str, body: Option<Value>) -> anyhow::Result<Done> {
        let answer = self.ask(&Method::POST, &format!("/{verb}"), body)?;
        self.to.print(answer, |done| {
            let text = |name: &str| done.get(name).and_then(Value::as_str).map(clean).unwrap_or_default();
            let key = quoted(&self.key);
            Ok(match verb {
                "release" => format!("{key} is released: the next delivery claims it.\n"),
                "succeed" => format!("{key} counts as done: redeliveries get the answer.\n"),
                _ => {
                    let status =
                        done.get("upstream_status").map_or(String::new(), |status| format!(", upstream {status}"));
                    format!(
                        "{key} was sent again: {}{status}; it is {} now. Event {}\n",
                        text("outcome"),
                        text("state"),
                        text("event")
                    )
                }
            })
        })
    }
}

impl To {
    pub(super) fn ask(&self, method: &Method, path: &str, body: Option<Value>) -> anyhow::Result<Answer> {
        ask(method, &format!("{}{path}", self.url()?), &self.token()?, body)
    }

    /// As [`To::ask`], with a body of another kind.
    pub(super) fn send(&self, path: &str, kind: &str, body: Bytes) -> anyhow::Result<Answer> {
        send(&Method::POST, &format!("{}{path}", self.url()?), &self.token()?, kind, body)
    }

    fn token(&self) -> anyhow::Result<String> {
        Ok(match (&self.token_file, &self.token) {
            (Some(file), _) => {
                let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                text.trim().to_owned()
            }
            (None, Some(token)) => token.trim().to_owned(),
            (None, None) => anyhow::bail!(
                "no token: set ONCEWARD_TOKEN or give --token-file FILE. `onceward token new` makes a token; its SHA-256 goes \
                 into the gateway's configuration:\n  [admin]\n  tokens = [{{ name = \"me\", sha256 = \"…\", scope = \"operator\" }}]"
            ),
        })
    }

    fn url(&self) -> anyhow::Result<String> {
        if let Some(url) = &self.url {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        let Some(path) = &self.config else { return Ok(DEFAULT_URL.to_owned()) };
        let config = load(Some(path), &Environment::of_process())
            .context("the configuration cannot be read; `onceward check` says more, and --url works without one")?;
        let mut listen = config.admin.listen;
        if listen.ip().is_unspecified() {
            listen.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Ok(format!("http://{listen}"))
    }

    /// Prints a result, or says what the API has against it: exit 1.
    pub(super) fn print(
        &self,
        answer: Answer,
        text: impl FnOnce(Value) -> anyhow::Result<String>,
    ) -> anyhow::Result<Done> {
        if answer.status.is_success() {
            out(&if self.json { format!("{:#}\n", answer.body) } else { text(answer.body)? })?;
            return Ok(Done::Ok);
        }
        let said = |name: &str| answer.body.get(name).and_then(Value::as_str).map(clean).unwrap_or_default();
        anyhow::ensure!(answer.status.as_u16() != 401, "the gateway does not know this token: {}", said("detail"));
        anyhow::ensure!(answer.status.as_u16() != 400, "{}: {}", said("title"), said("detail"));
        if self.json {
            out(&format!("{:#}\n", answer.body))?;
        } else {
            out(&format!("{} ({}): {}\n", said("title"), answer.status.as_u16(), said("detail")))?;
        }
        Ok(Done::Faults)
    }
}

pub(super) fn segment(text: &str) -> String {
    let encoded = utf8_percent_encode(text, SEGMENT).to_string();
    // A segment of dots alone would be a step in the path.
    if matches!(encoded.as_str(), "." | "..") { encoded.replace('.', "%2e") } else { encoded }
}

/// The answer that redeliveries get.
fn answer(status: Option<u16>, headers: &[String], body: Option<PathBuf>) -> anyhow::Result<Value> {
    use base64::Engine;
    let mut fields = serde_json::Map::new();
    for header in headers {
        let (name, value) = header.split_once(':').with_context(|| format!("`{header}` is not `name: value`"))?;
        fields.insert(name.trim().to_owned(), json!(value.trim()));
    }
    let mut answer = json!({ "headers": fields });
    if let Some(members) = answer.as_object_mut() {
        members.extend(status.map(|status| ("status".to_owned(), json!(status))));
        if let Some(file) = body {
            let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
            members.insert("body_base64".to_owned(), json!(encoded));
        }
    }
    Ok(answer)
}

/// A list as a table.
fn table(list: Value) -> anyhow::Result<String> {
    let now = list.get("now").and_then(Value::as_str).and_then(read).unwrap_or_default();
    let more = list.get("more").and_then(Value::as_bool).unwrap_or_default();
    let events: Vec<EventView> = serde_json::from_value(list.get("events").cloned().unwrap_or_default())?;
    if events.is_empty() {
        return Ok("No such events.\n".to_owned());
    }
    let mut text =
        format!("{:<11} {:<16} {:>7} {:>8}  {:<48} KEY\n", "STATE", "ROUTE", "ATTEMPT", "UPSTREAM", "STARTED");
    for event in &events {
        let status = event.upstream_status.map_or("-".to_owned(), |status| status.to_string());
        let _ = write!(
            text,
            "{:<11} {:<16} {:>7} {status:>8}  {:<48} {}",
            clean(&event.state),
            clean(&event.route),
            event.attempt,
            when(&event.started_at, now),
            clean(&event.key)
        );
        if let Some(mismatch) = &event.mismatch {
            let _ = write!(text, "  ({} came, differing in {})", mismatch.count, clean(&mismatch.fields.join(", ")));
        } else if let Some(reason) = &event.reason {
            let _ = write!(text, "  ({})", clean(reason));
        }
        text.push('\n');
    }
    if more {
        text.push_str("There are more: raise --limit, or narrow with --route, --state and --since.\n");
    }
    Ok(text)
}
