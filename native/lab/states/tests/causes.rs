//! Causes of what ledgers lose, their cures, and flushes that no promise needs.

#![cfg(test)]

mod logs;

use std::borrow::Cow;
use std::sync::Arc;

use diskproof_states::causes::find_causes;
use diskproof_states::causes::lines::{CauseLine, CausesSummary};
use diskproof_states::fault::Fault;
use diskproof_states::operation::{Caller, Kind, Operations};
use diskproof_states::request::Request;
use diskproof_states::run::explore;
use diskproof_states::trace::Trace;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use diskproof_wire::ledger::{Acknowledgement, Geometry, Place, Record, SLOT};
use logs::{entry, Recording, DISK};
use proptest::prelude::*;
use serde_json::json;

const LEDGER: Geometry = Geometry { id: 0x1234, offset: 4096, slots: 16, seed: 7 };

struct Ledger {
    recording: Recording,
    sequence: u64,
}

impl Ledger {
    fn new() -> Ledger {
        let mut ledger = Ledger { recording: Recording::new(&vec![0; 18 * SLOT]), sequence: 0 };
        ledger.say(&Acknowledgement::begin(LEDGER));
        ledger
    }

    fn say(&mut self, said: &Acknowledgement) {
        let text = said.to_string().into_bytes();
        self.recording.add(0, Operation::Acknowledge { text: Cow::Owned(text) });
    }

    fn write(&mut self) {
        self.sequence += 1;
        let place = Place { sequence: self.sequence, monotonic_ns: 1, realtime_ns: 1 };
        let bytes = Record::encode(&LEDGER, &place);
        let offset = LEDGER.position(LEDGER.slot_of(self.sequence));
        let data = Cow::Owned(bytes.to_vec());
        self.recording.add(DISK, Operation::Write { flags: Flags::NONE, offset, data });
    }

    /// Gives its sequence number.
    fn fsync(&mut self, file: u64) -> u64 {
        self.recording.add(file, Operation::Fsync { flags: Flags::NONE })
    }

    fn promise(&mut self) {
        let sequence = self.sequence;
        self.say(&Acknowledgement { id: LEDGER.id, sequence, geometry: None });
    }

    fn request(&mut self) -> Request {
        let (log, base) = self.recording.finish();
        let text = json!({
            "log": log, "base": base, "fault": "power", "threads": 2, "seed": 3, "sector": SLOT,
            "check": {"kind": "ledger", "target": "disk"},
            "budget": {"states": 100_000, "seconds": 600},
        });
        Request::parse(text.to_string().as_bytes()).unwrap()
    }

    fn find(&mut self) -> (Vec<CauseLine>, CausesSummary) {
        find_causes(&self.request()).unwrap()
    }
}

#[test]
fn writes_that_nobody_flushed_are_one_cause_with_its_cure() {
    let mut ledger = Ledger::new();
    for _ in 0..6 {
        ledger.write();
        ledger.promise();
    }
    let (causes, summary) = ledger.find();
    let [cause] = &causes[..] else { panic!("{} causes", causes.len()) };
    let [absent] = &cause.operations[..] else { panic!("one operation is enough") };
    assert_eq!((absent.named.kind, &absent.named.path[..]), (Kind::Write, "disk"));
    assert_eq!((absent.presence, cause.alike), ("missing", 6));
    let cure = cause.cure.as_ref().unwrap();
    assert_eq!((&cure.path[..], cure.works, cure.flushes), ("disk", true, 6));
    assert!(cause.states > 1 && summary.finished);
    assert_eq!(summary.cured, Some(true));
}

/// sync(2) that changes no metadata has the disk flush by POSIX and ext4, and not on XFS.
#[test]
fn what_one_file_system_loses_has_its_cause_and_cure_there() {
    let mut ledger = Ledger::new();
    for _ in 0..3 {
        ledger.write();
        ledger.recording.add(0, Operation::Sync);
        ledger.promise();
    }
    let mut request = ledger.request();
    for fault in [Fault::Power, Fault::PowerExt4, Fault::PowerXfs] {
        request.fault = fault;
        let (causes, summary) = find_causes(&request).unwrap();
        let mut cures = causes.iter().map(|cause| cause.cure.as_ref().unwrap());
        let works = cures.all(|cure| (&cure.path[..], cure.works) == ("disk", true));
        assert_eq!((causes.len(), works), (usize::from(fault == Fault::PowerXfs), true));
        assert_eq!(summary.flushes.all.count > 0, fault == Fault::Power);
    }
}

#[test]
fn a_program_that_is_started_again_and_again_is_one_cause() {
    let mut ledger = Ledger::new();
    let mut first = None;
    for number in 1..=4 {
        ledger.recording.caller = number;
        let (process, thread) = (100 * number, 100 * number + 1);
        let name = Cow::Borrowed(&b"logger"[..]);
        ledger.recording.add(0, Operation::Caller { process, thread, name });
        first.get_or_insert(Caller {
            process,
            thread,
            name: "logger".to_owned(),
            frames: Arc::default(),
            place: 0,
        });
        ledger.write();
        ledger.recording.caller = 0;
        ledger.promise();
    }
    let (causes, _) = ledger.find();
    let [cause] = &causes[..] else { panic!("{} causes", causes.len()) };
    assert_eq!(cause.alike, 4);
    let by = cause.operations[0].named.by.clone().unwrap();
    assert_eq!((by.process + 1, &by.name[..]), (by.thread, "logger"));
    let trace = Trace::load(&ledger.recording.path("log"), None).unwrap();
    let mut told =
        Operations::new(&trace).filter(|named| named.kind == Kind::Write).map(|named| named.by);
    assert_eq!(told.next().unwrap(), first);
    assert!(told.all(|by| by.is_some()));
}

