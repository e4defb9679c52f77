//! The names of states, and requests, as texts.

#![cfg(test)]

use diskproof_states::choice::{Choice, Reach, StateId, Tear};
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
            prop::option::of((prop::collection::vec(any::<bool>(), 1..64), prop::option::of(0..9u64))),
            1..8,
        ),
        seeds in any::<(u64, u64)>(),
        discard_granularity in prop::option::of(any::<u64>()),
    ) {
        let padded = |(mut bits, end): (Vec<bool>, Option<u64>)| {
            bits.resize(bits.len().next_multiple_of(4), false);
            let reach = match end {
                None => Reach::Whole,
                Some(0) => Reach::Before,
                Some(end) => Reach::Until(end),
            };
            Tear { sectors: bits.into(), reach }
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
            let (fault, sector) = (Fault::LyingDevice, 512);
            let id = StateId { fault, sector, discard_granularity, cut, choice };
            prop_assert_eq!(id.to_string().parse::<StateId>(), Ok(id));
        }
    }
}

#[test]
fn any_name_is_a_state_or_an_error() {
    bolero::check!(name = "state-name").for_each(|text: &[u8]| {
        let Ok(id) = String::from_utf8_lossy(text).parse::<StateId>() else { return };
        assert_eq!(id.to_string().parse::<StateId>(), Ok(id));
    });
}

#[test]
fn any_request_is_taken_or_refused() {
    bolero::check!(name = "request").for_each(|text: &[u8]| {
        let Ok(request) = Request::parse(text) else { return };
        assert!(request.budget.seconds.is_finite() && request.threads != Some(0));
    });
}
