//! The merged tree becomes the checked model: every table is read to its end before anything is given up, so that all faults show at once.

mod path;
mod plugins;
mod policy;
mod route;
mod secret;
mod store;
mod tenant;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use figment::value::{Dict, Value};

pub use upstream::refused_address;

use super::fault::Problem;
use super::inactive::{CLIENT_CERTIFICATES_NOT_BUILT, NOT_ACTIVE};
use super::model::{Admin, Config, Drain, PerAddress, Route, Server, Timeouts, Tls, Token, TokenScope};
use super::raw::{Item, Table};
use super::values;

/// What the routes and tokens may refer to, by name, whether or not it was itself without fault.
struct Known {
    upstreams: BTreeSet<String>,
    /// The names of each tenant's secrets.
    tenants: BTreeMap<String, BTreeSet<String>>,
    /// Whether what is kept can be encrypted.
    encrypted: bool,
    /// `[idempotency]` and its path.
    defaults: Option<(String, Dict)>,
}

/// Reads the whole configuration.
pub(super) fn config(root: &mut Table<'_>) -> Option<Config> {
    let server = root.sub("server", server);
    let store = root.sub("store", store::store);
    let plugin_registry = root.sub("plugins", |table| plugins::registry(table));
    let upstreams = upstream::upstreams(root);
    let tenants = tenant::tenants(root);
    // Faulty keys of encryption are a fault already; a second one for each route that needs them would say nothing new.
    let encrypted = store.as_ref().is_none_or(|store| !store.encryption_keys.is_empty());
    let known = Known {
        upstreams: upstreams.names,
        tenants: tenants.secret_names,
        encrypted,
        defaults: root.heritage("idempotency"),
    };
    // Read by itself too, so that its faults show where no route inherits it.
    root.sub("idempotency", |table| policy::policy(table, encrypted));
    let routes = route::routes(root, &known);
    let named = routes.iter().flatten().map(|route| route.tenant.clone());
    let tenant_names: BTreeSet<String> = known.tenants.keys().cloned().chain(named).collect();
    let ingest = server.as_ref().map_or(&[][..], |server| &server.listen);
    let admin = root.sub("admin", |table| admin(table, &tenant_names, ingest));
    let routes: Vec<Arc<Route>> = routes.into_iter().map(|route| route.map(Arc::new)).collect::<Option<_>>()?;
    Some(Config {
        server: server?,
        admin: admin?,
        store: store?,
        plugin_registry: plugin_registry?,
        upstreams: upstreams.read?,
        tenants: tenant::with_defaults(tenants.read?, tenant_names),
        routes,
        inline_secrets: root.inline_secrets(),
    })
}

fn server(table: &mut Table<'_>) -> Option<Server> {
    let listen = table.required("listen").and_then(addresses);
    let max_connections = table.read("max_connections", values::count);
    let max_body = table.read("max_body", values::size);
    let max_headers = table.read("max_headers", values::size);
    let per_address = table.sub("per_address", per_address);
    let timeouts = table.sub("timeouts", timeouts);
    let drain = table.sub("drain", drain);
    let trusted_proxies = table.list("trusted_proxies", values::network);
    let state_dir = table.read("state_dir", values::path);
    let tls = optional(table.take("tls").map(|item| item.table(tls)));
    Some(Server {
        listen: listen?,
        max_connections: max_connections?,
        max_body: max_body?,
        max_headers: max_headers?,
        per_address: per_address?,
        timeouts: timeouts?,
        drain: drain?,
        trusted_proxies: trusted_proxies?,
        state_dir: state_dir?,
        tls: tls?,
    })
}

fn addresses(item: Item<'_>) -> Option<Vec<SocketAddr>> {
    let whole = item.clone();
    let items = item.items()?;
    if items.is_empty() {
        whole.fault(Problem::new("names no address").hint("write [\"127.0.0.1:8080\"]"));
        return None;
    }
    items.iter().map(|item| item.read(values::address)).collect::<Vec<_>>().into_iter().collect()
}

fn per_address(table: &mut Table<'_>) -> Option<PerAddress> {
    let rate = table.read("rate", values::rate);
    let connections = table.read("connections", values::count);
    Some(PerAddress { rate: rate?, connections: connections? })
}

