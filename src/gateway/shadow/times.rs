//! How large a measure was, over any number of calls in little memory: counts by size, which can be added up over replicas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sizes below this are counted exactly; above, each doubling is cut in eight, so that a quantile is at most an eighth too high.
const EXACT: u64 = 16;

/// Counts by size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes(BTreeMap<u16, u64>);

/// What people read of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Half of the calls used no more.
    pub median: u64,
    /// 99 of 100 calls used no more.
    pub p99: u64,
}

impl Sizes {
    /// One more of this size.
    pub fn add(&mut self, size: u64) {
        *self.0.entry(class(size)).or_default() += 1;
    }

    /// All that another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (class, count) in &other.0 {
            *self.0.entry(*class).or_default() += count;
        }
    }

    /// The middle and the tail; zeroes when nothing was counted.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles { median: self.below(50), p99: self.below(99) }
    }

    /// The size that so many of a hundred calls did not exceed.
    fn below(&self, percent: u64) -> u64 {
        let all: u64 = self.0.values().sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.map_or(0, |(class, _)| most(*class))
    }
}

fn class(size: u64) -> u16 {
    let class = if size < EXACT {
        size
    } else {
        let doubling = u64::from(size.ilog2());
        EXACT + (doubling - 4) * 8 + ((size >> (doubling - 3)) & 7)
    };
    u16::try_from(class).unwrap_or(u16::MAX)
}

/// The largest size of a class.
fn most(class: u16) -> u64 {
    let class = u64::from(class);
    if class < EXACT {
        return class;
    }
    let (doubling, eighth) = ((class - EXACT) / 8 + 4, (class - EXACT) % 8);
    let next = u128::from(8 + eighth + 1) << (doubling - 3).min(64);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_found_again_within_an_eighth() {
        for size in (0..200).chain([1_000, 65_535, 65_536, 5_000_000, u64::from(u32::MAX), u64::MAX]) {
            let found = most(class(size));
            assert!(found >= size && found - size <= size / 8, "{size}: {found}");
        }
    }

    #[test]
    fn quantiles_over_two_replicas() {
        let (mut one, mut two) = (Sizes::default(), Sizes::default());
        assert_eq!(one.quantiles(), Quantiles::default());
        (1..=49).for_each(|_| one.add(10));
        (1..=50).for_each(|_| two.add(12));
        two.add(1000);
        one.merge(&two);
        assert_eq!(one.quantiles(), Quantiles { median: 12, p99: 12 });
        one.add(1000);
        assert_eq!(one.quantiles().p99, 1023);
    }
}
