//! Which of the changes that are not durable a crash left: what tells one state of a cut from
//! another.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::fault::Fault;
use diskproof_random::Random;

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    Present,
    Missing,
    /// A write of which a part is there; a truncation or zeros of which the edges are not as the
    /// rest.
    Torn(Tear),
}

/// Which parts of a write are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Counted from its first.
    pub sectors: Arc<[bool]>,
    pub reach: Reach,
}

/// What a torn write makes of the length of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As if all of it were there.
    Whole,
    /// It ends with so many of the write's sectors.
    Until(u64),
    /// Nothing.
    Before,
}

impl Tear {
    /// The best-known loss: right length, zeros or what was there before.
    pub fn hollow(sectors: u64) -> Tear {
        Tear { sectors: vec![false; sectors as usize].into(), reach: Reach::Whole }
    }

    /// The zeros in blocks that are covered in part, and nothing else.
    pub fn edges(candidate: &Candidate) -> Tear {
        Tear { sectors: candidate.parts(true, |_| false), reach: Reach::Before }
    }

    /// All but those.
    pub fn without_edges(candidate: &Candidate) -> Tear {
        Tear { sectors: candidate.parts(false, |_| true), reach: Reach::Whole }
    }

    /// All clusters of a discard, and not the size that it made.
    pub fn without_size(candidate: &Candidate) -> Tear {
        Tear { sectors: candidate.parts(true, |_| true), reach: Reach::Before }
    }

    /// As long as a file that ends with a sector which is there.
    pub fn reach_of_last(&self) -> Reach {
        let count = self.sectors.len();
        let wanted = match self.reach {
            Reach::Before => 0,
            Reach::Until(sectors) => count.min(sectors as usize),
            Reach::Whole => count,
        };
        match self.sectors[..wanted].iter().rposition(|&there| there) {
            None => Reach::Before,
            Some(last) if last + 1 == count => Reach::Whole,
            Some(last) => Reach::Until(last as u64 + 1),
        }
    }

    /// Blocks from the front on, and the size that they make.
    pub fn front(&self) -> Presence {
        let count = self.sectors.len();
        let end = self.sectors.iter().position(|&there| !there).unwrap_or(count);
        let sectors = (0..count).map(|at| at < end).collect();
        match end {
            0 => Presence::Missing,
            all if all == count => Presence::Present,
            _ => Presence::Torn(Tear { sectors, reach: Reach::Until(end as u64) }),
        }
    }

    /// Clusters from the front, or all but those.
    pub fn clusters(candidate: &Candidate, count: u64, is_front: bool) -> Tear {
        let sectors = candidate.parts(true, |number| (number < count) == is_front);
        Tear { sectors, reach: Reach::Whole }
    }
}

impl Presence {
    pub fn reach(&self) -> Reach {
        match self {
            Presence::Present => Reach::Whole,
            Presence::Missing => Reach::Before,
            Presence::Torn(tear) => tear.reach,
        }
    }

    /// The same of a change that has so many sectors, when the file is not as long as it made it.
    pub fn without_size(&self, sectors: u64) -> Presence {
        let sectors = match self {
            Presence::Torn(tear) => tear.sectors.clone(),
            Presence::Present if sectors > 0 => vec![true; sectors as usize].into(),
            _ => return Presence::Missing,
        };
        Presence::Torn(Tear { sectors, reach: Reach::Before })
    }

    /// The same of a change that has so many sectors, when all is there that is in none of them.
    pub fn with_size(&self, sectors: u64) -> Presence {
        match self {
            Presence::Missing if sectors > 0 => Presence::Torn(Tear::hollow(sectors)),
            Presence::Torn(tear) => Presence::Torn(Tear { reach: Reach::Whole, ..tear.clone() }),
            _ => Presence::Present,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Presence::Present => "there",
            Presence::Missing => "missing",
            Presence::Torn(_) => "torn",
        }
    }
}

/// Which changes are there, by the sequence numbers of their records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Only what is durable.
    Nothing,
    Everything,
    /// Those up to this record.
    Until(u64),
    /// All but these; Some: what is there of a torn write.
    Without(BTreeMap<u64, Option<Tear>>),
    /// By chance: seed and number.
    Random(u64, u64),
}

