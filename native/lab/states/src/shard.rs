//! One part of an exploration that is cut into several, each in a process of its own, wherever log
//! and base are.
//!
//! Every part builds all states, in the same order, and checks those whose content and promise fall
//! to it. So the parts check what one exploration would, each state once, whatever the cuts that it
//! can be built at.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Parts of one exploration, at most.
const MAX_PARTS: u64 = 1 << 16;

/// The part `number` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    number: u64,
    of: u64,
}

impl Shard {
    /// Whether a state falls to this part; its key is spread over all numbers.
    pub fn has(self, key: u64) -> bool {
        let part = (u128::from(key) * u128::from(self.of)) >> 64;
        part as u64 == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/');
        let read = |text: &str| text.parse::<u64>().ok();
        let parts = parts.and_then(|(number, of)| Some((read(number)?, read(of)?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) && of <= MAX_PARTS => {
                Ok(Shard { number, of })
            }
            _ => Err(format!("shard {text:?} is not K/N, K in 1 to N, N at most {MAX_PARTS}")),
        }
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Shard, MAX_PARTS};

    proptest! {
        #[test]
        fn every_key_falls_to_one_part(key: u64, of in 1..300u64) {
            let parts = (1..=of).map(|number| format!("{number}/{of}").parse::<Shard>().unwrap());
            prop_assert_eq!(parts.filter(|part| part.has(key)).count(), 1);
        }

        #[test]
        fn what_is_written_is_read(number in 1..1000u64, more in 0..1000u64) {
            let text = format!("{number}/{}", number + more);
            prop_assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }

        #[test]
        fn other_text_is_an_error(text in "[0-9/-]{0,8}") {
            let fits = |(a, b): (&str, &str)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?));
            let fits = text.split_once('/').and_then(fits).is_some_and(|(a, b)| 1 <= a && a <= b && b <= MAX_PARTS);
            prop_assert_eq!(text.parse::<Shard>().is_ok(), fits && !text.contains('-'));
        }
    }
}
