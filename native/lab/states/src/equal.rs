//! What was found of states, by what their checks had read: a state that gives the same answers to
//! all of it is judged the same, for a check that is told nothing else.
//!
//! A check that always does the same asks first what it asked before, and differs only after an
//! answer that differs. So runs are kept as a tree: one walk, asking a state what is on its way,
//! ends at what is known of it or at a question that nobody had that answer to.

use std::collections::hash_map::{Entry, HashMap};
use std::io;

use crate::reads::Read;

/// Questions with answers that are kept, at most: 16 bytes each, and as much again for the tree.
const MOST_STEPS: usize = 1 << 23;

/// Questions that are asked next after the same answers; a check that asks something else each time
/// is not learnt further.
const MOST_FORKS: usize = 8;

/// What a run said: 0 kept, 1 lost, 2 corrupt, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: u8,
    pub lost: u64,
}

/// A question, by its number, and the answer.
type Step = (u32, u64);

/// Runs that begin with the same answers.
struct Way {
    steps: Vec<Step>,
    then: Then,
}

enum Then {
    Reply(Reply),
    /// By what was asked next. More than one question: the order was not the same each time.
    Forks(Vec<Fork>),
}

struct Fork {
    question: u32,
    ways: HashMap<u64, Way>,
}

/// The runs of one check.
#[derive(Default)]
pub struct Equals {
    questions: Vec<Read>,
    numbers: HashMap<Read, u32>,
    root: Option<Way>,
    steps: usize,
}

/// Whether a run fits to those that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    Fits,
    /// Another was answered the same, and said something else.
    Contradicts,
}

impl Equals {
    /// What is known of a state, by its answers; None: a run must tell.
    pub fn recall(
        &self,
        mut ask: impl FnMut(&Read) -> io::Result<u64>,
    ) -> io::Result<Option<Reply>> {
        let mut answers: HashMap<u32, u64> = HashMap::new();
        let mut answer = |question: u32| match answers.get(&question) {
            Some(&known) => Ok(known),
            None => {
                let given = ask(&self.questions[question as usize])?;
                answers.insert(question, given);
                io::Result::Ok(given)
            }
        };
        let mut open: Vec<&Way> = self.root.iter().collect();
        'ways: while let Some(way) = open.pop() {
            for &(question, expected) in &way.steps {
                if answer(question)? != expected {
                    continue 'ways;
                }
            }
            match &way.then {
                Then::Reply(reply) => return Ok(Some(*reply)),
                Then::Forks(forks) => {
                    for fork in forks.iter().rev() {
                        open.extend(fork.ways.get(&answer(fork.question)?));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Adds a run: what it was answered, each question once.
    pub fn learn(&mut self, run: Vec<(Read, u64)>, reply: Reply) -> Learnt {
        if self.steps + run.len() > MOST_STEPS {
            return Learnt::Fits;
        }
        let run = run.into_iter().map(|(read, answer)| (self.number(read), answer)).collect();
        let left = Left::new(run);
        match &mut self.root {
            Some(root) => root.add(left, reply, &mut self.steps),
            None => {
                self.root = Some(left.into_way(reply, &mut self.steps));
                Learnt::Fits
            }
        }
    }

    fn number(&mut self, read: Read) -> u32 {
        if let Some(&known) = self.numbers.get(&read) {
            return known;
        }
        let number = self.questions.len() as u32;
        self.questions.push(read.clone());
        self.numbers.insert(read, number);
        number
    }
}

impl Way {
    fn add(&mut self, mut left: Left, reply: Reply, steps: &mut usize) -> Learnt {
        let mut way = self;
        loop {
            for at in 0..way.steps.len() {
                let (question, expected) = way.steps[at];
                if left.is_empty() {
                    return way.agree(reply);
                }
                let answer = left.take(question);
                if answer != Some(expected) {
                    way.split(at, answer, left, reply, steps);
                    return Learnt::Fits;
                }
            }
            let forks = match &mut way.then {
                Then::Reply(known) if *known == reply => return Learnt::Fits,
                Then::Reply(_) => return Learnt::Contradicts,
                Then::Forks(forks) => forks,
            };
            if left.is_empty() {
                return agree(forks, reply);
            }
            let Some(at) = forks.iter().position(|fork| left.has(fork.question)) else {
                if forks.len() < MOST_FORKS {
                    forks.extend(left.into_fork(reply, steps));
                }
                return Learnt::Fits;
            };
            let fork = &mut forks[at];
            let Some(answer) = left.take(fork.question) else { return Learnt::Fits };
            match fork.ways.entry(answer) {
                Entry::Occupied(known) => way = known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(left.into_way(reply, steps));
                    return Learnt::Fits;
                }
            }
        }
    }

    /// Here a run was answered otherwise, or asked something else (None).
    fn split(
        &mut self,
        at: usize,
        answer: Option<u64>,
        left: Left,
        reply: Reply,
        steps: &mut usize,
    ) {
        let rest = self.steps.split_off(at + 1);
        let Some((question, expected)) = self.steps.pop() else { return };
        self.steps.shrink_to_fit();
        let then = std::mem::replace(&mut self.then, Then::Forks(Vec::new()));
        let mut ways = HashMap::from([(expected, Way { steps: rest, then })]);
        let mut forks = Vec::new();
        match answer {
            Some(answer) => {
                ways.insert(answer, left.into_way(reply, steps));
                forks.push(Fork { question, ways });
            }
            None => {
                forks.push(Fork { question, ways });
                forks.extend(left.into_fork(reply, steps));
            }
        }
        self.then = Then::Forks(forks);
    }

    /// A run that was answered the same and asked no more must have said the same.
    fn agree(&self, reply: Reply) -> Learnt {
        match &self.then {
            Then::Reply(known) if *known == reply => Learnt::Fits,
            Then::Reply(_) => Learnt::Contradicts,
            Then::Forks(forks) => agree(forks, reply),
        }
    }
}

fn agree(forks: &[Fork], reply: Reply) -> Learnt {
    let mut open: Vec<&Way> = forks.iter().flat_map(|fork| fork.ways.values()).collect();
    while let Some(way) = open.pop() {
        match &way.then {
            Then::Reply(known) if *known != reply => return Learnt::Contradicts,
            Then::Reply(_) => {}
            Then::Forks(forks) => open.extend(forks.iter().flat_map(|fork| fork.ways.values())),
        }
    }
    Learnt::Fits
}

/// What of a run is not on the way yet.
struct Left {
    order: Vec<Step>,
    answers: HashMap<u32, u64>,
}

impl Left {
    fn new(order: Vec<Step>) -> Left {
        let answers = order.iter().copied().collect();
        Left { order, answers }
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn has(&self, question: u32) -> bool {
        self.answers.contains_key(&question)
    }

    fn take(&mut self, question: u32) -> Option<u64> {
        self.answers.remove(&question)
    }

    fn into_way(mut self, reply: Reply, count: &mut usize) -> Way {
        self.order.retain(|(question, _)| self.answers.contains_key(question));
        *count += self.order.len();
        self.order.shrink_to_fit();
        Way { steps: self.order, then: Then::Reply(reply) }
    }

    /// None of an empty run.
    fn into_fork(mut self, reply: Reply, count: &mut usize) -> Option<Fork> {
        let first = self.order.iter().find(|(question, _)| self.has(*question));
        let (question, answer) = first.copied()?;
        self.take(question);
        let ways = HashMap::from([(answer, self.into_way(reply, count))]);
        Some(Fork { question, ways })
    }
}