/// A change that a choice is made about.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub sequence: u64,
    /// Sectors, and then clusters, that can be torn from each other; 0 or 1 for what is there or
    /// not.
    pub sectors: u64,
    /// So many of those are clusters of a discard.
    pub clusters: u64,
    /// It may have made the file longer.
    pub sized: bool,
    /// A truncation, or a range of zeros: its sectors are those of blocks that it covers in part;
    /// the rest, unless it has clusters, is there with the size.
    pub has_edges: bool,
    /// All but the zeros in such blocks is durable.
    pub edges_only: bool,
    /// Had not ended at the cut.
    pub under_way: bool,
}

impl Choice {
    pub fn without(missing: impl IntoIterator<Item = u64>) -> Choice {
        Choice::Without(missing.into_iter().map(|sequence| (sequence, None)).collect())
    }

    /// What it says about each candidate, in their order.
    pub fn presences(&self, cut: u64, candidates: &[Candidate]) -> Vec<Presence> {
        match self {
            Choice::Random(seed, number) => random_presences(*seed, *number, cut, candidates),
            other => candidates.iter().map(|candidate| other.presence(candidate)).collect(),
        }
    }

    fn presence(&self, candidate: &Candidate) -> Presence {
        let there = match self {
            Choice::Everything => true,
            Choice::Until(last) => candidate.sequence <= *last,
            Choice::Without(missing) => match missing.get(&candidate.sequence) {
                None => true,
                Some(None) => false,
                Some(Some(tear)) => return Presence::Torn(tear.clone()),
            },
            Choice::Nothing | Choice::Random(..) => false,
        };
        if there {
            Presence::Present
        } else {
            Presence::Missing
        }
    }
}

/// Each random state has its own share of missing and of torn changes: few, half or most of them.
fn random_presences(seed: u64, number: u64, cut: u64, candidates: &[Candidate]) -> Vec<Presence> {
    let mut random = Random::new(&[seed, cut, number]);
    let missing = [5, 20, 50, 80, 95][random.below(5) as usize];
    let torn = [0, 10, 50][random.below(3) as usize];
    let mut one = |candidate: &Candidate| {
        let tear = if candidate.under_way { torn.max(30) } else { torn };
        if candidate.can_tear() && random.chance(tear) {
            Presence::Torn(tear_of(&mut random, candidate))
        } else if random.chance(missing) {
            Presence::Missing
        } else {
            Presence::Present
        }
    };
    candidates.iter().map(&mut one).collect()
}

impl Candidate {
    /// What is there of a truncation, or of a range of zeros: its edges, and each cluster.
    fn parts(&self, edges: bool, is_there: impl Fn(u64) -> bool) -> Arc<[bool]> {
        let edge_count = (self.sectors - self.clusters) as usize;
        let clusters = (0..self.clusters).map(is_there);
        std::iter::repeat_n(edges, edge_count).chain(clusters).collect()
    }

    /// Whether a part of it can be there: some of its sectors, or its size alone.
    pub fn can_tear(&self) -> bool {
        self.sectors > 1 || (self.sectors == 1 && (self.sized || self.has_edges))
    }
}

/// The front, the back, any of them, or the size alone; the size is seldom missing by itself.
fn tear_of(random: &mut Random, candidate: &Candidate) -> Tear {
    let count = candidate.sectors;
    if candidate.has_edges {
        let reach = if random.chance(50) { Reach::Whole } else { Reach::Before };
        return Tear { sectors: (0..count).map(|_| random.chance(50)).collect(), reach };
    }
    let kinds = if candidate.sized { 4 } else { 3 };
    let at = 1 + random.below((count - 1).max(1));
    let sectors = match random.below(kinds) {
        0 => (0..count).map(|sector| sector < at).collect(),
        1 => (0..count).map(|sector| sector >= at).collect(),
        2 => (0..count).map(|_| random.chance(50)).collect(),
        _ => return Tear::hollow(count),
    };
    let reach = match candidate.sized {
        true if random.chance(30) => Reach::Before,
        true if random.chance(30) => Reach::Until(1 + random.below(count)),
        _ => Reach::Whole,
    };
    Tear { sectors, reach }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Whole => Ok(()),
            Reach::Until(sectors) => write!(f, "u{sectors}"),
            Reach::Before => f.write_str("s"),
        }
    }
}