#[test]
fn of_flushes_those_go_that_no_promise_needs() {
    let mut ledger = Ledger::new();
    let mut needless = Vec::new();
    for turn in 0..4 {
        ledger.write();
        ledger.fsync(DISK);
        ledger.promise();
        match turn % 2 {
            0 => needless.push(ledger.fsync(DISK)),
            // Nothing of the directory was promised.
            _ => needless.push(ledger.fsync(ROOT)),
        }
    }
    let (causes, summary) = ledger.find();
    assert!(causes.is_empty() && summary.finished);
    let flushes = summary.flushes;
    assert_eq!((flushes.all.count, flushes.all.needless, flushes.all.unknown), (8, 4, 0));
    assert_eq!(flushes.records, needless);
    assert!(flushes.all.needless_ns > 0 && flushes.all.needless_ns < flushes.all.ns);
}

#[test]
fn of_two_flushes_that_stand_for_each_other_one_goes() {
    let mut ledger = Ledger::new();
    ledger.write();
    ledger.fsync(DISK);
    ledger.fsync(DISK);
    ledger.promise();
    let all = ledger.find().1.flushes.all;
    assert_eq!((all.count, all.alone, all.needless), (2, 2, 1));
}

#[test]
fn a_log_that_keeps_everything_has_no_cause_and_one_without_flushes_none_to_spare() {
    let mut ledger = Ledger::new();
    for _ in 0..4 {
        ledger.write();
        ledger.fsync(DISK);
        ledger.promise();
    }
    let (causes, summary) = ledger.find();
    assert!(causes.is_empty());
    assert_eq!((summary.causes, summary.flushes.all.needless, summary.cured), (0, 0, None));
    let (causes, summary) = Ledger::new().find();
    assert!(causes.is_empty() && summary.flushes.all.count == 0);
}

/// What a check cannot blame on anything missing is not blamed on a change.
#[test]
fn a_promise_before_its_write_has_a_cause_without_an_operation() {
    let mut ledger = Ledger::new();
    ledger.sequence = 1;
    ledger.promise();
    ledger.recording.add(9, Operation::Create(entry(ROOT, 0o100644, 0, b"other")));
    let (causes, _) = ledger.find();
    let [cause] = &causes[..] else { panic!("{} causes", causes.len()) };
    assert!(cause.operations.is_empty() && cause.cure.is_none());
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Write,
    Fsync,
    FsyncOfDirectory,
    Promise,
}

/// A ledger of these steps, and the record of each.
fn made(steps: &[Step]) -> (Ledger, Vec<u64>) {
    let mut ledger = Ledger::new();
    // Base names two files, and the ledger begins.
    let records = (4..).take(steps.len()).collect();
    for step in steps {
        match step {
            Step::Write => ledger.write(),
            Step::Promise => ledger.promise(),
            Step::Fsync => {
                ledger.fsync(DISK);
            }
            Step::FsyncOfDirectory => {
                ledger.fsync(ROOT);
            }
        }
    }
    (ledger, records)
}

fn keeps(steps: &[Step]) -> bool {
    explore(&made(steps).0.request()).unwrap().verdict == "keeps"
}

fn flushed_steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop_oneof![2 => Just(Step::Write), 3 => Just(Step::Fsync), 1 => Just(Step::FsyncOfDirectory)];
    let round = prop::collection::vec(more, 0..4).prop_map(|mut round| {
        round.extend([Step::Fsync, Step::Promise]);
        round
    });
    let rounds = prop::collection::vec(round, 1..4);
    rounds.prop_map(|rounds| [Step::Write].into_iter().chain(rounds.concat()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A log without them keeps everything, and no other can go as well.
    #[test]
    fn what_is_called_needless_is_so_in_a_log_that_never_had_it(steps in flushed_steps()) {
        let (mut ledger, records) = made(&steps);
        let (causes, summary) = ledger.find();
        prop_assert!(causes.is_empty() && summary.finished);
        let needless = summary.flushes.records;
        let without = |more: Option<usize>| -> Vec<Step> {
            let kept = steps.iter().zip(&records).enumerate();
            let kept = kept.filter(|(at, (_, record))| !needless.contains(record) && more != Some(*at));
            kept.map(|(_, (step, _))| *step).collect()
        };
        prop_assert!(keeps(&without(None)), "{:?} without {:?}", steps, needless);
        for (at, (step, record)) in steps.iter().zip(&records).enumerate() {
            let flushes = matches!(step, Step::Fsync | Step::FsyncOfDirectory);
            if flushes && !needless.contains(record) {
                prop_assert!(!keeps(&without(Some(at))), "{:?}: {} can go, too", steps, record);
            }
        }
    }

    /// With the flushes of its cure really in the log a program keeps what it promised.
    #[test]
    fn a_cure_that_is_called_one_is_one(
        steps in prop::collection::vec(prop_oneof![Just(Step::Write), Just(Step::Fsync), Just(Step::Promise)], 1..9),
    ) {
        let steps = [&[Step::Write], &steps[..]].concat();
        let (causes, summary) = made(&steps).0.find();
        prop_assert!(causes.len() <= 1 && summary.finished);
        prop_assert_eq!(causes.is_empty(), keeps(&steps) || !steps.contains(&Step::Promise));
        if let Some(cause) = causes.first() {
            prop_assert!(cause.cure.as_ref().is_some_and(|cure| cure.works));
            let after = |step: &Step| match step {
                Step::Write => vec![Step::Write, Step::Fsync],
                other => vec![*other],
            };
            let cured: Vec<Step> = steps.iter().flat_map(after).collect();
            prop_assert!(keeps(&cured));
        }
    }
}
