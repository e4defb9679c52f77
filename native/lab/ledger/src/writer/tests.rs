//! What is acknowledged was flushed, and what was flushed was complete; with every depth and batch.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// What happened, in order. A store is complete at its event, a flush covers what was complete when
/// it began.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Stored(u64),
    FlushBegan,
    FlushEnded,
    Acknowledged(u64),
}

#[derive(Default)]
struct Scene {
    events: Mutex<Vec<Event>>,
    storing: Mutex<HashMap<u64, u64>>,
    fail_at: Option<u64>,
}

impl Scene {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Target for Scene {
    fn store(&self, slot: u64, block: &Block, _: Durable) -> io::Result<()> {
        let record = Record::decode(&block.0).unwrap();
        assert_eq!(record.slot, slot);
        let sequence = record.place.sequence;
        assert_eq!(self.storing.lock().unwrap().insert(slot, sequence), None, "two in one slot");
        std::thread::yield_now();
        self.storing.lock().unwrap().remove(&slot);
        if self.fail_at == Some(sequence) {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.note(Event::Stored(sequence));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.note(Event::FlushBegan);
        std::thread::yield_now();
        self.note(Event::FlushEnded);
        Ok(())
    }
}

struct Hearing(Arc<Scene>);

impl Write for Hearing {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let told = Acknowledgement::parse(line.trim_ascii_end()).expect("a line at a time");
        self.0.note(Event::Acknowledged(told.sequence));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let durable = prop_oneof![Just(Durable::Flush), Just(Durable::Fua), Just(Durable::Write)];
    (1..9u64, 1..9u64, 1..20u64, 1..60u64, 0..3u64, durable).prop_map(
        |(depth, flush_every, slots, records, seed, durable)| Plan {
            geometry: Geometry { id: 7, offset: 0, slots, seed },
            depth,
            flush_every,
            durable,
            records,
            seconds: None,
            rate: None,
        },
    )
}

fn run(plan: Plan, fail_at: Option<u64>) -> (Written, Vec<Event>) {
    let scene = Arc::new(Scene { fail_at, ..Scene::default() });
    let mut acks = Acks::new(vec![Box::new(Hearing(scene.clone()))]);
    let written = write(&*scene, plan, &mut acks).unwrap();
    let events = scene.events.lock().unwrap().clone();
    (written, events)
}

/// Replays the events: each promise must rest on a flush that began after all it promises were
/// complete.
fn check_promises(events: &[Event], durable: Durable) {
    let (mut complete, mut began, mut flushed) = (BTreeSet::new(), 0, 0);
    let prefix = |complete: &BTreeSet<u64>| (1..).take_while(|n| complete.contains(n)).count();
    for event in events {
        match event {
            Event::Stored(sequence) => assert!(complete.insert(*sequence), "written twice"),
            Event::FlushBegan => began = prefix(&complete),
            Event::FlushEnded => flushed = began,
            Event::Acknowledged(promised) => {
                let safe = if durable == Durable::Flush { flushed } else { prefix(&complete) };
                assert!(*promised <= safe as u64, "{promised} was promised, {safe} are safe");
            }
        }
    }
}

proptest! {
    #[test]
    fn promises_rest_on_flushes(plan in plan()) {
        let (written, events) = run(plan, None);
        check_promises(&events, plan.durable);
        prop_assert_eq!(written.records, plan.records);
        prop_assert_eq!(written.acknowledged, plan.records);
        prop_assert!(written.error.is_none());
        prop_assert_eq!(events.first(), Some(&Event::Acknowledged(0)));
        prop_assert_eq!(events.last(), Some(&Event::Acknowledged(plan.records)));
        let flushes = events.iter().filter(|event| **event == Event::FlushBegan).count() as u64;
        prop_assert_eq!(written.flushes, flushes);
        if plan.durable == Durable::Flush {
            prop_assert!(flushes <= plan.records.div_ceil(plan.flush_every));
        } else {
            prop_assert_eq!(flushes, 0);
        }
        if plan.depth == 1 && plan.durable == Durable::Flush {
            prop_assert_eq!(flushes, plan.records.div_ceil(plan.flush_every));
        }
    }

    #[test]
    fn a_disk_that_fails_ends_it(plan in plan(), at in 1..60u64) {
        let (written, events) = run(plan, Some(at));
        check_promises(&events, plan.durable);
        prop_assert_eq!(written.error.is_some(), at <= plan.records);
        prop_assert!(written.acknowledged < at || at > plan.records);
    }
}

#[test]
fn who_does_not_listen_ends_it() {
    struct Deaf(u32);
    impl Write for Deaf {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 > 2 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let geometry = Geometry { id: 7, offset: 0, slots: 4, seed: 0 };
    let plan = Plan {
        geometry,
        depth: 2,
        flush_every: 2,
        durable: Durable::Flush,
        records: u64::MAX - 1,
        seconds: None,
        rate: None,
    };
    let scene = Scene::default();
    let written = write(&scene, plan, &mut Acks::new(vec![Box::new(Deaf(0))])).unwrap();
    assert_eq!(written.error.unwrap().kind(), io::ErrorKind::BrokenPipe);
    assert!(written.acknowledged > 0);
}