/// One state, named so that seed, log and this text make it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateId {
    pub fault: Fault,
    pub sector: u64,
    /// Bytes that a discard leaves whole; None: it is there or not.
    pub discard_granularity: Option<u64>,
    /// The sequence number of the last record that had ended.
    pub cut: u64,
    pub choice: Choice,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fault.name(), self.sector)?;
        if let Some(cluster) = self.discard_granularity {
            write!(f, "/{cluster}")?;
        }
        write!(f, ":{}:", self.cut)?;
        match &self.choice {
            Choice::Nothing => f.write_str("nothing"),
            Choice::Everything => f.write_str("everything"),
            Choice::Until(last) => write!(f, "until={last}"),
            Choice::Random(seed, number) => write!(f, "random={seed}.{number}"),
            Choice::Without(missing) => {
                f.write_str("without=")?;
                for (index, (sequence, tear)) in missing.iter().enumerate() {
                    write!(f, "{}{sequence}", if index > 0 { "," } else { "" })?;
                    if let Some(Tear { sectors, reach }) = tear {
                        write!(f, "~{}{reach}", hexadecimal(sectors))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<StateId, String> {
        parse(text).ok_or_else(|| format!("{text:?} is no state"))
    }
}

fn parse(text: &str) -> Option<StateId> {
    let mut parts = text.splitn(4, ':');
    let name = parts.next()?;
    let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name)?;
    let whole = parts.next()?;
    let (sector, cluster) = whole.split_once('/').map_or((whole, None), |(a, b)| (a, Some(b)));
    let discard_granularity = cluster.map(str::parse).transpose().ok()?;
    let (sector, cut) = (sector.parse().ok()?, parts.next()?.parse().ok()?);
    let choice = parts.next()?;
    let (word, value) = choice.split_once('=').unwrap_or((choice, ""));
    let choice = match word {
        "nothing" => Choice::Nothing,
        "everything" => Choice::Everything,
        "until" => Choice::Until(value.parse().ok()?),
        "random" => {
            let (seed, number) = value.split_once('.')?;
            Choice::Random(seed.parse().ok()?, number.parse().ok()?)
        }
        "without" => Choice::Without(value.split(',').map(parse_missing).collect::<Option<_>>()?),
        _ => return None,
    };
    Some(StateId { fault, sector, discard_granularity, cut, choice })
}

fn parse_missing(text: &str) -> Option<(u64, Option<Tear>)> {
    let Some((sequence, tear)) = text.split_once('~') else {
        return Some((text.parse().ok()?, None));
    };
    let (digits, reach) = match (tear.strip_suffix('s'), tear.split_once('u')) {
        (Some(digits), _) => (digits, Reach::Before),
        (None, Some((digits, end))) => (digits, Reach::Until(end.parse().ok()?)),
        (None, None) => (tear, Reach::Whole),
    };
    let digits = digits.chars().map(|digit| digit.to_digit(16));
    let digits: Vec<u32> = digits.collect::<Option<_>>()?;
    let bits = digits.iter().flat_map(|digit| (0..4).map(move |bit| digit >> bit & 1 == 1));
    Some((sequence.parse().ok()?, Some(Tear { sectors: bits.collect(), reach })))
}

/// Four sectors a digit, the first in its lowest bit.
#[expect(clippy::expect_used, reason = "four bits are one digit")]
fn hexadecimal(sectors: &[bool]) -> String {
    let digit = |four: &[bool]| {
        let value = four.iter().rev().fold(0, |value, &there| value << 1 | u32::from(there));
        char::from_digit(value, 16).expect("four bits")
    };
    sectors.chunks(4).map(digit).collect()
}
