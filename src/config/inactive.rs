//! What parses and is not built yet: one list, so that a feature that lands deletes its line here and is done.

use super::fault::Notice;
use super::model::Config;

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
    notices
}
