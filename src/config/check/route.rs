//! `[[routes]]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;

use crate::config::fault::Problem;
use crate::config::model::{Capture, Certificates, Mode, PluginRef, Route, Unsigned};
use crate::config::raw::{Item, Table};
use crate::config::values::{self, word};

use super::{Known, optional, path, policy, unknown};

/// What tells routes apart, as far as it could be read: collisions are found among faulty routes too.
struct Seat<'a> {
    item: Item<'a>,
    name: Option<(String, String)>,
    host: Option<String>,
    path: Option<(Item<'a>, String)>,
    methods: Vec<http::Method>,
}

/// All routes in order; a faulty one is none.
pub(super) fn routes(root: &mut Table<'_>, known: &Known) -> Vec<Option<Route>> {
    let items = root.take("routes").and_then(Item::items).unwrap_or_default();
    let mut seats = Vec::new();
    let mut routes = Vec::new();
    for item in items {
        let mut seat = Seat { item: item.clone(), name: None, host: None, path: None, methods: Vec::new() };
        routes.push(item.table(|table| route(table, known, &mut seat)));
        seats.push(seat);
    }
    same_name(&seats);
    same_requests(&seats);
    routes
}

fn route<'a>(table: &mut Table<'a>, known: &Known, seat: &mut Seat<'a>) -> Option<Route> {
    let tenant = table.required("tenant").and_then(|item| item.read(values::name));
    let name = table.required("name").and_then(|item| item.read(values::name));
    let path_item = table.required("path");
    let path = path_item.as_ref().and_then(|item| item.read(values::text));
    let captures = match (&path_item, &path) {
        (Some(item), Some(path)) => item.read(|_| path::route_path(path)),
        _ => None,
    };
    let methods = methods(table);
    let host = optional(table.take("host").map(|item| item.read(host)));
    seat.name = tenant.clone().zip(name.clone());
    seat.host = host.clone().flatten();
    seat.path = captures.as_ref().and(path_item).zip(path.clone());
    seat.methods = methods.clone().unwrap_or_default();

    let plugin = table.required("plugin").and_then(|item| item.read(|value| plugin(value, tenant.as_deref())));
    let plugin_config = plugin_config(table, plugin.as_ref(), tenant.as_deref(), known);
    let mode = table.read("mode", word(&[("dedupe", Mode::Dedupe), ("observe", Mode::Observe)]));
    let unsigned = table.read("unsigned", word(&[("reject", Unsigned::Reject), ("allow", Unsigned::Allow)]));
    let refuse_status = table.read("refuse_status", values::client_error);
    let upstream = table.required("upstream").and_then(|item| item.read(|value| upstream(value, known)));
    // Without the path's captures there is nothing to hold the template against.
    let template = table.take("upstream_path");
    let upstream_path = match (template, &captures) {
        (Some(item), Some(known)) => item.read(|value| path::upstream_path(&values::text(value)?, known)).map(Some),
        _ => Some(None),
    };
    let scope = optional(table.take("scope").map(|item| item.read(values::name)));
    let allow_from = table.list("allow_from", values::network);
    let capture = optional(table.take("capture").map(|item| capture(item, known.encrypted)));
    let certificates = table.sub("certificates", certificates);
    let policy = table.sub_over("idempotency", known.defaults.clone(), |table| policy::policy(table, known.encrypted));
    Some(Route {
        tenant: tenant?,
        path: captures.and(path)?,
        methods: methods?,
        host: host?,
        plugin: plugin?,
        plugin_config: plugin_config?,
        mode: mode.unwrap_or(Mode::Dedupe),
        unsigned,
        refuse_status: refuse_status.unwrap_or(401),
        upstream: upstream?,
        upstream_path: upstream_path?,
        scope: scope?.or_else(|| name.clone())?,
        name: name?,
        allow_from: allow_from?,
        capture: capture?,
        certificates: certificates?,
        policy: policy?,
    })
}

fn methods(table: &mut Table<'_>) -> Option<Vec<http::Method>> {
    let Some(item) = table.take("methods") else { return Some(vec![http::Method::POST]) };
    let whole = item.clone();
    let read: Vec<_> = item.items()?.iter().map(|item| item.read(method)).collect();
    if read.is_empty() {
        whole.fault(Problem::new("names no method").hint("write [\"POST\"]"));
        return None;
    }
    read.into_iter().collect()
}

fn method(value: &Value) -> Result<http::Method, Problem> {
    let text = values::text(value)?;
    let upper = text.to_ascii_uppercase();
    match upper.parse::<http::Method>() {
        Ok(method) if upper == text && method != http::Method::CONNECT => Ok(method),
        Ok(method) if method != http::Method::CONNECT => {
            Err(Problem::new(format!("methods are upper case, found {}", values::quote(&text)))
                .hint(format!("write {upper:?}")))
        }
        _ => Err(Problem::new(format!("{} is not a method of a webhook", values::quote(&text))).hint("write \"POST\"")),
    }
}

fn host(value: &Value) -> Result<String, Problem> {
    let text = values::text(value)?;
    let whole = text.parse::<http::uri::Authority>().is_ok_and(|authority| authority.host() == text);
    if whole {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(Problem::new(format!("{} is not a host", values::quote(&text)))
            .hint("write it without scheme, port and path: \"hooks.example.com\""))
    }
}

