use proptest::prelude::*;

use super::*;
use crate::samples::event;

#[test]
fn percentiles_are_within_a_hundredth() {
    let mut tally = Tally::default();
    for index in 1..=10_000 {
        tally.add(&event(1, Call::Fsync, "/a", index * 100_000_000, index * 1_000));
    }
    let latencies = tally.latencies.values().next().expect("one process, one call");
    for (percent, exact) in [(50.0, 5_000_000.0), (99.0, 9_900_000.0), (99.9, 9_990_000.0)] {
        let found = latencies.percentile(percent) as f64;
        assert!((found / exact - 1.0).abs() < 0.01, "{percent}: {found}");
    }
    assert_eq!(latencies.percentile(100.0), 10_000_000);
    assert_eq!(latencies.powers.iter().sum::<u64>(), 10_000);
}

#[test]
fn bytes_between_syncs_start_where_watching_did() {
    let mut tally = Tally::default();
    tally.start_at(7, 1_000);
    for (index, written) in [1_500, 1_500, 2_000].into_iter().enumerate() {
        let call = event(7, Call::Fsync, "/a", index as u64 * 10, 5);
        tally.add(&Event { written: Some(written), ..call });
    }
    let writers = tally.writers_by_name();
    assert_eq!(writers.values().next(), Some(&(3, Some(1_000), 1)));
}

#[test]
fn a_late_look_counts_no_sync_as_empty() {
    let mut tally = Tally::default();
    for start in [0, 10] {
        let call = event(7, Call::Fsync, "/a", start, 5);
        tally.add(&Event { written: Some(64), in_flight: false, ..call });
    }
    assert_eq!(tally.late, 2);
    assert_eq!(tally.writers_by_name().values().next(), Some(&(2, Some(64), 0)));
}

#[test]
fn files_without_number_end_in_one_group() {
    let mut tally = Tally::default();
    for index in 0..MOST_GROUPS as u64 + 10 {
        tally.add(&event(1, Call::Fsync, &format!("/{index}"), index * 10, 1));
    }
    assert_eq!(tally.groups.len(), MOST_GROUPS + 1);
    assert!(tally.files().iter().any(|(file, sums)| &**file == OTHER_FILES && sums.calls == 10));
}

proptest! {
    #[test]
    fn groups_add_up_to_the_whole(
        calls in prop::collection::vec((1i32..4, 0usize..6, "[a-c]", 0u64..1000, 0u64..9), 0..50)
    ) {
        let mut tally = Tally::default();
        for (pid, call, file, start, length) in calls {
            tally.add(&event(pid, crate::event::SYNCS[call], &file, start, length));
        }
        let total: u64 = tally.groups.values().map(|sums| sums.total).sum();
        prop_assert_eq!(total, tally.sums.total);
        prop_assert_eq!(tally.files().iter().map(|(_, sums)| sums.calls).sum::<u64>(), tally.sums.calls);
        prop_assert!(tally.busy.total() <= tally.sums.total);
    }
}
