//! Addresses that name several hosts, which URLs proper do not.

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, RedisResult};

use super::target::unusable;

/// `[user:password@]host[:port],…[/master[/database]][?tls=true&sentinel_user=…&sentinel_password=…]`, percent-decoded.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) nodes: Vec<(String, u16)>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// The name under which the Sentinels know the master.
    pub(super) master: String,
    pub(super) database: i64,
    pub(super) tls: bool,
    pub(super) sentinel_user: Option<String>,
    pub(super) sentinel_password: Option<String>,
}

impl Address {
    /// Reads what follows the scheme.
    ///
    /// # Errors
    /// Says what is wrong without repeating any of it.
    pub(super) fn parse(rest: &str, default_port: u16) -> RedisResult<Self> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        let (master, database) = path.split_once('/').unwrap_or((path, "0"));
        let mut address = Self {
            nodes: hosts.split(',').map(|host| node(host, default_port)).collect::<RedisResult<_>>()?,
            user: decoded(user)?,
            password: decoded(password)?,
            master: decoded(master)?.unwrap_or_default(),
            database: database.parse().map_err(|_| unusable("the database is not a number"))?,
            tls: false,
            sentinel_user: None,
            sentinel_password: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("tls", "true")) => address.tls = true,
                Some(("tls", "false")) => address.tls = false,
                Some(("sentinel_user", user)) => address.sentinel_user = decoded(user)?,
                Some(("sentinel_password", password)) => address.sentinel_password = decoded(password)?,
                _ => {
                    return Err(unusable("only tls, sentinel_user and sentinel_password may follow the question mark"));
                }
            }
        }
        Ok(address)
    }

    /// How a node is reached.
    pub(super) fn connect_to(&self, (host, port): &(String, u16)) -> ConnectionAddr {
        let host = host.clone();
        if self.tls {
            ConnectionAddr::TcpTls { host, port: *port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, *port)
        }
    }
}

/// A host with or without a port; an IPv6 address stands in brackets.
fn node(text: &str, default_port: u16) -> RedisResult<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| unusable("a port is not a number"))?)
        }
        _ => (text, default_port),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() { Err(unusable("a host is missing")) } else { Ok((host.to_owned(), port)) }
}

fn decoded(text: &str) -> RedisResult<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| Some(text.into_owned())).map_err(|_| unusable("a user, password or name is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read() {
        let address =
            Address::parse("u%40:p%2Fw@a:1,[::1]:2,b/the%20one/3?tls=true&sentinel_password=x%26", 9).unwrap();
        assert_eq!(address.nodes, [("a".to_owned(), 1), ("::1".to_owned(), 2), ("b".to_owned(), 9)]);
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("u@"), Some("p/w")));
        assert_eq!((address.master.as_str(), address.database, address.tls), ("the one", 3, true));
        assert_eq!(address.sentinel_password.as_deref(), Some("x&"));
        let plain = Address::parse("[::1]", 7).unwrap();
        assert_eq!((plain.nodes, plain.user, plain.database), (vec![("::1".to_owned(), 7)], None, 0));
    }

    #[test]
    fn what_cannot_be_read_is_not_repeated() {
        let wrong =
            ["x:y", "", "x,", "x/m/sesame", "x?sesame=1", "x?tls=sesame"].map(|rest| format!("a:sesame@{rest}"));
        for wrong in wrong.iter().map(String::as_str).chain(["sesame%ff@x", "a:b@x/sesame%ff"]) {
            let text = Address::parse(wrong, 1).map(|_| ()).unwrap_err().to_string();
            assert!(!text.contains("sesame"), "{text}");
        }
    }
}