fn plugin(value: &Value, route_tenant: Option<&str>) -> Result<PluginRef, Problem> {
    const HINT: &str = "write the name of a bundled plugin, \"TENANT/NAME\" or \"file:PATH.wasm\"";
    let text = values::some_text(value)?;
    if let Some(path) = text.strip_prefix("file:") {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(PluginRef::File(path))
        } else {
            Err(Problem::new(format!("there is no file {}", values::quote(&path.display().to_string()))))
        };
    }
    let bad = || Problem::new(format!("{} is not a plugin", values::quote(&text))).hint(HINT);
    let Some((tenant, name)) = text.split_once('/') else {
        return if values::is_name(&text) { Ok(PluginRef::Bundled(text)) } else { Err(bad()) };
    };
    if !values::is_name(tenant) || !values::is_name(name) {
        return Err(bad());
    }
    if route_tenant.is_some_and(|route_tenant| route_tenant != tenant) {
        return Err(Problem::new(format!("the plugin {} belongs to another tenant", values::quote(&text)))
            .hint("a route runs its own tenant's plugins, or bundled ones"));
    }
    Ok(PluginRef::Uploaded { tenant: tenant.to_owned(), name: name.to_owned() })
}

fn plugin_config(
    table: &mut Table<'_>,
    plugin: Option<&PluginRef>,
    tenant: Option<&str>,
    known: &Known,
) -> Option<serde_json::Value> {
    let Some(item) = table.take("plugin_config") else { return Some(serde_json::json!({})) };
    let config = item.read(|value| match value {
        Value::Dict(_, values) => serde_json::to_value(values).map_err(|error| Problem::new(error.to_string())),
        _ => Err(Problem::new(format!("expected a table, found {}", values::kind(value)))),
    })?;
    // Other plugins name their secrets by keys of their own choice; their host asks them.
    if let (Some(PluginRef::Bundled(_)), Some(tenant)) = (plugin, tenant) {
        let none = Default::default();
        let names = known.tenants.get(tenant).unwrap_or(&none);
        for (pointer, key) in [("/secret", "secret"), ("/verify/secret", "verify.secret")] {
            match config.pointer(pointer).and_then(serde_json::Value::as_str) {
                Some(name) if !names.contains(name) => {
                    let what = format!("secret of tenant {tenant:?}:");
                    item.below(key).fault(unknown(&what, name, names.iter().map(String::as_str)));
                }
                _ => {}
            }
        }
    }
    Some(config)
}

fn upstream(value: &Value, known: &Known) -> Result<String, Problem> {
    let name = values::text(value)?;
    if known.upstreams.contains(&name) {
        return Ok(name);
    }
    Err(unknown("upstream", &name, known.upstreams.iter().map(String::as_str)))
}

fn capture(item: Item<'_>, encrypted: bool) -> Option<Capture> {
    if !encrypted {
        item.fault(Problem::new("requests are kept encrypted only").hint("set store.encryption_keys"));
    }
    item.table(|table| {
        let max = table.read("max", values::count).unwrap_or(1000);
        let ttl = table.read("ttl", values::positive).unwrap_or(Duration::from_hours(24));
        Some(Capture { max, ttl })
    })
}

fn certificates(table: &mut Table<'_>) -> Option<Certificates> {
    let hosts = table.list("hosts", host);
    let names = table.list("names", values::some_text);
    let roots = optional(table.take("roots").map(|item| item.read(values::file)));
    Some(Certificates { hosts: hosts?, names: names?, roots: roots? })
}

fn same_name(seats: &[Seat<'_>]) {
    let mut seen = BTreeMap::new();
    for seat in seats {
        let Some((tenant, name)) = &seat.name else { continue };
        if let Some(first) = seen.insert((tenant, name), &seat.item.path) {
            seat.item.fault(Problem::new(format!("the route {tenant}/{name} exists already: {first}")));
        }
    }
}

/// Two routes must never compete for a request: not by the same path and method, and not by captures at the same place, among
/// which the router could not choose.
fn same_requests(seats: &[Seat<'_>]) {
    let mut routers: BTreeMap<Option<&str>, matchit::Router<usize>> = BTreeMap::new();
    for (at, seat) in seats.iter().enumerate() {
        let Some((item, path)) = &seat.path else { continue };
        let rivals = || seats.iter().take(at).filter(|other| other.host == seat.host);
        let same_path = rivals().filter(|other| other.path.as_ref().is_some_and(|(_, other)| other == path));
        let shares = |other: &&Seat<'_>| other.methods.iter().any(|method| seat.methods.contains(method));
        let mut same_path = same_path.peekable();
        if same_path.peek().is_some() {
            if let Some(other) = same_path.find(shares) {
                item.fault(Problem::new(format!("{} answers the same path, host and method", other.item.path)));
            }
            continue;
        }
        let router = routers.entry(seat.host.as_deref()).or_default();
        if let Err(matchit::InsertError::Conflict { with }) = router.insert(path.as_str(), at) {
            item.fault(
                Problem::new(format!(
                    "{} and {} can match the same requests",
                    values::quote(path),
                    values::quote(&with)
                ))
                .hint("give captures at the same place the same name, or the paths different fixed segments"),
            );
        }
    }
}
