//! `[upstreams.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use figment::value::Value;

use crate::config::fault::Problem;
use crate::config::model::{Target, Upstream};
use crate::config::raw::Table;
use crate::config::values;

use super::store::port_is_number;

/// The upstreams, and the names of all of them, faulty ones too.
pub(super) struct Upstreams {
    pub(super) names: BTreeSet<String>,
    pub(super) read: Option<BTreeMap<String, Arc<Upstream>>>,
}

/// Where cloud providers answer any process with credentials, beside the link-local 169.254.169.254.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
];

/// Why no upstream is ever dialled at an address, whoever wrote it and in whatever spelling; none if it may be.
pub fn refused_address(address: IpAddr) -> Option<&'static str> {
    match behind_nat64(address).unwrap_or(address).to_canonical() {
        address if METADATA.contains(&address) => Some("a cloud metadata address"),
        address if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("a link-local address"),
        // All of 0.0.0.0/8 reaches this host on some systems.
        IpAddr::V4(v4) if v4.octets().first() == Some(&0) => Some("an unspecified address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("a link-local address"),
        IpAddr::V6(v6) if v6.is_unspecified() => Some("an unspecified address"),
        _ => None,
    }
}

/// The IPv4 address in `64:ff9b::a.b.c.d` (RFC 6052).
fn behind_nat64(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = v6.segments() else { return None };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into())
}

pub(super) fn upstreams(root: &mut Table<'_>) -> Upstreams {
    let entries = root.entries("upstreams");
    let names = entries.iter().map(|(name, _)| name.clone()).collect();
    let read: Vec<_> = entries
        .into_iter()
        .map(|(name, item)| {
            let named = values::is_name(&name);
            if !named {
                item.fault(values::bad_name(&name));
            }
            let upstream = item.table(|table| upstream(table, &name))?;
            named.then(|| (name, Arc::new(upstream)))
        })
        .collect();
    Upstreams { names, read: read.into_iter().collect() }
}

fn upstream(table: &mut Table<'_>, name: &str) -> Option<Upstream> {
    let target = table.required("url").and_then(|item| item.read(target));
    let connect_timeout = table.read("connect_timeout", values::positive);
    let timeout = table.read("timeout", values::positive);
    let idle_timeout = table.read("idle_timeout", values::positive);
    let preserve_host = table.read("preserve_host", values::flag);
    Some(Upstream {
        name: name.to_owned(),
        target: target?,
        connect_timeout: connect_timeout.unwrap_or(Duration::from_secs(2)),
        timeout: timeout.unwrap_or(Duration::from_secs(15)),
        idle_timeout: idle_timeout.unwrap_or(Duration::from_secs(4)),
        preserve_host: preserve_host.unwrap_or(false),
    })
}

/// No fault repeats the address: it may hold a password, which is one of the faults.
fn target(value: &Value) -> Result<Target, Problem> {
    const HINT: &str = "write http://HOST:PORT, https://HOST or builtin:echo";
    let text = values::text(value)?;
    if text == "builtin:echo" {
        return Ok(Target::Echo);
    }
    let uri: http::Uri = text.parse().map_err(|_| Problem::new("is not a URL").hint(HINT))?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(Problem::new("is not a URL with a scheme and a host").hint(HINT));
    };
    if scheme != http::uri::Scheme::HTTP && scheme != http::uri::Scheme::HTTPS {
        return Err(Problem::new("this scheme is not supported").hint(HINT));
    }
    if authority.as_str().contains('@') {
        return Err(
            Problem::new("has a user name or password in it").hint("let the upstream trust the gateway's address")
        );
    }
    if authority.host().is_empty() || !port_is_number(&authority) {
        return Err(Problem::new("has no valid host and port").hint(HINT));
    }
    if text.contains(['?', '#']) {
        return Err(Problem::new("has a query or a fragment").hint("end it with the path"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if let Some(why) = host.parse().ok().and_then(refused_address) {
        return Err(Problem::new(format!("{host} is {why}, which is never dialled")));
    }
    let path = parts.path_and_query.map_or(String::new(), |path| path.path().trim_end_matches('/').to_owned());
    Ok(Target::Http { scheme, authority, prefix: path })
}

#[cfg(test)]
mod tests {
    use super::refused_address;

    #[test]
    fn metadata_and_link_local_addresses_are_never_dialled_in_any_spelling() {
        for refused in [
            "169.254.169.254",
            "168.63.129.16",
            "64:ff9b::a83f:8110",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "::ffff:0.0.0.0",
        ] {
            assert!(refused_address(refused.parse().unwrap()).is_some(), "{refused}");
        }
        for allowed in
            ["127.0.0.1", "10.0.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "8.8.8.8", "::ffff:10.0.0.1"]
        {
            assert!(refused_address(allowed.parse().unwrap()).is_none(), "{allowed}");
        }
    }
}
