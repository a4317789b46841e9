//! Single values: text, numbers, durations, sizes, rates, addresses. Each parser says what would be right.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use ipnet::IpNet;

use super::fault::Problem;
use super::model::{Rate, TimeShare};

type Parsed<T> = Result<T, Problem>;

/// Nobody means more than a century, and sums of two such still fit everywhere.
const DAYS_MAX: u64 = 36_500;
const DAY: Duration = Duration::from_hours(24);
/// As long as a DNS label.
const NAME_MAX: usize = 63;
/// How much of a wrong value a fault repeats, in characters.
const QUOTE_MAX: usize = 60;

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "text",
        Value::Bool(..) => "true or false",
        Value::Num(..) => "a number",
        Value::Empty(..) => "nothing",
        Value::Dict(..) => "a table",
        Value::Array(..) => "a list",
    }
}

/// The known word that was probably meant.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.into_iter().map(|key| (strsim::damerau_levenshtein(word, key), key));
    scored.filter(|(distance, key)| *distance <= key.len().max(3) / 3).min().map(|(_, key)| key)
}

/// A wrong text as a fault repeats it.
pub(super) fn quote(text: &str) -> String {
    if text.chars().count() <= QUOTE_MAX {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(QUOTE_MAX).collect::<String>())
}

/// Any text.
pub(super) fn text(value: &Value) -> Parsed<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| Problem::new(format!("expected text, found {}", kind(value))))
}

/// Text that is not empty.
pub(super) fn some_text(value: &Value) -> Parsed<String> {
    match text(value)? {
        text if text.trim().is_empty() => Err(Problem::new("is empty")),
        text => Ok(text),
    }
}

/// `true` or `false`.
pub(super) fn flag(value: &Value) -> Parsed<bool> {
    value.to_bool().ok_or_else(|| Problem::new(format!("expected true or false, found {}", kind(value))))
}

/// A whole number from 1.
pub(super) fn count(value: &Value) -> Parsed<usize> {
    let problem = || match value.to_i128() {
        Some(number) => Problem::new(format!("{number} is out of range")).hint("write a whole number from 1"),
        None => Problem::new(format!("expected a whole number, found {}", kind(value))),
    };
    value
        .to_i128()
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| *number > 0)
        .map_or_else(|| Err(problem()), |number| usize::try_from(number).map_err(|_| problem()))
}

/// As [`count`], narrower.
pub(super) fn count_u32(value: &Value) -> Parsed<u32> {
    u32::try_from(count(value)?).map_err(|_| Problem::new("is too large"))
}

/// The name of a tenant, a route, a scope, an upstream.
pub(super) fn name(value: &Value) -> Parsed<String> {
    let text = text(value)?;
    if is_name(&text) { Ok(text) } else { Err(bad_name(&text)) }
}

/// Whether a tenant, a route, a scope, an upstream or a plugin may be called so.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

pub(super) fn bad_name(text: &str) -> Problem {
    Problem::new(format!("{} is not a name", quote(text))).hint("write 1 to 63 of a-z, 0-9, _ and -")
}

/// A duration, zero included.
pub(super) fn duration(value: &Value) -> Parsed<Duration> {
    const HINT: &str = "write a whole number and a unit: \"250ms\", \"30s\", \"5m\", \"4h\" or \"30d\"";
    let Some(text) = value.as_str() else {
        return Err(Problem::new(format!("expected a duration, found {}", kind(value))).hint(HINT));
    };
    let parsed = parse_duration(text).ok_or_else(|| Problem::new(format!("{} is not a duration", quote(text))));
    let parsed = parsed.map_err(|problem| problem.hint(HINT))?;
    if parsed.as_secs() > DAYS_MAX * DAY.as_secs() {
        return Err(Problem::new(format!("{} is too long", quote(text))).hint(format!("at most \"{DAYS_MAX}d\"")));
    }
    Ok(parsed)
}

/// A duration above zero.
pub(super) fn positive(value: &Value) -> Parsed<Duration> {
    match duration(value)? {
        Duration::ZERO => Err(Problem::new("must be longer than zero")),
        duration => Ok(duration),
    }
}

/// Bytes, at least one.
pub(super) fn size(value: &Value) -> Parsed<usize> {
    const HINT: &str = "write bytes as a number, or \"256KiB\", \"1MiB\", \"1GiB\"";
    let bytes = match value.as_str() {
        None => value.to_i128().and_then(|number| usize::try_from(number).ok()),
        Some(text) => parse_size(text),
    };
    let found = || value.as_str().map_or_else(|| kind(value).to_owned(), quote);
    match bytes {
        Some(0) => Err(Problem::new("must be at least one byte")),
        Some(bytes) => Ok(bytes),
        None => Err(Problem::new(format!("expected a size, found {}", found())).hint(HINT)),
    }
}

