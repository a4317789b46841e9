//! The request target's raw bytes: nothing that two readers could route in two ways.

/// What a request line's target was found to be, when it is a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// `/path?query`, or `*` for `OPTIONS`.
    Origin,
    /// `http://authority/path?query`; the authority must equal the `Host` field.
    Absolute(&'a [u8]),
}

/// Which escapes a path may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escapes {
    /// None that another reader might take for a separator or a dot: the path goes on to an upstream.
    #[default]
    Plain,
    /// All but NUL: the path is read here alone, split before it is decoded.
    All,
}

/// Checks a target.
///
/// # Errors
/// A text for the sender.
pub(super) fn check<'a>(method: &[u8], target: &'a [u8], escapes: Escapes) -> Result<Target<'a>, &'static str> {
    if target.first() == Some(&b'/') {
        check_path_and_query(target, escapes)?;
        return Ok(Target::Origin);
    }
    if target == b"*" {
        return if method == b"OPTIONS" { Ok(Target::Origin) } else { Err("a target of * is for OPTIONS only") };
    }
    let rest = strip_scheme(target).ok_or("a request target that is neither a path nor an http URI")?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    check_authority(authority)?;
    if !rest.is_empty() {
        check_path_and_query(rest, escapes)?;
    }
    Ok(Target::Absolute(authority))
}

/// Checks host and port as they may stand in `Host`: no user info, no lists, no escapes.
///
/// # Errors
/// A text for the sender.
pub(super) fn check_authority(authority: &[u8]) -> Result<(), &'static str> {
    const BAD: &str = "an invalid host";
    let (host, port) = match authority.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b']').ok_or(BAD)?;
            let (host, rest) = rest.split_at(end);
            if !host.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')) {
                return Err(BAD);
            }
            (host, rest.get(1..).unwrap_or_default())
        }
        None => {
            let end = authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len());
            let (host, rest) = authority.split_at(end);
            if !host.iter().all(|byte| is_unreserved(*byte)) {
                return Err(BAD);
            }
            (host, rest)
        }
    };
    let port_is_good = match port.split_first() {
        None => true,
        Some((b':', digits)) => {
            let text = std::str::from_utf8(digits).unwrap_or_default();
            digits.iter().all(u8::is_ascii_digit) && digits.len() <= 5 && text.parse::<u16>().is_ok()
        }
        Some(_) => false,
    };
    if host.is_empty() || !port_is_good { Err(BAD) } else { Ok(()) }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    })
}

fn check_path_and_query(bytes: &[u8], escapes: Escapes) -> Result<(), &'static str> {
    let end = bytes.iter().position(|byte| *byte == b'?').unwrap_or(bytes.len());
    let (path, query) = bytes.split_at(end);
    if path.first() != Some(&b'/') {
        return Err("a request target without a path");
    }
    check_path(path, escapes)?;
    if !query.iter().all(|byte| is_query(*byte)) {
        return Err("an invalid byte in the query");
    }
    Ok(())
}

/// Some servers decode before they split, some after; some cut a segment at `;`. A path that they would read differently is
/// refused, so that a route chosen here is the route that the upstream sees. `//` and `;` themselves mean what they say.
fn check_path(path: &[u8], escapes: Escapes) -> Result<(), &'static str> {
    let forwarded = escapes == Escapes::Plain;
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (digits, after) = rest.split_at_checked(2).ok_or("an incomplete percent escape in the path")?;
            match digits {
                [b'0', b'0'] => return Err("an escaped NUL in the path"),
                [b'2', b'e' | b'E'] if forwarded => return Err("an escaped dot in the path"),
                [b'2', b'f' | b'F'] if forwarded => return Err("an escaped slash in the path"),
                [b'5', b'c' | b'C'] if forwarded => return Err("an escaped backslash in the path"),
                _ if digits.iter().all(u8::is_ascii_hexdigit) => rest = after,
                _ => return Err("an invalid percent escape in the path"),
            }
        } else if !is_path(*byte) {
            return Err("an invalid byte in the path");
        }
    }
    // `;` is one also where it is escaped: for a server that decodes first.
    let is_dots = |segment: &[u8]| {
        let name = segment.strip_prefix(b"..").or_else(|| segment.strip_prefix(b"."));
        name.is_some_and(|rest| matches!(rest, [] | [b';', ..] | [b'%', b'3', b'b' | b'B', ..]))
    };
    if path.split(|byte| *byte == b'/').any(is_dots) { Err("a dot segment in the path") } else { Ok(()) }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

