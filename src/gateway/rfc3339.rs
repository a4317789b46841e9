//! Times for people and APIs: RFC 3339 in UTC. Pure.

use std::time::Duration;

use crate::event::Timestamp;

const DAY_S: u64 = 86_400;

/// `2026-12-01T00:35:45.123456Z`.
pub fn write(at: Timestamp) -> String {
    let (seconds, micros) = (at.as_micros() / 1_000_000, at.as_micros() % 1_000_000);
    let (days, second) = (seconds / DAY_S, seconds % DAY_S);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Reads what [`write`] writes, and any other offset and fraction; none for what is no such time, or one before 1970.
pub fn read(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-').map(|part| (part.len(), number(part)));
    let (Some((4, year)), Some((2, month)), Some((2, day))) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let days = days(year?, month?, day?)?;
    let at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(at);
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.splitn(3, ':').map(|part| (part.len(), number(part)));
    let (Some((2, hour)), Some((2, minute)), Some((2, second))) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let (hour, minute, second) = (hour?, minute?, second?);
    if hour > 23 || minute > 59 || second > 60 || fraction.is_empty() {
        return None;
    }
    number(fraction.get(..fraction.len().min(6))?)?;
    let micros = number(&format!("{:0<6}", fraction.get(..fraction.len().min(6))?))?;
    let local = i64::try_from(days * DAY_S + hour * 3600 + minute * 60 + second).ok()?;
    let utc = u64::try_from(local - offset_s(zone)?).ok()?;
    Some(Timestamp::from_micros(utc.checked_mul(1_000_000)?.checked_add(micros)?))
}

/// A length of time as people say it: the two largest units.
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours, minutes) = (seconds / DAY_S, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, 0) => format!("{} ms", length.as_millis()),
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn offset_s(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then(|| sign * i64::try_from(hours * 3600 + minutes * 60).unwrap_or_default())
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Year, month and day of a day since 1970-01-01. Years begin in March here, so that the leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// The day since 1970-01-01 of a date that exists.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = days.checked_sub(719_468)?;
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_796_085_345_123_456, "2026-12-01T00:35:45.123456Z"),
        ] {
            assert_eq!(write(Timestamp::from_micros(micros)), text);
            assert_eq!(read(text), Some(Timestamp::from_micros(micros)), "{text}");
        }
        assert_eq!(read("2026-12-01T02:35:45+02:00"), read("2026-12-01T00:35:45Z"));
        assert_eq!(read("2026-11-30T23:05:45.5-01:30"), read("2026-12-01T00:35:45.500000Z"));
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "2026-12-01",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:00:00",
            "2026-12-01T00:00Z",
            "26-12-01T00:00:00Z",
            "2026-12-01T00:00:00+2",
            "1969-12-31T23:59:59Z",
            "2026-12-01T00:00:00.Z",
            "2026-12-01T00:00:00.xZ",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(micros in 0_u64..250_000_000_000_000_000) {
            let at = Timestamp::from_micros(micros);
            prop_assert_eq!(read(&write(at)), Some(at));
        }
    }
}
