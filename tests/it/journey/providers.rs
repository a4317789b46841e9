//! Every published case through one gateway: each delivery twice, and after each other delivery that it names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::rig::{is_problem, is_replay};
use crate::support::client::{Answer, send};
use crate::support::faketime;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::{Upstream, answer};

/// What a case configures of the gateway rather than of the plugin.
const HOST_KEYS: [&str; 3] = ["certs", "cert_hosts", "trust_root_pem"];
/// What Adyen's older integrations answer: a body that a sender reads.
const ACCEPTED: &[u8] = b"[accepted]";

/// A published case, as `tests/fixtures/providers/README.md` describes it.
#[derive(Clone, Deserialize)]
struct Case {
    name: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body_base64: String,
    secrets: Vec<String>,
    config: Map<String, Value>,
    now: i64,
    expect: Expect,
}

#[derive(Clone, Deserialize)]
struct Expect {
    verified: bool,
    reason: String,
    kind: Option<String>,
    respond: Option<Respond>,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    vs: Vec<Versus>,
}

#[derive(Clone, Deserialize)]
struct Item {
    alias_parts: Option<Vec<String>>,
}

#[derive(Clone, Default, Deserialize)]
struct Respond {
    status: Option<u16>,
    body: Option<String>,
    bad_signature: Option<u16>,
}

#[derive(Clone, Deserialize)]
struct Versus {
    case: String,
    outcomes: Vec<String>,
}

impl Case {
    fn provider(&self) -> &str {
        self.name.split_once('/').unwrap().0
    }

    fn alias(&self) -> Option<&[String]> {
        self.expect.items.first()?.alias_parts.as_deref()
    }

    fn respond(&self) -> Respond {
        self.expect.respond.clone().unwrap_or_default()
    }

    fn body(&self) -> Vec<u8> {
        STANDARD.decode(&self.body_base64).unwrap()
    }

    /// Its own route in a scope: `plugin_config` and secrets as the case has them. The body counts as a name where the sender's id is
    /// not signed, as `docs/providers.md` advises.
    fn route(&self, path: &str, scope: &str, named_by_body: bool) -> String {
        let name = path.replace('/', "-");
        let mut config = self.config.clone();
        config.retain(|key, _| !HOST_KEYS.contains(&key.as_str()));
        if !self.secrets.is_empty() {
            config.insert("secret".into(), name.clone().into());
        }
        let config: toml::Table = serde_json::from_value(Value::Object(config)).unwrap();
        let unsigned = if self.expect.reason == "unsigned" { "allow" } else { "reject" };
        format!(
            "[[routes]]\ntenant = \"t\"\nname = \"{name}\"\nscope = \"{scope}\"\npath = \"/{path}\"\nupstream = \"u\"\n\
             plugin = \"{}\"\nplugin_config = {}\nunsigned = \"{unsigned}\"\nmethods = [\"POST\"]\n\
             idempotency = {{ body_alias = {named_by_body} }}\n",
            self.provider(),
            toml::Value::Table(config)
        )
    }
}

/// All cases but those of PayPal, whose certificates come from elsewhere: `certificates.rs` has them.
fn cases() -> BTreeMap<String, Case> {
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let directories = entries(Path::new("tests/fixtures/providers")).into_iter().filter(|path| path.is_dir());
    let files = directories.flat_map(|directory| entries(&directory));
    let read = |file: &Path| serde_json::from_slice::<Case>(&std::fs::read(file).unwrap()).unwrap();
    let cases = files.map(|file| read(&file)).filter(|case| case.provider() != "paypal");
    cases.map(|case| (case.name.clone(), case)).collect()
}

/// One trial: a case alone, or after another one, in a scope of its own.
struct Trial<'a> {
    scope: String,
    case: &'a Case,
    /// The other case, and what each event is after it.
    after: Option<(&'a Case, Vec<String>)>,
    named_by_body: bool,
}

