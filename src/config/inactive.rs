//! What parses and is not built yet: one list, so that a feature that lands deletes its line here and is done.

use super::fault::Notice;
use super::model::{Config, Limits, PluginRef, Route};

/// How every text about such a feature ends.
pub(super) const NOT_ACTIVE: &str = "is not active in this version";

/// Client certificates that are asked for and not checked would let everyone in: a fault, unlike what stands in [`inactive`].
pub(super) const CLIENT_CERTIFICATES_NOT_BUILT: Option<&str> = Some("the check of client certificates");

/// The default of `plugins.registry`.
const REGISTRY_DEFAULT: &str = "file:plugins-registry";

/// Each configured feature that this version does not act on.
pub fn inactive(config: &Config) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |path: String, what: &str, is_set: bool| {
        if is_set {
            notices.push(Notice::new(path, format!("{what} {NOT_ACTIVE}")));
        }
    };
    let key = str::to_owned;
    note(key("plugins.registry"), "the registry of uploaded plugins", config.plugin_registry != REGISTRY_DEFAULT);
    for (name, tenant) in &config.tenants {
        let Limits { rate: _, concurrency: _, plugin_time: _, versions, code, uploads } = tenant.limits;
        let default = Limits::DEFAULT;
        let limit = |key: &str| format!("tenants.{name}.limits.{key}");
        note(limit("versions"), "a limit on uploaded versions", versions != default.versions);
        note(limit("code"), "a limit on uploaded code", code != default.code);
        note(limit("uploads"), "a rate of uploads", uploads != default.uploads);
        note(format!("tenants.{name}.compat"), "the WASI engine", tenant.compat);
    }
    for (at, route) in config.routes.iter().enumerate() {
        of_route(route, |key, what, is_set| note(format!("routes[{at}].{key}"), what, is_set));
    }
    notices
}

fn of_route(route: &Route, mut note: impl FnMut(&str, &str, bool)) {
    let certificates = &route.certificates;
    let certificates_set =
        !certificates.hosts.is_empty() || !certificates.names.is_empty() || certificates.roots.is_some();
    note("plugin", "a plugin uploaded by its tenant", matches!(route.plugin, PluginRef::Uploaded { .. }));
    note("certificates", "verification by certificate", certificates_set);
}
