//! The parameters of a list, each checked by name.

use percent_encoding::percent_decode_str;
use std::time::Duration;

use crate::event::Timestamp;
use crate::gateway::rfc3339;
use crate::idempotency::record::Status;
use crate::store::Filter;

use super::Problem;

/// How many entries a list has unless more are asked for, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// What a list can be about.
const LISTED: [Status; 5] = [Status::Processing, Status::Succeeded, Status::Failed, Status::Unknown, Status::Mismatch];

/// Reads `route`, `state`, `since` and `limit`. `now` is the gateway's clock, for a span of time before it.
///
/// # Errors
/// [`Problem::BadParameter`] names the first one that cannot be read, or that is none of these.
pub(super) fn filter(query: &str, now: Timestamp) -> Result<Filter, Problem> {
    let mut filter = Filter { statuses: LISTED.to_vec(), route: None, since: None, limit: LIMIT };
    for (name, value) in pairs(query) {
        match name.as_str() {
            "route" => filter.route = Some(value),
            "state" => filter.statuses = vec![state(&value)?],
            "since" => filter.since = Some(since(&value, now)?),
            "limit" => filter.limit = limit(&value)?,
            _ => {
                let known = "is no parameter of this list; there are route, state, since and limit";
                return Err(Problem::BadParameter("query", format!("{name:?} {known}")));
            }
        }
    }
    Ok(filter)
}

/// The value of one parameter.
pub(super) fn one(query: &str, name: &str) -> Option<String> {
    pairs(query).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', "%20")).decode_utf8_lossy().into_owned();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), raw_plus(name, value).map_or_else(|| decode(value), str::to_owned))
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

/// A time's offset may stand as it is: in `2026-12-01T00:00:00+01:00` the plus is no blank.
fn raw_plus<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    (name == "since" && !value.contains('%')).then_some(value)
}

fn state(word: &str) -> Result<Status, Problem> {
    Status::parse(word).filter(|status| LISTED.contains(status)).ok_or_else(|| {
        let words = LISTED.map(Status::as_str).join(", ");
        Problem::BadParameter("state", format!("is one of {words}"))
    })
}

fn limit(text: &str) -> Result<usize, Problem> {
    let read = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    read.ok_or_else(|| Problem::BadParameter("limit", format!("is a number from 1 to {LIMIT_MAX}")))
}

/// RFC 3339, Unix seconds, or how long ago: `90s`, `15m`, `1h`, `7d`.
fn since(text: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    let unix = || Some(Timestamp::from_micros(text.parse::<u64>().ok()?.checked_mul(1_000_000)?));
    let ago = || {
        let at = text.find(|c: char| !c.is_ascii_digit())?;
        let (count, unit) = text.split_at(at);
        let unit_s = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        let ago = Duration::from_secs(count.parse::<u64>().ok()?.checked_mul(unit_s)?);
        let micros = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        Some(Timestamp::from_micros(now.as_micros().saturating_sub(micros)))
    };
    rfc3339::read(text).or_else(unix).or_else(ago).ok_or_else(|| {
        let how = "is a time (2026-12-01T00:00:00Z), Unix seconds, or how long ago (90s, 15m, 1h, 7d)";
        Problem::BadParameter("since", how.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_796_085_345_000_000);

    #[test]
    fn times_in_three_forms() {
        let since = |query: &str| filter(query, NOW).unwrap().since.unwrap().as_micros();
        assert_eq!(since("since=2026-12-01T00:35:45Z"), NOW.as_micros());
        assert_eq!(since("since=2026-12-01T01:35:45+01:00"), NOW.as_micros());
        assert_eq!(since("since=2026-12-01T01%3A35%3A45%2B01%3A00"), NOW.as_micros());
        assert_eq!(since("since=1796085345"), NOW.as_micros());
        assert_eq!(since("since=1h"), NOW.as_micros() - 3_600_000_000);
    }

    #[test]
    fn each_bad_parameter_is_named() {
        for (query, name) in [
            ("since=yesterday", "since"),
            ("since=", "since"),
            ("since=1w", "since"),
            ("since=h", "since"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=x", "limit"),
            ("state=done", "state"),
            ("state=alias", "state"),
            ("colour=red", "query"),
        ] {
            let refused = filter(query, NOW);
            assert!(matches!(refused, Err(Problem::BadParameter(named, _)) if named == name), "{query}: {refused:?}");
        }
    }

    #[test]
    fn a_whole_question() {
        let asked = filter("route=pay&state=unknown&limit=7", NOW).unwrap();
        let expected = Filter { statuses: vec![Status::Unknown], route: Some("pay".to_owned()), since: None, limit: 7 };
        assert_eq!(asked, expected);
        assert_eq!(filter("", NOW).unwrap().statuses.len(), 5);
    }
}