fn trials(cases: &BTreeMap<String, Case>) -> Vec<Trial<'_>> {
    let mut trials = Vec::new();
    for case in cases.values() {
        let mut add = |after, named_by_body| {
            trials.push(Trial { scope: format!("s{}", trials.len()), case, after, named_by_body });
        };
        add(None, false);
        for versus in &case.expect.vs {
            let other = &cases[&versus.case];
            let is_alias = case.alias().is_some() && case.alias() == other.alias();
            let outcomes = if versus.outcomes == ["new"] && is_alias {
                vec!["duplicate".to_owned()]
            } else {
                versus.outcomes.clone()
            };
            add(Some((other, outcomes.clone())), false);
            // Bytes that were signed once, under another id that is not signed.
            if other.body_base64 == case.body_base64 && outcomes == ["new"] {
                add(Some((other, vec!["duplicate".to_owned()])), true);
            }
        }
    }
    trials
}

struct World {
    gateway: Gateway,
    upstream: Upstream,
    clock: std::path::PathBuf,
}

impl World {
    async fn start(trials: &[Trial<'_>]) -> Self {
        let upstream = Upstream::start(|_, at| answer(200, &[("x-call", &at.to_string())], ACCEPTED)).await;
        let mut routes = String::new();
        let mut secrets = String::from("[tenants.t.secrets]\n");
        for trial in trials {
            let after = trial.after.iter().map(|(other, _)| (*other, "a"));
            for (case, end) in after.chain([(trial.case, "b")]) {
                let path = format!("{}/{end}", trial.scope);
                routes += &case.route(&path, &trial.scope, trial.named_by_body);
                let values =
                    case.secrets.iter().map(|secret| format!("{{ value = {} }}", Value::from(secret.as_str())));
                let values = values.collect::<Vec<_>>().join(", ");
                if !values.is_empty() {
                    writeln!(secrets, "{} = [{values}]", path.replace('/', "-")).unwrap();
                }
            }
        }
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"{{dir}}/state\"\n\
             per_address = {{ rate = \"100000/s\", connections = 256 }}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = \"memory:\"\n[upstreams.u]\nurl = \"http://{}\"\n[tenants.t]\n\
             limits = {{ rate = \"100000/s\" }}\n{secrets}{routes}",
            upstream.address
        );
        let home = Home::new(&text);
        let clock = home.path().join("clock");
        std::fs::write(&clock, "+0").unwrap();
        let environment = faketime::by_file(&clock);
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Self { gateway: home.start_with(&environment), upstream, clock }
    }

    /// Delivers a case at its own time.
    async fn deliver(&self, case: &Case, trial: &Trial<'_>, end: &str) -> Answer {
        #[expect(clippy::disallowed_methods, reason = "the gateway's clock is set beside the machine's")]
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let by = case.now - i64::try_from(now).unwrap();
        // In one step, so that no half of it is read.
        let next = self.clock.with_extension("next");
        std::fs::write(&next, format!("{by:+}")).unwrap();
        std::fs::rename(&next, &self.clock).unwrap();
        let query = case.path.split_once('?').map_or_else(String::new, |(_, query)| format!("?{query}"));
        let path = format!("/{}/{end}{query}", trial.scope);
        let fields = case.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = fields
            .filter(|(name, _)| !["host", "content-length"].contains(&name.to_ascii_lowercase().as_str()))
            .collect();
        send(self.gateway.ingest, &case.method, &path, &fields, &case.body()).await
    }
}

/// What was forwarded of a delivery, and its answer.
async fn first(world: &World, case: &Case, trial: &Trial<'_>, end: &str, items: &[&str]) -> Answer {
    let before = world.upstream.count();
    let answer = world.deliver(case, trial, end).await;
    let what = format!("{} in {}: {answer:?}", case.name, trial.scope);
    assert_eq!((answer.status, answer.idempotency(), answer.body.as_slice()), (200, "first", ACCEPTED), "{what}");
    let hits = world.upstream.hits();
    assert_eq!(hits.len(), before + 1, "{what}");
    let hit = &hits[before];
    assert_eq!(hit.body, case.body(), "{what}");
    let told = (items.len() > 1).then(|| items.join(", "));
    assert_eq!(hit.header("onceward-items"), told.as_deref(), "{what}");
    answer
}

