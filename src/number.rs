//! Decimal numbers compared exactly: pure functions over the token a sender wrote, never a float, never expanded.

use std::cmp::Ordering;
use std::fmt;
use std::iter;

/// A number in the one form that all its spellings share: `digits` × 10^`exponent`.
///
/// Two tokens name the same number exactly when their `Number`s are equal: `100`, `1e2` and `100.0` are one, `-0` is `0`, and
/// 9007199254740992 differs from 9007199254740993. It is never longer than its token by more than the digits of a length.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// Below zero. Zero is never negative.
    pub negative: bool,
    /// Decimal digits without zeros at either end; `0` for zero.
    pub digits: String,
    /// The power of ten, a decimal integer with a `-` where negative and no leading zeros. Text, since a token may name a
    /// power that no machine integer holds.
    pub exponent: String,
}

impl fmt::Display for Number {
    /// The one spelling of the number, itself a JSON number: `-125e-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}e{}", if self.negative { "-" } else { "" }, self.digits, self.exponent)
    }
}

/// The exact value of a JSON number token; nothing when it is none by RFC 8259 (`+1`, `01`, `.5`, `1.`, `NaN`).
pub fn canonical_number(token: &str) -> Option<Number> {
    let (negative, rest) = strip_minus(token);
    let (mantissa, power) = match rest.split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, Power::parse(power)?),
        None => (rest, Power::default()),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, digits_only(fraction)?),
        None => (mantissa, ""),
    };
    if digits_only(whole)?.len() > 1 && whole.starts_with('0') {
        return None;
    }

    let all = format!("{whole}{fraction}");
    let without_tail = all.trim_end_matches('0');
    let digits = without_tail.trim_start_matches('0');
    if digits.is_empty() {
        return Some(Number { negative: false, digits: "0".to_owned(), exponent: "0".to_owned() });
    }
    let tail = all.len() - without_tail.len();
    let exponent = power.plus(&Power::of(tail, false)).plus(&Power::of(fraction.len(), true));
    Some(Number { negative, digits: digits.to_owned(), exponent: exponent.into_text() })
}

fn strip_minus(text: &str) -> (bool, &str) {
    text.strip_prefix('-').map_or((false, text), |rest| (true, rest))
}

/// The text itself when it is one or more ASCII digits.
fn digits_only(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// A whole number of any size. `magnitude` holds its digits with the least one first and no zeros at the end; empty is zero.
#[derive(Default)]
struct Power {
    negative: bool,
    magnitude: Vec<u8>,
}

impl Power {
    /// From what stands after the `e`: an optional sign, then digits.
    fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = strip_minus(text);
        let digits = if negative { rest } else { rest.strip_prefix('+').unwrap_or(rest) };
        let magnitude = digits_only(digits)?.trim_start_matches('0').bytes().rev().map(|byte| byte - b'0').collect();
        Some(Self { negative, magnitude })
    }

    fn of(length: usize, negative: bool) -> Self {
        let places = iter::successors(Some(length), |rest| Some(rest / 10)).take_while(|rest| *rest > 0);
        Self { negative, magnitude: places.map(|rest| (rest % 10) as u8).collect() }
    }

    fn plus(&self, other: &Self) -> Self {
        if self.negative == other.negative {
            return Self { negative: self.negative, magnitude: sum(&self.magnitude, &other.magnitude) };
        }
        match compare(&self.magnitude, &other.magnitude) {
            Ordering::Less => {
                Self { negative: other.negative, magnitude: difference(&other.magnitude, &self.magnitude) }
            }
            Ordering::Equal => Self::default(),
            Ordering::Greater => {
                Self { negative: self.negative, magnitude: difference(&self.magnitude, &other.magnitude) }
            }
        }
    }

    fn into_text(self) -> String {
        if self.magnitude.is_empty() {
            return "0".to_owned();
        }
        let sign = self.negative.then_some('-');
        sign.into_iter().chain(self.magnitude.iter().rev().map(|digit| char::from(b'0' + digit))).collect()
    }
}

fn compare(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.iter().rev().cmp(right.iter().rev()))
}

/// Digit pairs of two magnitudes, least first, as long as the longer.
fn pairs<'a>(left: &'a [u8], right: &'a [u8]) -> impl Iterator<Item = (u8, u8)> + 'a {
    let digit = |of: &[u8], place: usize| of.get(place).copied().unwrap_or(0);
    (0..left.len().max(right.len())).map(move |place| (digit(left, place), digit(right, place)))
}

fn sum(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut digits: Vec<u8> = pairs(left, right)
        .map(|(one, two)| {
            let here = one + two + carry;
            carry = here / 10;
            here % 10
        })
        .collect();
    digits.extend((carry > 0).then_some(carry));
    digits
}

