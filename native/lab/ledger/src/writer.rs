//! The writer: several records under way, a flush after so many of them, an acknowledgement after
//! each flush.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diskproof_wire::ledger::{Acknowledgement, Geometry, Place, Record};
use rustix::time::{clock_gettime, ClockId};

use crate::acks::Acks;
use crate::target::{Block, Durable, Target};

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub geometry: Geometry,
    /// Records under way at once, at least 1.
    pub depth: u64,
    /// Records from one flush to the next, at least 1.
    pub flush_every: u64,
    pub durable: Durable,
    /// Whichever comes first ends it.
    pub records: u64,
    pub seconds: Option<Duration>,
    /// Records a second at most.
    pub rate: Option<f64>,
}

/// What was done.
pub struct Written {
    pub records: u64,
    pub acknowledged: u64,
    pub flushes: u64,
    pub elapsed: Duration,
    /// Why it ended early.
    pub error: Option<io::Error>,
}

struct State {
    /// The next sequence number to write.
    next: u64,
    /// All records up to this one are complete; those complete beyond it.
    complete: u64,
    ahead: BTreeSet<u64>,
    acknowledged: u64,
    flushes: u64,
    writing: u64,
    error: Option<io::Error>,
}

struct Writer<'a> {
    plan: Plan,
    target: &'a dyn Target,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

/// Writes a ledger to its end; the first line of its acknowledgements is there before its first
/// record.
pub fn write(target: &dyn Target, plan: Plan, acks: &mut Acks) -> io::Result<Written> {
    acks.put(&Acknowledgement::begin(plan.geometry))?;
    let writer = Writer {
        plan,
        target,
        began: Instant::now(),
        state: Mutex::new(State {
            next: 1,
            complete: 0,
            ahead: BTreeSet::new(),
            acknowledged: 0,
            flushes: 0,
            writing: plan.depth,
            error: None,
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.depth {
            scope.spawn(|| writer.write_records());
        }
        writer.acknowledge(acks);
    });
    let elapsed = writer.began.elapsed();
    let State { complete, acknowledged, flushes, error, .. } =
        writer.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Written { records: complete, acknowledged, flushes, elapsed, error })
}

impl Writer<'_> {
    /// One of the threads that write.
    fn write_records(&self) {
        while let Some(sequence) = self.take_sequence() {
            if !self.wait_turn(sequence) {
                break;
            }
            let written = self.write_record(sequence);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match written {
                Ok(()) => state.finish(sequence),
                Err(error) => state.fail(error),
            }
            self.changed.notify_all();
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).writing -= 1;
        self.changed.notify_all();
    }

    /// None when there is no more to write.
    fn take_sequence(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over(&state) {
            if state.next <= self.limit(&state) {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn is_over(&self, state: &State) -> bool {
        let late = self.plan.seconds.is_some_and(|seconds| self.began.elapsed() >= seconds);
        late || state.error.is_some() || state.next > self.plan.records
    }

    /// The last record that may be begun: while a flush is under way the next batch is written, no
    /// more, and nothing with a depth of 1; and a slot is not written again before its last record
    /// is complete.
    fn limit(&self, state: &State) -> u64 {
        let Plan { depth, flush_every, .. } = self.plan;
        let meanwhile = if depth > 1 { flush_every.max(depth) } else { 0 };
        let by_flush = state.acknowledged.saturating_add(flush_every).saturating_add(meanwhile);
        by_flush.min(state.complete + self.plan.geometry.slots)
    }

    /// Waits until a record is due; false when that is after the end.
    fn wait_turn(&self, sequence: u64) -> bool {
        let Some(rate) = self.plan.rate else { return true };
        let due = Duration::try_from_secs_f64((sequence - 1) as f64 / rate);
        let due = due.unwrap_or(Duration::MAX);
        if self.plan.seconds.is_some_and(|seconds| due >= seconds) {
            return false;
        }
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        true
    }

    fn write_record(&self, sequence: u64) -> io::Result<()> {
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let place = Place {
            sequence,
            monotonic_ns: monotonic_ns(),
            realtime_ns: realtime.as_nanos() as u64,
        };
        let block = Block(Record::encode(&self.plan.geometry, &place));
        self.target.store(self.plan.geometry.slot_of(sequence), &block, self.plan.durable)
    }

    /// Flushes and acknowledges until all is written.
    fn acknowledge(&self, acks: &mut Acks) {
        while let Some(complete) = self.wait_batch() {
            let flushing = self.plan.durable == Durable::Flush;
            let flushed = if flushing { self.target.flush() } else { Ok(()) };
            let id = self.plan.geometry.id;
            let told = Acknowledgement { id, sequence: complete, geometry: None };
            let result = flushed.and_then(|()| acks.put(&told));
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(()) => state.acknowledged = complete,
                Err(error) => state.fail(error),
            }
            state.flushes += u64::from(flushing);
            self.changed.notify_all();
        }
    }

    /// What the next flush covers; None at the end.
    fn wait_batch(&self) -> Option<u64> {
        let step = if self.plan.durable == Durable::Flush { self.plan.flush_every } else { 1 };
        let ready = |state: &State| {
            let waiting = state.complete - state.acknowledged;
            state.error.is_some() || waiting >= step || state.writing == 0
        };
        let mut state: MutexGuard<'_, State> =
            self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let more = state.error.is_none() && state.complete > state.acknowledged;
        more.then_some(state.complete)
    }
}

impl State {
    fn finish(&mut self, sequence: u64) {
        self.ahead.insert(sequence);
        while self.ahead.remove(&(self.complete + 1)) {
            self.complete += 1;
        }
    }

    /// The first error is the one that is told.
    fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
