//! The requests that run beside others, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{kill_process_group, Pid, Signal};

use crate::failure::{Doing, Failure, Outcome};

/// Ids in use; an exec's with its process group once it runs.
#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<HashMap<u64, Option<Pid>>>>);

/// An id in use until this is dropped.
pub struct Job {
    jobs: Jobs,
    pub id: u64,
}

impl Jobs {
    pub fn is_used(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }

    /// Take an id.
    pub fn enter(&self, id: u64) -> Job {
        self.lock().insert(id, None);
        Job { jobs: self.clone(), id }
    }

    /// Signal the process group of a running exec.
    pub fn kill(&self, id: u64, signal: u8) -> Outcome<()> {
        let what = || format!("cannot kill {id}");
        // The lock keeps the job from ending, and its group's number from being used again,
        // meanwhile.
        let jobs = self.lock();
        let group = jobs
            .get(&id)
            .copied()
            .flatten()
            .ok_or_else(|| Failure::new(what(), "no exec with this id is running"))?;
        // SAFETY: the number is one of the kernel's 64 signals, which `Kill` promises, and it is
        // sent to a child only, so that libc's own use of some of them in this process does not
        // matter.
        let signal = unsafe { Signal::from_raw_unchecked(i32::from(signal)) };
        kill_process_group(group, signal).doing(what)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Option<Pid>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    pub fn set_group(&self, group: Pid) {
        self.jobs.lock().insert(self.id, Some(group));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.jobs.lock().remove(&self.id);
    }
}
