//! Any mixture of old, new, foreign and missing sectors is named for what it is.

#![cfg(test)]

use diskproof_wire::ledger::*;
use proptest::prelude::*;

const SECTORS: usize = SLOT / SECTOR;

fn geometry() -> impl Strategy<Value = Geometry> {
    (any::<u64>(), 0..5u64, 1..40u64, prop_oneof![Just(0), any::<u64>()])
        .prop_map(|(id, at, slots, seed)| Geometry { id, offset: at * SLOT as u64, slots, seed })
}

fn encode(geometry: &Geometry, sequence: u64) -> [u8; SLOT] {
    Record::encode(geometry, &Place { sequence, monotonic_ns: sequence, realtime_ns: sequence })
}

/// A slot whose sectors come from the slot's first, second, ... record; None: from none.
fn assemble(geometry: &Geometry, slot: u64, rounds: &[Option<u64>]) -> [u8; SLOT] {
    let mut bytes = [0xA5; SLOT];
    for (number, round) in rounds.iter().enumerate() {
        let sector = number * SECTOR..(number + 1) * SECTOR;
        if let Some(round) = round {
            let sequence = geometry.first_sequence(slot) + round * geometry.slots;
            bytes[sector.clone()].copy_from_slice(&encode(geometry, sequence)[sector]);
        }
    }
    bytes
}

fn rounds() -> impl Strategy<Value = Vec<Option<u64>>> {
    prop_oneof![
        prop::option::of(0..4u64).prop_map(|round| vec![round; SECTORS]),
        prop::collection::vec(prop::option::weighted(0.9, 0..4u64), SECTORS),
        (0..4u64, 0..4u64, 0..=SECTORS).prop_map(|(new, old, cut)| {
            (0..SECTORS).map(|at| Some(if at < cut { new } else { old })).collect()
        }),
    ]
}

/// What the page says of such a slot when its records up to round `promised` were acknowledged.
fn judge(geometry: &Geometry, slot: u64, rounds: &[Option<u64>], promised: Option<u64>) -> Slot {
    let sequence = |round| geometry.first_sequence(slot) + round * geometry.slots;
    let whole = rounds.iter().all(|round| *round == rounds[0]);
    let (any, all) = (rounds.iter().any(Option::is_some), rounds.iter().all(Option::is_some));
    let Some(promised) = promised else {
        return match rounds[0] {
            Some(round) if whole => Slot::Holds(sequence(round)),
            _ if any => Slot::Overwriting,
            _ => Slot::Free,
        };
    };
    let lost = |loss| Slot::Lost { expected: sequence(promised), loss };
    match rounds[0] {
        Some(round) if whole && round >= promised => Slot::Holds(sequence(round)),
        Some(_) if whole => lost(Loss::Stale),
        _ if !any => lost(Loss::Missing),
        _ if all && rounds.iter().flatten().all(|&round| round >= promised) => Slot::Overwriting,
        _ => lost(Loss::Torn),
    }
}

