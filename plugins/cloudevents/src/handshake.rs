//! Abuse protection: a sender asks by `OPTIONS` whether its events are wanted.

use onceward_plugin::{Header, Reason, Reply, Verdict, header};

pub(crate) const ORIGIN: &str = "webhook-request-origin";
pub(crate) const RATE: &str = "webhook-request-rate";

/// Consent for a sender that the route names, at any rate. `allowed` is in lower case.
pub(crate) fn answer(headers: &[Header], allowed: &[String]) -> Verdict {
    let origin = match header::one(headers, ORIGIN) {
        Ok(Some(origin)) => origin,
        Ok(None) => return Verdict::invalid(Reason::Malformed, format!("no {ORIGIN} header")),
        Err(fault) => return Verdict::invalid(Reason::Malformed, format!("the {ORIGIN} header {}", fault.as_str())),
    };
    let lower = origin.to_ascii_lowercase();
    if !allowed.iter().any(|known| *known == "*" || *known == lower) {
        return Verdict::invalid(Reason::UnknownKey, "the origin is not among allowed_origins");
    }
    let line = |name: &str, value: &str| Header { name: name.to_owned(), value: value.as_bytes().to_vec() };
    let mut lines = vec![line("allow", "POST"), line("webhook-allowed-origin", origin)];
    if header::lines(headers, RATE).next().is_some() {
        lines.push(line("webhook-allowed-rate", "*"));
    }
    Verdict::Respond(Reply { status: 200, headers: lines, body: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &[(&str, &str)], allowed: &[&str]) -> Option<usize> {
        let headers: Vec<_> = lines
            .iter()
            .map(|(name, value)| Header { name: (*name).to_owned(), value: value.as_bytes().to_vec() })
            .collect();
        let allowed: Vec<_> = allowed.iter().map(|text| (*text).to_owned()).collect();
        match answer(&headers, &allowed) {
            Verdict::Respond(reply) => Some(reply.headers.len()),
            _ => None,
        }
    }

    #[test]
    fn only_known_origins_are_answered() {
        assert_eq!(asked(&[(ORIGIN, "A.example")], &["a.example"]), Some(2));
        assert_eq!(asked(&[(ORIGIN, "a.example"), (RATE, "120")], &["*"]), Some(3));
        assert_eq!(asked(&[(ORIGIN, "b.example")], &["a.example"]), None);
        assert_eq!(asked(&[], &["*"]), None);
    }
}
