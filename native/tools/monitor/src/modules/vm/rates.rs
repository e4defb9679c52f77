//! What happened between two readings of one guest's counters.

use super::counters::Counters;
use super::guest_flushes::Answer;

/// Everything that is known of a guest at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// CLOCK_MONOTONIC, seconds.
    pub at: f64,
    pub counters: Counters,
    /// Since the counting began; NaN when it is not counted.
    pub host_syncs: f64,
    pub answer: Option<Answer>,
}

/// Percent of one core, bytes and operations a second, milliseconds; NaN is not known (yet).
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub vcpu: f64,
    pub wait: f64,
    pub iothread: f64,
    pub emulator: f64,
    pub read: f64,
    pub write: f64,
    pub host_sync: f64,
    pub guest_flush: f64,
    pub guest_flush_await: f64,
    answered: Option<Answer>,
}

impl Default for Rates {
    fn default() -> Self {
        let unknown = f64::NAN;
        Rates {
            vcpu: unknown,
            wait: unknown,
            iothread: unknown,
            emulator: unknown,
            read: unknown,
            write: unknown,
            host_sync: unknown,
            guest_flush: unknown,
            guest_flush_await: unknown,
            answered: None,
        }
    }
}

impl Rates {
    /// `told_apart`: whether vCPU threads are known from the others.
    pub fn update(&mut self, before: Option<&Reading>, after: &Reading, told_apart: bool) {
        self.update_guest_flushes(after);
        let Some(before) = before else { return };
        let (a, b, span) = (&before.counters, &after.counters, after.at - before.at);
        let rate = |before: f64, after: f64| (after - before).max(0.0) / span;
        let percent = |before, after| keep_nan(before, after, rate(before, after) * 100.0);
        self.vcpu = percent(a.vcpu, b.vcpu);
        self.wait = percent(a.waited, b.waited);
        self.iothread = if told_apart { percent(a.iothread, b.iothread) } else { f64::NAN };
        // The counter of all threads goes in ticks, those of single ones in nanoseconds.
        let rest = percent(a.cpu, b.cpu) - self.vcpu - self.iothread;
        self.emulator = if rest < 0.0 { 0.0 } else { rest };
        self.read = keep_nan(a.read, b.read, rate(a.read, b.read));
        self.write = keep_nan(a.written, b.written, rate(a.written, b.written));
        let (x, y) = (before.host_syncs, after.host_syncs);
        self.host_sync = keep_nan(x, y, rate(x, y));
    }

    /// Answers come at their own pace: a rate stays until the next one.
    fn update_guest_flushes(&mut self, after: &Reading) {
        let Some(answer) = after.answer else {
            (self.guest_flush, self.guest_flush_await) = (f64::NAN, f64::NAN);
            return;
        };
        let Some(before) = self.answered.replace(answer) else { return };
        if before.at == answer.at {
            return;
        }
        let flushes = answer.flushes.count.saturating_sub(before.flushes.count) as f64;
        let waited = answer.flushes.nanoseconds.saturating_sub(before.flushes.nanoseconds) as f64;
        self.guest_flush = flushes / (answer.at - before.at).as_secs_f64();
        self.guest_flush_await = if flushes > 0.0 { waited / flushes / 1e6 } else { f64::NAN };
    }
}

/// `f64::max` takes a number for NaN, which would make "not told" a zero.
fn keep_nan(before: f64, after: f64, value: f64) -> f64 {
    if before.is_nan() || after.is_nan() {
        f64::NAN
    } else {
        value
    }
}