proptest! {
    #[test]
    fn each_slot_has_its_sequences(geometry in geometry(), round in 0..1000u64) {
        let mut seen: Vec<u64> =
            (1..=geometry.slots).map(|turn| geometry.slot_of(round * geometry.slots + turn)).collect();
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..geometry.slots));
        for slot in 0..geometry.slots {
            let first = geometry.first_sequence(slot);
            prop_assert!((1..=geometry.slots).contains(&first));
            prop_assert_eq!(geometry.slot_of(first + round * geometry.slots), slot);
            prop_assert_eq!(geometry.last_sequence(slot, first - 1), None);
            let last = first + round * geometry.slots;
            for after in [0, geometry.slots - 1] {
                prop_assert_eq!(geometry.last_sequence(slot, last + after), Some(last));
            }
        }
    }

    #[test]
    fn large_ledgers_have_an_inverse(slots in 1..=MAX_SLOTS, seed: u64, turn: u64) {
        let geometry = Geometry { id: 1, offset: 0, slots, seed };
        let sequence = turn % slots + 1;
        prop_assert_eq!(geometry.first_sequence(geometry.slot_of(sequence)), sequence);
    }

    #[test]
    fn every_mixture_of_sectors_is_named(
        geometry in geometry(),
        contents in prop::collection::vec((rounds(), 0..5u64), 40),
        promised in prop::option::of(0..3u64),
    ) {
        let acknowledged = promised.map_or(0, |round| (round + 1) * geometry.slots);
        let mut disk = vec![0; geometry.position(0) as usize];
        let mut report = Report { acknowledged, ..Report::default() };
        for (slot, (rounds, _)) in (0..geometry.slots).zip(&contents) {
            let bytes = assemble(&geometry, slot, rounds);
            disk.extend_from_slice(&bytes);
            let expected = judge(&geometry, slot, rounds, promised);
            prop_assert_eq!(check_slot(&geometry, slot, acknowledged, &bytes), expected);
            report.take(expected);
        }
        prop_assert_eq!(report.lost, report.missing + report.stale + report.torn + report.misplaced);
        prop_assert_eq!(verify(&mut &disk[..], &geometry, acknowledged).unwrap(), report);
    }

    #[test]
    fn no_changed_byte_passes(geometry in geometry(), at in 0..SLOT, flip in 1..=255u8, slot: u64) {
        let slot = slot % geometry.slots;
        let sequence = geometry.first_sequence(slot);
        let mut bytes = encode(&geometry, sequence);
        bytes[at] ^= flip;
        let lost = Slot::Lost { expected: sequence, loss: Loss::Torn };
        prop_assert_eq!(check_slot(&geometry, slot, sequence, &bytes), lost);
    }

    #[test]
    fn a_record_elsewhere_or_of_another_ledger_is_a_loss(
        geometry in geometry(), other: u64, slot: u64, away in 1..40u64,
    ) {
        let slot = slot % geometry.slots;
        let sequence = geometry.first_sequence(slot);
        let foreign = encode(&Geometry { id: other, ..geometry }, sequence);
        if other != geometry.id {
            let lost = Slot::Lost { expected: sequence, loss: Loss::Missing };
            prop_assert_eq!(check_slot(&geometry, slot, sequence, &foreign), lost);
        }
        let elsewhere = (slot + away) % geometry.slots;
        if elsewhere != slot {
            let bytes = encode(&geometry, geometry.first_sequence(elsewhere));
            let lost = Slot::Lost { expected: sequence, loss: Loss::Misplaced };
            prop_assert_eq!(check_slot(&geometry, slot, sequence, &bytes), lost);
        }
    }

    #[test]
    fn acknowledgements_come_back(geometry in geometry(), sequence: u64) {
        for told in [
            Acknowledgement::begin(geometry),
            Acknowledgement { id: geometry.id, sequence, geometry: None },
        ] {
            prop_assert_eq!(Acknowledgement::parse(told.to_string().as_bytes()), Some(told));
        }
    }
}

/// The slot after 40 bytes that say whose ledger it should be; its checksum is set right, which
/// keeps no record that a writer did not write.
#[test]
fn any_slot_is_a_record_or_none() {
    bolero::check!(name = "ledger-slot").with_max_len(40 + SLOT).for_each(|input: &[u8]| {
        let mut bytes = [0; 40 + SLOT];
        bytes[..input.len()].copy_from_slice(input);
        let (asked, slot) = bytes.split_first_chunk_mut::<40>().unwrap();
        let slot: &mut [u8; SLOT] = slot.try_into().unwrap();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| asked[at + index]));
        let slots = word(16) % MAX_SLOTS + 1;
        let offset = word(8) % (1 << 60);
        let geometry = Geometry { id: word(0), offset, slots, seed: word(24) };
        check_slot(&geometry, word(32) % slots, u64::MAX, slot);
        check_slot(&geometry, word(32) % slots, word(32), slot);
        let checksum = crc32fast::hash(&[&slot[..12], &slot[16..]].concat());
        slot[12..16].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(Record { geometry, place, .. }) = Record::decode(slot) {
            assert_eq!(Record::encode(&geometry, &place), *slot);
        }
        find_geometry(&mut &slot[..], SLOT as u64, None).unwrap();
    });
}

#[test]
fn any_line_is_an_acknowledgement_or_none() {
    bolero::check!(name = "acknowledgement").for_each(|line: &[u8]| {
        if let Some(told) = Acknowledgement::parse(line) {
            let again = told.to_string();
            assert_eq!(Acknowledgement::parse(again.as_bytes()), Some(told));
        }
    });
}
