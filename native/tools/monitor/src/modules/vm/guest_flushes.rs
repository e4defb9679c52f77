//! Asks QEMUs for their guests' flushes beside the sampling, which waits for no QEMU.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use super::qmp::{ask, GuestFlushes, Silence, SocketLists};
use crate::own_cost::seconds;

/// A management tool that wants the socket meanwhile waits for less than a millisecond, at most so
/// often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(900);
/// Many guests are asked less often: at most a thousandth of a core goes there.
const PAUSE_PER_COST: u32 = 1000;
/// Who did not answer is left alone for longer each time.
const FIRST_RESPITE: Duration = Duration::from_secs(5);
const LONGEST_RESPITE: Duration = Duration::from_secs(300);
const STACK: usize = 128 << 10;

/// Number and start of a process.
pub type ProcessKey = (i32, u64);

/// What a QEMU answered, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    pub flushes: GuestFlushes,
    pub at: Instant,
}

/// A QEMU to ask: it is asked on the first of its sockets that answers.
#[derive(Clone, Debug)]
pub struct Asked {
    pub key: ProcessKey,
    pub sockets: Vec<PathBuf>,
}

#[derive(Default)]
struct Answers {
    answers: HashMap<ProcessKey, Answer>,
    /// Processor time of the last round.
    cost: Duration,
}

type Shared = Arc<Mutex<Answers>>;

/// The thread that asks; it ends with this.
pub struct Asker {
    rounds: SyncSender<Vec<Asked>>,
    answers: Shared,
    last: Option<Instant>,
}

impl Asker {
    /// None when no thread can be started.
    pub fn start() -> Option<Self> {
        let (rounds, asked) = sync_channel(1);
        let answers = Shared::default();
        let shared = Arc::clone(&answers);
        let run = move || ask_rounds(&asked, &shared);
        thread::Builder::new().name("qmp".into()).stack_size(STACK).spawn(run).ok()?;
        Some(Asker { rounds, answers, last: None })
    }

    /// Have these asked, unless they just were or the round before still goes on.
    pub fn ask(&mut self, guests: impl FnOnce() -> Vec<Asked>) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last >= self.pause())
            && self.rounds.try_send(guests()).is_ok()
        {
            self.last = Some(now);
        }
    }

    fn pause(&self) -> Duration {
        SHORTEST_PAUSE.max(lock(&self.answers).cost * PAUSE_PER_COST)
    }

    /// The newest answer, unless it is so old that newer ones must have failed; samples are `span`
    /// seconds apart.
    pub fn find(&self, key: ProcessKey, span: f64) -> Option<Answer> {
        let limit = 2.0 * (self.pause().as_secs_f64() + span.max(0.0)) + 0.5;
        let answer = lock(&self.answers).answers.get(&key).copied();
        answer.filter(|answer| answer.at.elapsed().as_secs_f64() < limit)
    }
}

/// When a silent QEMU is asked again, and how long it is left alone after that.
struct Respite {
    until: Instant,
    next: Duration,
}

fn lock(answers: &Shared) -> MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask_rounds(rounds: &Receiver<Vec<Asked>>, answers: &Shared) {
    let mut respites: HashMap<ProcessKey, Respite> = HashMap::new();
    while let Ok(guests) = rounds.recv() {
        let began = seconds(ClockId::ThreadCPUTime);
        let lives = |key: &ProcessKey| guests.iter().any(|guest| guest.key == *key);
        respites.retain(|key, _| lives(key));
        lock(answers).answers.retain(|key, _| lives(key));
        ask_each(&guests, &mut respites, answers);
        let cost = seconds(ClockId::ThreadCPUTime) - began;
        lock(answers).cost = Duration::try_from_secs_f64(cost).unwrap_or_default();
    }
}

fn ask_each(guests: &[Asked], respites: &mut HashMap<ProcessKey, Respite>, answers: &Shared) {
    let mut lists = SocketLists::default();
    for guest in guests {
        if respites.get(&guest.key).is_some_and(|respite| Instant::now() < respite.until) {
            continue;
        }
        match ask_first(guest, &mut lists) {
            Ok(flushes) => {
                respites.remove(&guest.key);
                let answer = Answer { flushes, at: Instant::now() };
                lock(answers).answers.insert(guest.key, answer);
            }
            Err(silence) => leave_alone(respites, guest.key, silence),
        }
    }
}

/// A socket in use costs one look at a list; a QEMU that does not answer costs a wait.
fn leave_alone(respites: &mut HashMap<ProcessKey, Respite>, key: ProcessKey, silence: Silence) {
    let pause = respites.get(&key).map_or(FIRST_RESPITE, |respite| respite.next);
    let next = match silence {
        Silence::InUse => FIRST_RESPITE,
        Silence::NotOurs | Silence::NoAnswer => (pause * 2).min(LONGEST_RESPITE),
    };
    respites.insert(key, Respite { until: Instant::now() + pause, next });
}

fn ask_first(guest: &Asked, lists: &mut SocketLists) -> Result<GuestFlushes, Silence> {
    let mut last = Err(Silence::NotOurs);
    for socket in &guest.sockets {
        last = ask(guest.key.0, socket, lists);
        if last.is_ok() {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_silent_is_left_alone_for_longer_each_time() {
        let (mut respites, key) = (HashMap::new(), (1, 2));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let now = Instant::now();
            leave_alone(&mut respites, key, Silence::NoAnswer);
            pauses.push((respites[&key].until - now).as_secs());
        }
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert_eq!(pauses[8], LONGEST_RESPITE.as_secs());
    }
}
