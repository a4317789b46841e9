//! What parses and is not built yet: one list, so that a feature that lands deletes its line here and is done.

use super::fault::Notice;
use super::model::{Config, Route};

/// How every text about such a feature ends.
pub(super) const NOT_ACTIVE: &str = "is not active in this version";

/// Client certificates that are asked for and not checked would let everyone in: a fault, unlike what stands in [`inactive`].
pub(super) const CLIENT_CERTIFICATES_NOT_BUILT: Option<&str> = Some("the check of client certificates");

/// Each configured feature that this version does not act on.
pub fn inactive(config: &Config) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |path: String, what: &str, is_set: bool| {
        if is_set {
            notices.push(Notice::new(path, format!("{what} {NOT_ACTIVE}")));
        }
    };
    for (name, tenant) in &config.tenants {
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
    note("certificates", "verification by certificate", certificates_set);
}