fn timeouts(table: &mut Table<'_>) -> Option<Timeouts> {
    let header = table.read("header", values::positive);
    let body = table.read("body", values::positive);
    let idle = table.read("idle", values::positive);
    Some(Timeouts { header: header?, body: body?, idle: idle? })
}

fn drain(table: &mut Table<'_>) -> Option<Drain> {
    let delay = table.read("delay", values::duration);
    let deadline = table.read("deadline", values::duration);
    Some(Drain { delay: delay?, deadline: deadline? })
}

fn tls(table: &mut Table<'_>) -> Option<Tls> {
    let cert = table.required("cert").and_then(|item| item.read(values::file));
    let key = table.required("key").and_then(|item| item.read(values::file));
    let client_ca = optional(table.take("client_ca").map(|item| {
        if let Some(what) = CLIENT_CERTIFICATES_NOT_BUILT {
            item.fault(Problem::new(format!("{what} {NOT_ACTIVE}")).hint("remove the key and let a proxy check them"));
        }
        item.read(values::file)
    }));
    Some(Tls { cert: cert?, key: key?, client_ca: client_ca? })
}

fn admin(table: &mut Table<'_>, tenants: &BTreeSet<String>, ingest: &[SocketAddr]) -> Option<Admin> {
    let listen = table.read("listen", |value| match values::address(value)? {
        address if ingest.iter().any(|other| meet(address, *other)) => {
            Err(Problem::new("is an address of server.listen too").hint("give the admin listener its own port"))
        }
        address => Ok(address),
    });
    let items = table.take("tokens").map_or(Some(Vec::new()), Item::items);
    let mut seen = BTreeMap::new();
    let tokens = items.map(|items| {
        let read = items.into_iter().map(|item| {
            let whole = item.clone();
            let token = item.table(|table| token(table, tenants))?;
            if let Some(first) = seen.insert(token.name.clone(), whole.path.clone()) {
                whole.fault(
                    Problem::new(format!("the name is taken by {first}")).hint("the audit log tells tokens by name"),
                );
            }
            Some(token)
        });
        read.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>()
    });
    Some(Admin { listen: listen?, tokens: tokens?? })
}

/// Whether two listeners would take each other's connections. Port 0 is a free one.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let same = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same
}

fn token(table: &mut Table<'_>, tenants: &BTreeSet<String>) -> Option<Token> {
    let name = table.required("name").and_then(|item| item.read(values::some_text));
    let sha256 = table.required("sha256").and_then(|item| item.read(digest));
    let scope = table.required("scope").and_then(|item| item.read(|value| scope(value, tenants)));
    Some(Token { name: name?, sha256: sha256?, scope: scope? })
}

/// Never repeats the text: it may be the token itself, pasted by mistake.
fn digest(value: &Value) -> Result<[u8; 32], Problem> {
    let mut digest = [0; 32];
    hex::decode_to_slice(values::text(value)?, &mut digest).map_err(|_| {
        Problem::new("is not a SHA-256").hint("write the 64 hex digits that `onceward token hash` prints")
    })?;
    Ok(digest)
}

fn scope(value: &figment::value::Value, tenants: &BTreeSet<String>) -> Result<TokenScope, Problem> {
    let text = values::text(value)?;
    if text == "operator" {
        return Ok(TokenScope::Operator);
    }
    let Some(tenant) = text.strip_prefix("tenant:") else {
        return Err(Problem::new(format!("{} is not a scope", values::quote(&text)))
            .hint("write \"operator\" or \"tenant:NAME\""));
    };
    if tenants.contains(tenant) {
        return Ok(TokenScope::Tenant(tenant.to_owned()));
    }
    Err(unknown("tenant", tenant, tenants.iter().map(String::as_str)))
}

/// Absent is fine, faulty is not.
fn optional<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    match read {
        None => Some(None),
        Some(read) => read.map(Some),
    }
}

/// A name that nothing bears.
fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str> + Clone) -> Problem {
    let problem = Problem::new(format!("unknown {what} {}", values::quote(name)));
    match values::nearest(name, known.clone()) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => match known.collect::<Vec<_>>().join(", ") {
            names if names.is_empty() => problem.hint("none is configured"),
            names => problem.hint(format!("there are: {names}")),
        },
    }
}
