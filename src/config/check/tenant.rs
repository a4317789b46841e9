//! `[tenants.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::model::{Limits, Tenant};
use crate::config::raw::Table;
use crate::config::values;

use super::secret::secrets;

/// The tenants, and the names of all of them and of their secrets, faulty ones too.
pub(super) struct Tenants {
    pub(super) secret_names: BTreeMap<String, BTreeSet<String>>,
    pub(super) read: Option<BTreeMap<String, Tenant>>,
}

pub(super) fn tenants(root: &mut Table<'_>) -> Tenants {
    let mut secret_names = BTreeMap::new();
    let mut read = Vec::new();
    for (name, item) in root.entries("tenants") {
        let named = values::is_name(&name);
        if !named {
            item.fault(values::bad_name(&name));
        }
        let mut names = BTreeSet::new();
        let tenant = item.table(|table| tenant(table, &name, &mut names)).filter(|_| named);
        secret_names.insert(name.clone(), names);
        read.push(tenant.map(|tenant| (name, tenant)));
    }
    Tenants { secret_names, read: read.into_iter().collect() }
}

/// Adds those that only routes name.
pub(super) fn with_defaults(
    mut tenants: BTreeMap<String, Tenant>,
    names: BTreeSet<String>,
) -> BTreeMap<String, Arc<Tenant>> {
    let tenant = |name: String| {
        let bare = || Tenant { name: name.clone(), secrets: BTreeMap::new(), limits: Limits::DEFAULT, compat: false };
        (name.clone(), Arc::new(tenants.remove(&name).unwrap_or_else(bare)))
    };
    names.into_iter().map(tenant).collect()
}

fn tenant(table: &mut Table<'_>, name: &str, secret_names: &mut BTreeSet<String>) -> Option<Tenant> {
    let read = table.entries("secrets").into_iter().map(|(name, item)| {
        secret_names.insert(name.clone());
        secrets(item).map(|secrets| (name, secrets))
    });
    let secrets: Option<BTreeMap<_, _>> = read.collect::<Vec<_>>().into_iter().collect();
    let limits = table.sub("limits", limits);
    let compat = table.read("compat", values::flag);
    Some(Tenant { name: name.to_owned(), secrets: secrets?, limits: limits?, compat: compat.unwrap_or(false) })
}

fn limits(table: &mut Table<'_>) -> Option<Limits> {
    let default = Limits::DEFAULT;
    Some(Limits {
        rate: table.read("rate", values::rate).unwrap_or(default.rate),
        concurrency: table.read("concurrency", values::count).unwrap_or(default.concurrency),
        plugin_time: table.read("plugin_time", values::time_share).unwrap_or(default.plugin_time),
        versions: table.read("versions", values::count).unwrap_or(default.versions),
        code: table.read("code", values::size).unwrap_or(default.code),
        uploads: table.read("uploads", values::rate).unwrap_or(default.uploads),
    })
}
