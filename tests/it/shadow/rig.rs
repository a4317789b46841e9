//! Two versions of a guest on one route, and deliveries that both get.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward::config::model::Route as Settings;
use onceward::config::{Environment, load};
use onceward::event::Delivery;
use onceward::gateway::admission::{Admitted, Sender};
use onceward::gateway::breaker::Breakers;
use onceward::gateway::deployed::{Deployed, Runner, Slot};
use onceward::gateway::identity::KeySpace;
use onceward::gateway::meters::{PluginMeters, RouteMeters};
use onceward::gateway::route::Route;
use onceward::gateway::shadow::{Comparison, Report, Shadow, Shadows, Side};
use onceward::plugin::{Grant, Plugin};

use crate::journey::sealed::{KEY, with_keys};
use crate::plugins::support::{delivery, grant};
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::Home;

/// A guest does what a test is about on a body of three bytes, and gives the key `k` to all others.
pub const TRIGGER: &[u8] = b"now";
pub const OTHER: &[u8] = b"a good event";

/// A version as a route of tenant `t` runs it.
pub fn runner(plugin: &Plugin, grant: Grant) -> Arc<Runner> {
    Arc::new(Runner {
        plugin: plugin.clone(),
        version: plugin.version().clone(),
        grant: Arc::new(grant),
        space: KeySpace {
            tenant: "t".into(),
            scope: "pay".into(),
            namespace: plugin.descriptor().key_namespace.clone(),
        },
        meters: PluginMeters::new("t/guest"),
        breaker: Breakers::default().of("t", plugin.version()),
    })
}

/// The route `pay` of tenant `t`, with more keys.
pub fn settings(more: &str) -> Arc<Settings> {
    let home = Home::new(&with_keys(&config("memory:", ([127, 0, 0, 1], 9).into(), ""), &[KEY]).replacen(
        "path = \"/pay\"\n",
        &format!("path = \"/pay\"\n{more}\n"),
        1,
    ));
    let read = load(Some(&home.path().join("onceward.toml")), &Environment::default()).unwrap();
    Arc::clone(&read.routes[0])
}

/// A delivery that was let in.
pub fn admitted(route: &Arc<Settings>, code: &Arc<Deployed>, delivery: Arc<Delivery>) -> Admitted {
    let meters = Arc::new(RouteMeters::new("t", "pay"));
    let route = Arc::new(Route { config: Arc::clone(route), plugin: Slot::new(None), meters });
    let sender = Sender { address: [127, 0, 0, 1].into(), forwarded_for: String::new() };
    Admitted { route, code: Arc::clone(code), captures: Vec::new(), delivery, sender }
}

fn side(plugin: &Plugin) -> Side {
    Side { digest: plugin.version().version.clone(), namespace: plugin.descriptor().key_namespace.clone() }
}

pub fn comparison(active: &Plugin, candidate: &Plugin) -> Comparison {
    Comparison::new(side(active), side(candidate), String::new())
}

/// A candidate beside an active version.
pub struct Beside {
    route: Arc<Settings>,
    code: Arc<Deployed>,
    pub shadow: Arc<Shadow>,
}

impl Beside {
    pub fn new(active: &Plugin, candidate: &Plugin) -> Self {
        Self::on(&Shadows::start().unwrap(), active, candidate)
    }

    pub fn on(shadows: &Shadows, active: &Plugin, candidate: &Plugin) -> Self {
        let compared = Arc::new(comparison(active, candidate));
        let shadow = Arc::new(Shadow::new(runner(candidate, grant()), compared, shadows.clone()));
        let code = Deployed { active: runner(active, grant()), previous: None, shadow: Some(Arc::clone(&shadow)) };
        Self { route: settings(""), code: Arc::new(code), shadow }
    }

    /// The active version reads a delivery, then the candidate may.
    pub async fn deliver(&self, body: &[u8], event: &str) {
        let (active, delivery) = (&self.code.active, delivery(body));
        let inspected = active.plugin.inspect(&active.grant, &delivery).await;
        self.shadow.offer(&admitted(&self.route, &self.code, delivery), &inspected, event);
    }

    /// What was found once so many deliveries were compared or skipped.
    pub async fn report(&self, deliveries: u64) -> Report {
        let report = || self.shadow.comparison().report();
        eventually("all deliveries are compared", || async {
            report().counts.compared + report().counts.skipped >= deliveries
        })
        .await;
        report()
    }
}

/// How many examples there are of each kind.
pub fn examples(report: &Report) -> BTreeMap<&str, usize> {
    report.counts.examples.iter().fold(BTreeMap::new(), |mut kinds, example| {
        *kinds.entry(example.kind.as_str()).or_default() += 1;
        kinds
    })
}

/// The files of captured requests, oldest first.
pub fn requests(dir: &Path) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "request"));
    files.sort();
    files
}
