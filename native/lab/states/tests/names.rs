//! The names of states, and requests, as texts.

#![cfg(test)]

use diskproof_states::choice::{Choice, StateId};
use diskproof_states::fault::Fault;
use diskproof_states::request::Request;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_of_states_are_read_back(
        cut in 0..u64::MAX,
        missing in prop::collection::btree_map(
            any::<u64>(),
            prop::option::of(prop::collection::vec(any::<bool>(), 1..64)),
            1..8,
        ),
        seeds in any::<(u64, u64)>(),
    ) {
        let padded = |mut bits: Vec<bool>| {
            bits.resize(bits.len().next_multiple_of(4), false);
            bits.into()
        };
        let without = missing.into_iter().map(|(at, bits)| (at, bits.map(padded))).collect();
        let choices = [
            Choice::Nothing,
            Choice::Everything,
            Choice::Until(seeds.0),
            Choice::Random(seeds.0, seeds.1),
            Choice::Without(without),
        ];
        for choice in choices {
            let id = StateId { fault: Fault::LyingDevice, sector: 512, cut, choice };
            prop_assert_eq!(id.to_string().parse::<StateId>(), Ok(id));
        }
    }

    #[test]
    fn bad_names_and_requests_are_errors(text in ".{0,80}") {
        let _ = text.parse::<StateId>();
        prop_assert!(Request::parse(text.as_bytes()).is_err());
    }
}
