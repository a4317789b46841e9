//! `[store]`. An address may hold a password, so no fault repeats one.

use figment::value::Value;

use crate::config::fault::Problem;
use crate::config::inactive::{NOT_ACTIVE, store_not_built};
use crate::config::model::{Secret, Store, StoreUrl};
use crate::config::raw::{Item, Table};
use crate::config::values;

use super::optional;
use super::secret::secrets;

const HINT: &str = "write memory:, sqlite:PATH, redis://HOST, rediss://HOST, redis+sentinel://HOST,HOST/MASTER, \
                    redis+cluster://HOST,HOST or postgres://HOST/DATABASE";

/// Bytes.
const ENCRYPTION_KEY_MIN: usize = 16;

pub(super) fn store(table: &mut Table<'_>) -> Option<Store> {
    let url_item = table.required("url");
    let url = url_item.as_ref().and_then(|item| item.read(store_url));
    if let (Some(item), Some(url)) = (&url_item, &url)
        && let Some(what) = store_not_built(url)
    {
        item.fault(Problem::new(format!("{what} {NOT_ACTIVE}")).hint("use memory:, sqlite: or redis://"));
    }
    let timeout = table.read("timeout", values::positive);
    let front_item = table.take("front");
    let front = optional(front_item.as_ref().map(|item| item.read(redis_url)));
    if let (Some(item), Some(url)) = (&front_item, &url)
        && !matches!(url, StoreUrl::Sqlite(_) | StoreUrl::Postgres(_))
    {
        item.fault(
            Problem::new("only a SQL store can have a front")
                .hint("remove it, or set store.url to sqlite: or postgres:"),
        );
    }
    let digest_keys = keys(table, "digest_keys");
    let encryption_keys = table.take("encryption_keys").map_or(Some(Vec::new()), encryption_keys);
    Some(Store {
        url: url?,
        timeout: timeout?,
        front: front?,
        digest_keys: digest_keys?,
        encryption_keys: encryption_keys?,
    })
}

fn keys(table: &mut Table<'_>, key: &'static str) -> Option<Vec<Secret>> {
    table.take(key).map_or(Some(Vec::new()), secrets)
}

/// A key that can be guessed hides nothing: keys are derived from these texts without the work that a password would need.
fn encryption_keys(item: Item<'_>) -> Option<Vec<Secret>> {
    let whole = item.clone();
    let keys = secrets(item)?;
    if keys.iter().any(|key| key.expose().len() < ENCRYPTION_KEY_MIN) {
        whole.fault(
            Problem::new(format!("a key is shorter than {ENCRYPTION_KEY_MIN} bytes"))
                .hint("use random text, such as what `openssl rand -base64 32` prints"),
        );
        return None;
    }
    Some(keys)
}

fn redis_url(value: &Value) -> Result<StoreUrl, Problem> {
    match store_url(value)? {
        url @ (StoreUrl::Redis(_) | StoreUrl::RedisSentinel(_) | StoreUrl::RedisCluster(_)) => Ok(url),
        _ => Err(Problem::new("a front is a Redis").hint("write redis://HOST")),
    }
}

fn store_url(value: &Value) -> Result<StoreUrl, Problem> {
    let text = values::text(value)?;
    let bad = |why: &str, hint: &str| Err(Problem::new(why).hint(hint));
    let Some((scheme, rest)) = text.split_once(':') else { return bad("is not the address of a store", HINT) };
    match scheme {
        "memory" if rest.is_empty() => Ok(StoreUrl::Memory),
        "memory" => bad("memory: takes no address", "write \"memory:\""),
        "sqlite" if rest.is_empty() || rest.starts_with("//") || rest.starts_with(':') => {
            bad("sqlite: needs the path of a file", "write \"sqlite:onceward.db\" or \"sqlite:/var/lib/onceward.db\"")
        }
        "sqlite" => Ok(StoreUrl::Sqlite(rest.into())),
        "redis" | "rediss" => {
            let path = one_host(&text)?;
            if path.bytes().all(|byte| byte.is_ascii_digit()) {
                Ok(StoreUrl::Redis(text))
            } else {
                bad("the path of a Redis address is the number of a database", "write redis://HOST:6379/0")
            }
        }
        "postgres" => match one_host(&text)? {
            path if path.contains('/') => bad("is not the address of a database", "write postgres://HOST/DATABASE"),
            _ => Ok(StoreUrl::Postgres(text)),
        },
        "redis+sentinel" => match many_hosts(rest)? {
            "" => bad("names no master", "write redis+sentinel://HOST,HOST/MASTER"),
            _ => Ok(StoreUrl::RedisSentinel(text)),
        },
        "redis+cluster" => many_hosts(rest).map(|_| StoreUrl::RedisCluster(text.clone())),
        _ => bad("this kind of store is unknown", HINT),
    }
}

/// The path of an address with one host. A `/`, `#` or `?` in a password must be percent-encoded, or else part of the password
/// would pass for the host and be printed as such.
fn one_host(text: &str) -> Result<String, Problem> {
    let problem = || {
        Problem::new("is not an address with a host")
            .hint("write SCHEME://USER:PASSWORD@HOST:PORT/…, with special characters of the password percent-encoded")
    };
    let uri: http::Uri = text.parse().map_err(|_| problem())?;
    let authority = uri.authority().ok_or_else(problem)?;
    let cut_short = authority.as_str().matches('@').count() != text.matches('@').count();
    if authority.host().is_empty() || !port_is_number(authority) || cut_short {
        return Err(problem());
    }
    Ok(uri.path().trim_start_matches('/').to_owned())
}

/// The path of an address with several hosts.
fn many_hosts(rest: &str) -> Result<&str, Problem> {
    let problem = || Problem::new("is not a list of hosts").hint("write redis+cluster://HOST:PORT,HOST:PORT");
    let rest = rest.strip_prefix("//").ok_or_else(problem)?;
    let (authority, path) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let fine = |host: &str| host.parse().is_ok_and(|host| port_is_number(&host));
    if hosts.split(',').all(fine) && !path.contains('@') { Ok(path) } else { Err(problem()) }
}

/// Whether what stands after the host's colon, if anything, is a port.
pub(super) fn port_is_number(authority: &http::uri::Authority) -> bool {
    let host_and_port = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, rest)| rest);
    host_and_port == authority.host() || authority.port_u16().is_some()
}
