use super::*;
use crate::event::{Call, Event};
use crate::samples::event;

const MS: u64 = 1_000_000;

/// Syncs of 5 ms with so many bytes between two.
fn tally_of(syncs: u64, bytes: u64) -> Tally {
    let mut tally = Tally::default();
    for index in 0..syncs {
        let call = event(3, Call::Fdatasync, "/wal", index * 6 * MS, 5 * MS);
        tally.add(&Event { written: Some((index + 1) * bytes), ..call });
    }
    tally
}

#[test]
fn small_commits_should_be_grouped() {
    let advice = find_advice(&tally_of(1_600, 5_734), 10_000 * MS);
    assert_eq!(
        advice,
        ["writer: 1,600 syncs of 5.60 KiB: group commits; ten in one would save up to 7.20 s"]
    );
}

#[test]
fn large_batches_need_no_advice() {
    assert_eq!(find_advice(&tally_of(100, 1 << 20), 600 * MS), Vec::<String>::new());
}

#[test]
fn syncs_of_nothing_are_named() {
    let advice = find_advice(&tally_of(100, 0), 600 * MS);
    assert!(advice[0].starts_with("writer: 100 of 100 syncs came with nothing written"));
}

#[test]
fn rare_syncs_are_not_the_problem() {
    let advice = find_advice(&tally_of(100, 100), 1_000_000 * MS);
    assert_eq!(advice, ["syncs take < 0.1 % of the time: look elsewhere"]);
}

#[test]
fn no_sync_at_all_is_worth_a_warning() {
    assert!(find_advice(&Tally::default(), MS)[0].contains("power cut"));
}
