//! How far a sender's timestamp may lie from the gateway's clock.

use crate::{Request, Verdict};

/// A tolerance in whole seconds, at least one: there is no way to say "any time".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    seconds: i64,
}

impl Tolerance {
    /// The longest tolerance, in seconds: 30 days.
    pub const SECONDS_MAX: u64 = 30 * 24 * 60 * 60;

    /// A tolerance of `seconds`; none for zero and for more than [`Self::SECONDS_MAX`].
    pub fn from_seconds(seconds: u64) -> Option<Self> {
        let seconds = (1..=Self::SECONDS_MAX).contains(&seconds).then_some(seconds)?;
        i64::try_from(seconds).ok().map(|seconds| Self { seconds })
    }

    /// A tolerance written as a whole number and `s`, `m`, `h` or `d`.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit_seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => return None,
        };
        Self::from_seconds(digits(number)?.checked_mul(unit_seconds)?)
    }

    /// The verdict on a *signed* timestamp in Unix seconds: verified, or stale by how much. The future counts like the past:
    /// a sender's clock that runs ahead would otherwise make signatures that never age.
    pub fn judge(self, signed_at_s: i64, request: &Request) -> Verdict {
        let now_s = i64::try_from(request.received_at_ms / 1000).unwrap_or(i64::MAX);
        let age = now_s.saturating_sub(signed_at_s);
        if age > self.seconds {
            Verdict::Stale(age.saturating_sub(self.seconds))
        } else if age < -self.seconds {
            Verdict::Stale(age.saturating_add(self.seconds))
        } else {
            Verdict::Verified
        }
    }
}

/// A Unix timestamp of decimal digits only: no sign, no blank, no overflow.
pub fn unix_seconds(text: &str) -> Option<i64> {
    digits(text).and_then(|seconds| i64::try_from(seconds).ok())
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, milliseconds: u64) -> Request {
        Request {
            method: "POST".to_owned(),
            scheme: "https".to_owned(),
            authority: "hooks.example".to_owned(),
            path: "/".to_owned(),
            query: None,
            params: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            received_at_ms: seconds * 1000 + milliseconds,
            client_certificate: None,
        }
    }

    #[test]
    fn both_directions_have_the_same_limit() {
        let tolerance = Tolerance::from_seconds(300).unwrap();
        assert_eq!(tolerance.judge(1000, &at(1300, 999)), Verdict::Verified);
        assert_eq!(tolerance.judge(1000, &at(1301, 0)), Verdict::Stale(1));
        assert_eq!(tolerance.judge(1300, &at(1000, 0)), Verdict::Verified);
        assert_eq!(tolerance.judge(1301, &at(1000, 0)), Verdict::Stale(-1));
        assert_eq!(tolerance.judge(1302, &at(1000, 999)), Verdict::Stale(-2));
        assert_eq!(tolerance.judge(i64::MAX, &at(0, 0)), Verdict::Stale(300 - i64::MAX));
        assert!(matches!(tolerance.judge(0, &at(u64::MAX / 1000, 0)), Verdict::Stale(_)));
    }

    #[test]
    fn a_tolerance_is_never_off() {
        assert_eq!(Tolerance::parse("5m"), Tolerance::from_seconds(300));
        assert_eq!(Tolerance::parse("2h"), Tolerance::from_seconds(7200));
        assert_eq!(Tolerance::parse("30d"), Tolerance::from_seconds(Tolerance::SECONDS_MAX));
        for wrong in [
            "0s",
            "0m",
            "",
            "m",
            "5",
            "-5m",
            "+5m",
            "5.5m",
            "5 m",
            "31d",
            "99999999999999999999s",
            "5µ",
            "9999999999999999d",
        ] {
            assert_eq!(Tolerance::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_timestamp_is_digits_only() {
        assert_eq!(unix_seconds("1790000000"), Some(1_790_000_000));
        for wrong in ["", "+1", "-1", "1.0", " 1", "1 ", "0x1", "9223372036854775808", "99999999999999999999", "１"] {
            assert_eq!(unix_seconds(wrong), None, "{wrong}");
        }
    }
}