/// A case alone: refused, answered by the gateway, passed on each time, or forwarded once.
async fn alone(world: &World, trial: &Trial<'_>) {
    let case = trial.case;
    let Expect { kind, reason, items, .. } = &case.expect;
    let before = world.upstream.count();
    match kind.as_deref() {
        None if case.expect.verified && !items.is_empty() => {
            let first = first(world, case, trial, "b", &vec!["first"; items.len()]).await;
            is_replay(&world.deliver(case, trial, "b").await, &first);
            assert_eq!(world.upstream.count(), before + 1);
            return;
        }
        None if case.expect.verified => is_problem(&world.deliver(case, trial, "b").await, 400, "missing-key"),
        Some("handshake") => {
            for _ in 0..2 {
                let answer = world.deliver(case, trial, "b").await;
                let told = (Some(answer.status), answer.idempotency(), String::from_utf8(answer.body.clone()).unwrap());
                let expected = (case.respond().status, "bypassed", case.respond().body.unwrap());
                assert_eq!(told, expected, "{}: {answer:?}", case.name);
            }
        }
        Some("thin-ping") => {
            for _ in 0..2 {
                let answer = world.deliver(case, trial, "b").await;
                assert_eq!((answer.status, answer.idempotency()), (200, "bypassed"), "{}: {answer:?}", case.name);
            }
            assert_eq!(world.upstream.count(), before + 2);
            return;
        }
        _ => {
            let refused = world.deliver(case, trial, "b").await;
            assert_eq!(refused.idempotency(), "rejected", "{}: {refused:?}", case.name);
            let status = case.respond().bad_signature.unwrap_or(401);
            match reason.as_str() {
                "expired" => is_problem(&refused, status, "stale"),
                "malformed" => assert!((400..500).contains(&refused.status), "{}: {refused:?}", case.name),
                _ => is_problem(&refused, status, "unverified"),
            }
        }
    }
    assert_eq!(world.upstream.count(), before, "{} went through", case.name);
}

/// A case after another one: conflict, replay, or one forward that says which events are new.
async fn after(world: &World, trial: &Trial<'_>, other: &Case, outcomes: &[String]) {
    let case = trial.case;
    let earlier = first(world, other, trial, "a", &vec!["first"; other.expect.items.len()]).await;
    let before = world.upstream.count();
    let said = |outcome: &str| outcomes.iter().any(|one| one == outcome);
    let (known, forwarded) = if said("conflict") {
        let refused = world.deliver(case, trial, "b").await;
        is_problem(&refused, 409, "fingerprint-mismatch");
        assert!(!refused.json()["fields"].as_array().unwrap().is_empty(), "{refused:?}");
        (earlier, 0)
    } else if said("new") {
        let items: Vec<_> = outcomes.iter().map(|outcome| if outcome == "new" { "first" } else { "replay" }).collect();
        let answer = first(world, case, trial, "b", &items).await;
        // Once all are known, the first event's own answer counts.
        let known = if outcomes[0] == "new" { answer } else { earlier };
        is_replay(&world.deliver(case, trial, "b").await, &known);
        (known, 1)
    } else {
        is_replay(&world.deliver(case, trial, "b").await, &earlier);
        (earlier, 0)
    };
    let again = world.deliver(other, trial, "a").await;
    if outcomes[0] == "new" {
        assert_eq!(again.idempotency(), "replay")
    } else {
        is_replay(&again, &known)
    }
    assert_eq!(world.upstream.count(), before + forwarded, "{} after {}", case.name, other.name);
}

/// Every case of every sender comes to what its contract says, in a running gateway and at the time at which it was signed.
#[tokio::test]
async fn every_case_through_a_gateway() {
    let cases = cases();
    let trials = trials(&cases);
    assert!(cases.len() >= 172 && trials.len() >= 272, "{} cases, {} trials", cases.len(), trials.len());
    let world = World::start(&trials).await;
    for trial in &trials {
        match &trial.after {
            None => alone(&world, trial).await,
            Some((other, outcomes)) => after(&world, trial, other, outcomes).await,
        }
    }
}
