//! When the next sample is due: on a grid of equal distances, or as a recording has it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use diskproof_session::Signals;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

/// Signals that interrupt nothing and are waited for here.
pub const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::WINCH];

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    Due,
    Arrived(Signal),
    /// Nobody reads the standard output any more.
    ReaderGone,
}

pub struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    pub fn new(interval: Duration) -> Self {
        Pace { interval, next: Instant::now() + interval }
    }

    /// Wait for the next tick, a signal, or the end of who reads `output`.
    pub fn wait(&mut self, output: &impl AsFd, signals: &Signals) -> io::Result<Tick> {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            // No event of the output is asked for: what comes is only that the other end was
            // closed.
            let mut ends =
                [PollFd::new(output, PollFlags::empty()), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut ends, Some(&left)) {
                Ok(0) => break,
                Ok(_) if !ends[0].revents().is_empty() => return Ok(Tick::ReaderGone),
                Ok(_) => {
                    if let Some(arrived) = signals.read() {
                        return Ok(Tick::Arrived(arrived.signal));
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.next = next_tick(self.next, Instant::now(), self.interval);
        Ok(Tick::Due)
    }
}

/// The next tick on the grid that is still to come: a stopped machine gets no burst of samples
/// afterwards.
fn next_tick(last: Instant, now: Instant, interval: Duration) -> Instant {
    let missed = now.saturating_duration_since(last).as_nanos() / interval.as_nanos();
    last + interval * u32::try_from(missed + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_the_grid() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        assert_eq!(next_tick(start, start + ms(3), ms(10)), start + ms(10));
        assert_eq!(next_tick(start, start + ms(35), ms(10)), start + ms(40));
        assert_eq!(next_tick(start, start, ms(10)), start + ms(10));
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_wait() {
        let signals = Signals::block(&SIGNALS).unwrap();
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut pace = Pace::new(Duration::from_millis(10));
        assert_eq!(pace.wait(&writer, &signals).unwrap(), Tick::Due);
        drop(reader);
        let mut pace = Pace::new(Duration::from_secs(60));
        assert_eq!(pace.wait(&writer, &signals).unwrap(), Tick::ReaderGone);
    }
}
