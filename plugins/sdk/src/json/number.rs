//! One spelling for a number, exactly.

/// The longest number that is written out, in characters; longer ones get an exponent.
const PLAIN_MAX: usize = 64;

/// The one spelling of a JSON number token's value: equal numbers have equal spellings, different ones never. Whole numbers and
/// decimals up to 64 characters are written out (`100`, `-1.5`); beyond that `digits` and `e` with an exponent (`1e400`).
/// None for what is no JSON number, and for an exponent beyond ±10¹².
pub fn canonical(token: &str) -> Option<String> {
    let (negative, unsigned) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !(whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit())) {
        return None;
    }
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let trailing_zeros = digits.len() - digits.trim_end_matches('0').len();
    // The value is `significant` times ten to the `power`.
    let power = power(exponent)?.checked_add(signed(trailing_zeros)?)?.checked_sub(signed(fraction.len())?)?;
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{}", written(significant, power)))
}

fn power(exponent: &str) -> Option<i64> {
    const POWER_MAX: i64 = 1_000_000_000_000;
    exponent.parse().ok().filter(|power| (-POWER_MAX..=POWER_MAX).contains(power))
}

fn signed(length: usize) -> Option<i64> {
    i64::try_from(length).ok()
}

/// `significant` has neither leading nor trailing zeros.
fn written(significant: &str, power: i64) -> String {
    let shift = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
    if shift.saturating_add(significant.len()) > PLAIN_MAX {
        return format!("{significant}e{power}");
    }
    if power >= 0 {
        return format!("{significant}{}", "0".repeat(shift));
    }
    match significant.len().checked_sub(shift) {
        Some(point) if point > 0 => {
            let (whole, fraction) = significant.split_at_checked(point).unwrap_or((significant, ""));
            format!("{whole}.{fraction}")
        }
        _ => format!("0.{}{significant}", "0".repeat(shift - significant.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two spellings of one number are one key.
    #[test]
    fn one_spelling_for_a_value() {
        for (spellings, canonical_form) in [
            (&["1", "1.0", "1e0", "10e-1", "0.1e1", "0.001E+3"][..], "1"),
            (&["0", "-0", "0.0", "0e99999999999999999999", "-0.00"], "0"),
            (&["100", "1e2", "100.0", "1E2"], "100"),
            (&["-1.5", "-15e-1", "-1.50"], "-1.5"),
            (&["0.05", "5e-2", "0.5e-1", "0.050"], "0.05"),
            (&["18446744073709551615"], "18446744073709551615"),
            (&["9007199254740993"], "9007199254740993"),
            (&["1e400", "10e399", "0.1e401"], "1e400"),
            (&["15e-400", "1.5e-399"], "15e-400"),
        ] {
            for spelling in spellings {
                assert_eq!(canonical(spelling).as_deref(), Some(canonical_form), "{spelling}");
            }
        }
        let long = format!("1{}", "0".repeat(400));
        assert_eq!(canonical(&long).as_deref(), Some("1e400"));
        assert_eq!(canonical("1e9999999999999"), None);
        assert_eq!(canonical("1e99999999999999999999"), None);
    }
}