/// Senders put more into queries than RFC 3986 names; what no parser takes for an end is let through.
fn is_query(byte: u8) -> bool {
    is_path(byte) || b"?%[]{}|^`".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Escapes, Target, check, check_authority};

    /// Scenario 56: what two readers could route in two ways is refused, what is merely unusual passes.
    #[test]
    fn paths_that_could_be_read_in_two_ways_are_refused() {
        let bad = "/a/../b /.. /a/. /a/./b /%2e%2e/b /a%2Fb /a%5cb /a\\b /a%00 /a%0 /a%zz /a#b /a?b#c /a?b\\c /a/..;x/b /a<b /é a * http:/a \
                   ftp://h/ http://u@h/ http:///a http://h\\a http://h?q";
        for target in bad.split_whitespace() {
            assert!(check(b"POST", target.as_bytes(), Escapes::Plain).is_err(), "{target} must be refused");
        }
        for target in "/ // /a//b /a;b=c /%20 /a.b/..c /a?b=%2e%2e/.. /~x/@:!$&'()*+,= /a?x[]={1}|2".split_whitespace()
        {
            assert_eq!(check(b"POST", target.as_bytes(), Escapes::Plain), Ok(Target::Origin), "{target} must pass");
        }
        assert_eq!(check(b"OPTIONS", b"*", Escapes::Plain), Ok(Target::Origin));
        assert_eq!(check(b"POST", b"http://h:80/a?b", Escapes::Plain), Ok(Target::Absolute(b"h:80")));
        assert_eq!(check(b"POST", b"HTTPS://h", Escapes::Plain), Ok(Target::Absolute(b"h")));
    }

    /// Where the path ends here, an escape is a byte of a name; what nobody may send stays refused.
    #[test]
    fn escapes_are_names_where_the_path_ends_here() {
        for target in ["/a%2fb", "/a%5C%7Cb", "/%2e%2E"] {
            assert_eq!(check(b"GET", target.as_bytes(), Escapes::All), Ok(Target::Origin), "{target} must pass");
        }
        for target in ["/a%00", "/../a", "/a%2"] {
            assert!(check(b"GET", target.as_bytes(), Escapes::All).is_err(), "{target} must be refused");
        }
    }

    #[test]
    fn hosts_are_one_name_and_one_port() {
        for host in ["a", "a.b-c_d", "127.0.0.1:8080", "[::1]", "[::1]:80", "a:0"] {
            assert_eq!(check_authority(host.as_bytes()), Ok(()), "{host} must pass");
        }
        for host in [
            "", ":80", "a:", "a:+1", "a:65536", "a:1:2", "u@a", "a,b", "a b", "a/b", "[::1", "[x]", "[::1]x", "a%41",
            "[]",
        ] {
            assert!(check_authority(host.as_bytes()).is_err(), "{host} must be refused");
        }
    }

    proptest! {
        /// The next parser on the way takes everything that passed here: no request dies half-way for its target.
        #[test]
        fn what_passes_is_a_uri(target in "(/|http://h/|https://h:1/)[!-~]{0,40}") {
            if check(b"POST", target.as_bytes(), Escapes::Plain).is_ok() {
                prop_assert!(http::Uri::try_from(target.as_bytes()).is_ok(), "{}", target);
            }
        }
    }
}