/// `"500/s"`.
pub(super) fn rate(value: &Value) -> Parsed<Rate> {
    let text = text(value)?;
    let parsed = text.split_once('/').and_then(|(count, per)| {
        let count = digits(count).and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0)?;
        Some(Rate { count, per: unit(per)? })
    });
    parsed.ok_or_else(|| {
        Problem::new(format!("{} is not a rate", quote(&text)))
            .hint("write a whole number from 1 per s, m, h or d: \"500/s\", \"20/h\"")
    })
}

/// `"500ms/s"`.
pub(super) fn time_share(value: &Value) -> Parsed<TimeShare> {
    let text = text(value)?;
    let parsed = text.split_once('/').and_then(|(time, per)| {
        let time = parse_duration(time).filter(|time| !time.is_zero() && *time <= DAY)?;
        Some(TimeShare { time, per: unit(per)? })
    });
    parsed.ok_or_else(|| {
        Problem::new(format!("{} is not a share of time", quote(&text)))
            .hint("write a duration per s, m, h or d: \"500ms/s\"")
    })
}

/// `"127.0.0.1:8080"`.
pub(super) fn address(value: &Value) -> Parsed<SocketAddr> {
    let text = text(value)?;
    text.parse().map_err(|_| {
        Problem::new(format!("{} is not an address to listen on", quote(&text)))
            .hint("write an IP address and a port: \"127.0.0.1:8080\", \"[::]:8080\"")
    })
}

/// `"203.0.113.0/24"`, or one address.
pub(super) fn network(value: &Value) -> Parsed<IpNet> {
    let text = text(value)?;
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(|_| one()).map_err(|_| {
        Problem::new(format!("{} is not a network", quote(&text)))
            .hint("write a CIDR block: \"203.0.113.0/24\", \"2001:db8::/32\"")
    })
}

/// A path that need not exist.
pub(super) fn path(value: &Value) -> Parsed<PathBuf> {
    some_text(value).map(PathBuf::from)
}

/// A file that exists.
pub(super) fn file(value: &Value) -> Parsed<PathBuf> {
    let path = path(value)?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(Problem::new(format!("there is no file {}", quote(&path.display().to_string()))))
    }
}

/// A JSON pointer to something inside a document.
pub(super) fn pointer(value: &Value) -> Parsed<String> {
    let text = text(value)?;
    let escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    if text.starts_with('/') && escapes {
        return Ok(text);
    }
    Err(Problem::new(format!("{} is not a JSON pointer", quote(&text))).hint("write \"/data/id\"; ~ is ~0 and / is ~1"))
}

/// One of a few words.
pub(super) fn word<T: Copy>(choices: &[(&str, T)]) -> impl Fn(&Value) -> Parsed<T> {
    move |value| {
        let text = text(value)?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            Problem::new(format!("{} is not allowed here", quote(&text))).hint(format!("one of: {}", words.join(", ")))
        })
    }
}

/// One of a few statuses.
pub(super) fn status(allowed: &[u16]) -> impl Fn(&Value) -> Parsed<u16> {
    move |value| {
        let found =
            value.to_i128().and_then(|status| u16::try_from(status).ok()).filter(|status| allowed.contains(status));
        found.ok_or_else(|| {
            let allowed: Vec<String> = allowed.iter().map(u16::to_string).collect();
            not_a_status(value).hint(format!("one of: {}", allowed.join(", ")))
        })
    }
}

/// A 4xx.
pub(super) fn client_error(value: &Value) -> Parsed<u16> {
    let found = value.to_i128().and_then(|status| u16::try_from(status).ok());
    found
        .filter(|status| (400..500).contains(status))
        .ok_or_else(|| not_a_status(value).hint("write one from 400 to 499"))
}

fn not_a_status(value: &Value) -> Problem {
    match value.to_i128() {
        Some(status) => Problem::new(format!("the status {status} is not allowed here")),
        None => Problem::new(format!("expected a status, found {}", kind(value))),
    }
}

/// Digits only: no sign, no space, no fraction.
fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let (number, unit) = text.split_at_checked(text.bytes().take_while(u8::is_ascii_digit).count())?;
    Some((digits(number)?, unit))
}

fn parse_duration(text: &str) -> Option<Duration> {
    match split_unit(text)? {
        (number, "ms") => Some(Duration::from_millis(number)),
        (number, word) => number.checked_mul(unit(word)?.as_secs()).map(Duration::from_secs),
    }
}

fn unit(word: &str) -> Option<Duration> {
    match word {
        "s" => Some(Duration::from_secs(1)),
        "m" => Some(Duration::from_mins(1)),
        "h" => Some(Duration::from_hours(1)),
        "d" => Some(DAY),
        _ => None,
    }
}

fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split_unit(text)?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    usize::try_from(number.checked_mul(factor)?).ok()
}
