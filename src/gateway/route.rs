//! Which route a request takes: by host, path and method, all exact.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use matchit::Router;
use percent_encoding::percent_decode_str;

use crate::config::model;
use crate::event::Delivery;

use super::deployed::Slot;
use super::meters::RouteMeters;
use super::rejection::Rejection;

/// One route, ready to serve.
pub struct Route {
    /// As configured.
    pub config: Arc<model::Route>,
    /// The code that reads its deliveries.
    pub plugin: Slot,
    /// What is counted of it.
    pub meters: Arc<RouteMeters>,
}

/// All routes, read-only while they serve.
pub struct Routes {
    by_host: HashMap<String, Router<Vec<Arc<Route>>>>,
    any_host: Router<Vec<Arc<Route>>>,
    /// In the configuration's order.
    all: Vec<Arc<Route>>,
}

/// Where routes that differ by method stand together: a host, if any, and a path.
type Place = (Option<String>, String);

/// A path's captures, as they stand in the path.
pub type Captures = Vec<(String, String)>;

impl Routes {
    /// From checked routes.
    ///
    /// # Errors
    /// A path that cannot stand beside another one: the route's place in the list and why.
    pub fn new(routes: Vec<Route>) -> Result<Self, (usize, String)> {
        let mut paths: HashMap<Place, Vec<(usize, Arc<Route>)>> = HashMap::new();
        let mut listed = Vec::new();
        for (at, route) in routes.into_iter().enumerate() {
            let host = route.config.host.as_ref().map(|host| host.to_ascii_lowercase());
            let route = Arc::new(route);
            listed.push(Arc::clone(&route));
            paths.entry((host, route.config.path.clone())).or_default().push((at, route));
        }
        let mut all = Self { by_host: HashMap::new(), any_host: Router::new(), all: listed };
        for ((host, path), routes) in paths {
            let at = routes.first().map_or(0, |(at, _)| *at);
            let routes = routes.into_iter().map(|(_, route)| route).collect();
            let table = match host {
                Some(host) => all.by_host.entry(host).or_default(),
                None => &mut all.any_host,
            };
            table.insert(path, routes).map_err(|error| (at, error.to_string()))?;
        }
        Ok(all)
    }

    /// All of them, in the configuration's order.
    pub fn all(&self) -> &[Arc<Route>] {
        &self.all
    }

    /// By its name.
    pub fn named(&self, tenant: &str, name: &str) -> Option<&Arc<Route>> {
        self.all.iter().find(|route| route.config.tenant == tenant && route.config.name == name)
    }

    /// The route of a request. A route for this very host comes before one for any.
    ///
    /// # Errors
    /// [`Rejection::NoRoute`], or [`Rejection::MethodNotAllowed`] when the path is known.
    pub fn find(&self, host: &str, path: &str, method: &Method) -> Result<(Arc<Route>, Captures), Rejection> {
        let name = without_port(host).to_ascii_lowercase();
        let mut allowed: Vec<String> = Vec::new();
        for table in self.by_host.get(&name).into_iter().chain(std::iter::once(&self.any_host)) {
            let Ok(found) = table.at(path) else { continue };
            if let Some(route) = found.value.iter().find(|route| route.accepts(method)) {
                let captures = found.params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                return Ok((Arc::clone(route), captures));
            }
            allowed.extend(found.value.iter().flat_map(|route| route.methods()).map(|method| method.to_string()));
        }
        if allowed.is_empty() {
            return Err(Rejection::NoRoute);
        }
        allowed.sort_unstable();
        allowed.dedup();
        Err(Rejection::MethodNotAllowed { allow: allowed.join(", ") })
    }
}

impl Route {
    /// For unverified senders.
    pub fn refuse_status(&self) -> StatusCode {
        StatusCode::from_u16(self.config.refuse_status).unwrap_or(StatusCode::UNAUTHORIZED)
    }

    /// For a duplicate of a running event.
    pub fn in_flight(&self, after: Duration) -> Rejection {
        // No lease is longer than a route's, however the store's clock may have stepped.
        let after = after.min(self.config.policy.lease);
        let status = StatusCode::from_u16(self.config.policy.in_flight.status).unwrap_or(StatusCode::CONFLICT);
        Rejection::InFlight { status, after }
    }

    /// For another event under a known key. Of several events in a request nothing may be called accepted, and neither may one that
    /// is not kept yet.
    pub fn mismatch(&self, fields: Vec<String>, kept: bool, events: usize) -> Rejection {
        let status = StatusCode::from_u16(self.config.policy.mismatch_status).unwrap_or(StatusCode::CONFLICT);
        match status.is_success() {
            true if events > 1 => Rejection::Mismatch { status: StatusCode::CONFLICT, fields },
            true if !kept => Rejection::StoreUnavailable,
            _ => Rejection::Mismatch { status, fields },
        }
    }

    fn accepts(&self, method: &Method) -> bool {
        self.config.methods.contains(method) || self.methods().contains(method)
    }

    /// The route's own methods and those that its plugin needs for handshakes.
    fn methods(&self) -> Vec<Method> {
        let code = self.plugin.now();
        let handshakes = code.iter().flat_map(|code| code.active.grant.needs.methods.iter());
        self.config.methods.iter().chain(handshakes).cloned().collect()
    }

    /// The path that the upstream gets: the route's own with the captures put in, or the one received.
    pub fn upstream_path(&self, delivery: &Delivery, captures: &Captures) -> String {
        let Some(template) = &self.config.upstream_path else {
            return delivery.path.clone();
        };
        // The sender's own bytes: decoded and encoded again they might say another path than the one that was checked.
        let mut path = String::with_capacity(template.len());
        let mut rest = template.as_str();
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            path.push_str(before);
            path.push_str(captures.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value));
            rest = after;
        }
        path.push_str(rest);
        path
    }
}

/// What a plugin sees of captures: percent-decoded, unless that is no text.
pub fn decoded(captures: &Captures) -> Vec<(String, String)> {
    let decode = |text: &str| {
        percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
    };
    captures.iter().map(|(name, value)| (name.clone(), decode(value))).collect()
}

/// A host without its port, brackets of an IPv6 literal kept.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}
