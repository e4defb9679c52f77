//! Ticks at equal distances, and an early end when nobody reads any more.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

pub struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    pub fn new(interval_ms: u64) -> Self {
        let interval = Duration::from_millis(interval_ms);
        Pace { interval, next: Instant::now() + interval }
    }

    /// Wait for the next tick (true) or until the reader of `output` is gone (false).
    pub fn wait_for_tick(&mut self, output: &impl AsFd) -> io::Result<bool> {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            // No event is asked for: what comes is only that the other end of a pipe or socket was closed.
            match poll(&mut [PollFd::new(output, PollFlags::empty())], Some(&left)) {
                Ok(0) => break,
                Ok(_) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.next = next_tick(self.next, Instant::now(), self.interval);
        Ok(true)
    }
}

/// The next tick on the grid that is still to come: a stopped machine gets no burst of samples afterwards.
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
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut pace = Pace::new(10);
        assert!(pace.wait_for_tick(&writer).unwrap());
        drop(reader);
        let mut pace = Pace::new(60_000);
        assert!(!pace.wait_for_tick(&writer).unwrap());
    }
}
