//! Who carries requests out: readers, which take them from the kernel, and workers for what waits
//! for the disk.
//!
//! The kernel wakes its readers in turn, so many of them that are idle cost a writer's every
//! request a cold one. A few do, as long as one of them never waits for the disk.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, SendError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

pub struct Crew {
    readers: usize,
    /// Readers that carry out a job themselves.
    held: AtomicUsize,
    /// As many as the kernel has requests under way, at most.
    jobs: Sender<Job>,
}

/// Those who will do the jobs that wait in the queue.
pub struct Workers(Receiver<Job>);

impl Workers {
    /// Starts so many; they end with the crew.
    pub fn start(self, number: usize) -> io::Result<()> {
        let queue = Arc::new(Mutex::new(self.0));
        for number in 0..number {
            let queue = queue.clone();
            let worker = thread::Builder::new().name(format!("worker-{number}"));
            worker.spawn(move || while work(&queue) {})?;
        }
        Ok(())
    }
}

impl Crew {
    pub fn new(readers: usize) -> (Crew, Workers) {
        let (jobs, queue) = channel();
        (Crew { readers, held: AtomicUsize::new(0), jobs }, Workers(queue))
    }

    /// Does what may wait for the disk: here as long as a reader is left, which saves a change of
    /// process, else in a worker.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        if self.held.fetch_add(1, Ordering::Relaxed) + 1 < self.readers {
            job();
            self.held.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.held.fetch_sub(1, Ordering::Relaxed);
            self.hand_over(job);
        }
    }

    /// Leaves it to a worker; does it here when there is none any more.
    pub fn hand_over(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(SendError(job)) = self.jobs.send(Box::new(job)) {
            job();
        }
    }
}

/// One job; false when there will be no more.
fn work(queue: &Mutex<Receiver<Job>>) -> bool {
    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
    next.map(|job| job()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(readers: usize, workers: usize) -> Crew {
        let (crew, waiting) = Crew::new(readers);
        waiting.start(workers).unwrap();
        crew
    }

    #[test]
    fn one_reader_is_always_left() {
        let crew = Arc::new(start(2, 1));
        let (go, wait) = channel::<()>();
        let (tell, told) = channel();
        let holder = {
            let (crew, tell) = (crew.clone(), tell.clone());
            thread::spawn(move || {
                crew.run(move || {
                    tell.send(thread::current().id()).unwrap();
                    wait.recv().unwrap();
                });
            })
        };
        assert_eq!(told.recv().unwrap(), holder.thread().id());
        // The other reader must not be held as well: a worker does it, though the first job still
        // waits.
        crew.run(move || tell.send(thread::current().id()).unwrap());
        let second = told.recv().unwrap();
        assert_ne!(second, thread::current().id());
        assert_ne!(second, holder.thread().id());
        go.send(()).unwrap();
        holder.join().unwrap();
    }

    #[test]
    fn a_lone_job_changes_no_thread() {
        let crew = start(2, 1);
        let (tell, told) = channel();
        for _ in 0..3 {
            let tell = tell.clone();
            crew.run(move || tell.send(thread::current().id()).unwrap());
            assert_eq!(told.recv().unwrap(), thread::current().id());
        }
    }

    #[test]
    fn every_job_is_done_once() {
        let crew = start(1, 3);
        let (tell, told) = channel();
        for number in 0..500 {
            let tell = tell.clone();
            crew.run(move || tell.send(number).unwrap());
        }
        drop(tell);
        let mut done: Vec<u32> = told.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..500).collect::<Vec<_>>());
    }
}