/// `larger - smaller`; the first must not be the smaller one.
fn difference(larger: &[u8], smaller: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut digits: Vec<u8> = pairs(larger, smaller)
        .map(|(one, two)| {
            let here = 10 + one - two - borrow;
            borrow = u8::from(here < 10);
            here % 10
        })
        .collect();
    while digits.last() == Some(&0) {
        digits.pop();
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::canonical_number;

    fn check(token: &str, expect: Option<(bool, &str, &str)>) {
        let number = canonical_number(token);
        let found = number.as_ref().map(|n| (n.negative, n.digits.as_str(), n.exponent.as_str()));
        assert_eq!(found, expect, "{token}");
    }

    #[test]
    fn spellings_of_one_number_are_equal() {
        for token in ["100", "1e2", "100.0", "1E+2", "10.00e1", "1000e-1", "0.1e3", "1e0002"] {
            check(token, Some((false, "1", "2")));
        }
        for token in ["0", "-0", "0.0", "-0.000", "0e5", "-0E-999999999999999999999999999999"] {
            check(token, Some((false, "0", "0")));
        }
        check("-12.50", Some((true, "125", "-1")));
    }

    #[test]
    fn numbers_beyond_a_float_stay_apart() {
        assert_ne!(canonical_number("9007199254740992"), canonical_number("9007199254740993"));
        assert_ne!(canonical_number("1e400"), canonical_number("1e401"));
        assert_ne!(canonical_number("0.1"), canonical_number("0.1000000000000000055511151231257827"));
        assert_ne!(canonical_number("1"), canonical_number("-1"));
    }

    #[test]
    fn powers_that_no_machine_integer_holds_are_exact() {
        check("1e999999999999999999999", Some((false, "1", "999999999999999999999")));
        check("10e999999999999999999999", Some((false, "1", "1000000000000000000000")));
        check("0.1e1000000000000000000000", Some((false, "1", "999999999999999999999")));
        check("10e-1000000000000000000000", Some((false, "1", "-999999999999999999999")));
        check("0.1e-999999999999999999999", Some((false, "1", "-1000000000000000000000")));
    }

    #[test]
    fn only_json_number_tokens_are_numbers() {
        let not = ["", "-", "+1", "01", "-01", "00", ".5", "1.", "1.e2", "1e", "1e+", "1e--1", "1e+-1", "1e1.0", "NaN"];
        for token in not.into_iter().chain(["Infinity", "0x10", "1_000", " 1", "1 ", "1.2.3", "1e2e3", "--1", "١"]) {
            check(token, None);
        }
    }

    proptest! {
        /// Moving the decimal point and the power together, or adding zeros, never changes the number.
        #[test]
        fn moving_the_point_keeps_the_number(
            value in any::<i64>(), shift in 0_usize..40, zeros in 0_usize..40, power in any::<i32>(),
        ) {
            let sign = if value < 0 { "-" } else { "" };
            let digits = value.unsigned_abs().to_string();
            let plain = canonical_number(&format!("{sign}{digits}e{power}")).unwrap();

            let padded = format!("{digits:0>width$}", width = shift + 1);
            let (whole, fraction) = padded.split_at(padded.len() - shift);
            let whole = match whole.trim_start_matches('0') { "" => "0", rest => rest };
            let tail = "0".repeat(zeros);
            let point = if shift + zeros > 0 { "." } else { "" };
            let moved = format!("{sign}{whole}{point}{fraction}{tail}e{}", i64::from(power) + shift as i64);
            prop_assert_eq!(canonical_number(&moved), Some(plain.clone()));

            let lower = i64::from(power) - zeros as i64;
            prop_assert_eq!(canonical_number(&format!("{sign}{digits}{tail}e{lower}")), Some(plain));
        }

        /// Whole numbers are equal exactly when their canonical forms are.
        #[test]
        fn distinct_numbers_have_distinct_forms(one in any::<i64>(), two in any::<i64>()) {
            let form = |value: i64| canonical_number(&value.to_string()).unwrap();
            prop_assert_eq!(form(one) == form(two), one == two);
            prop_assert_ne!(form(one), canonical_number(&format!("{one}.5")).unwrap());
        }

        /// The canonical form, written as a token, is its own canonical form.
        #[test]
        fn the_form_is_stable(token in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,60})?") {
            let number = canonical_number(&token).unwrap();
            let sign = if number.negative { "-" } else { "" };
            let again = format!("{sign}{}e{}", number.digits, number.exponent);
            prop_assert_eq!(canonical_number(&again), Some(number));
        }
    }
}
