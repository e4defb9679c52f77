//! One record: what is in a slot.

use super::{MAGIC, SECTOR, SLOT, VERSION};
use crate::bytes::{u32_at, u64_at};

/// 16 TiB of records: more is a mistake, and keeps every sum in 64 bits.
pub const MAX_SLOTS: u64 = 1 << 32;
/// The first bytes of sector 0, and of the others.
const HEAD: usize = 72;
const STAMP: usize = 16;

/// What holds for a whole ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub id: u64,
    /// Where slot 0 begins on the target, in bytes.
    pub offset: u64,
    /// At most [`MAX_SLOTS`], at least 1.
    pub slots: u64,
    /// The seed of the permutation that scatters sequences over slots; 0 keeps their order.
    pub seed: u64,
}

impl Geometry {
    /// The slot that a sequence number (from 1 on) lies in: `slots` in a row never share one.
    pub fn slot_of(&self, sequence: u64) -> u64 {
        let turn = sequence.wrapping_sub(1) % self.slots;
        if self.seed == 0 {
            return turn;
        }
        let (step, start) = self.stride();
        ((u128::from(turn) * u128::from(step) + u128::from(start)) % u128::from(self.slots)) as u64
    }

    /// The number of the first sequence in this slot; every `slots` later there is another.
    pub fn first_sequence(&self, slot: u64) -> u64 {
        if self.seed == 0 {
            return slot + 1;
        }
        let (step, start) = self.stride();
        let slots = u128::from(self.slots);
        let distance = u128::from(slot) + slots - u128::from(start);
        (distance % slots * u128::from(inverse(step, self.slots)) % slots) as u64 + 1
    }

    /// The last sequence up to `sequence` that lies in this slot; None when there is none yet.
    pub fn last_sequence(&self, slot: u64, sequence: u64) -> Option<u64> {
        let first = self.first_sequence(slot);
        let rounds = sequence.checked_sub(first)? / self.slots;
        Some(first + rounds * self.slots)
    }

    /// Where a slot begins on the target.
    pub fn position(&self, slot: u64) -> u64 {
        self.offset + slot * SLOT as u64
    }

    /// An affine permutation: step and start, with no common divisor of step and slots.
    fn stride(&self) -> (u64, u64) {
        let start = mix(self.seed) % self.slots;
        let mut step = mix(self.seed ^ 0x5354_5249_4445) % self.slots;
        while divisor(step, self.slots) != 1 {
            step = (step + 1) % self.slots.max(2);
        }
        (step, start)
    }
}

/// The greatest common divisor.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The number that gives 1 when multiplied with `number`, modulo `modulus` (extended Euclid).
fn inverse(number: u64, modulus: u64) -> u64 {
    let (mut old, mut new) = (i128::from(number), i128::from(modulus));
    let (mut old_factor, mut factor) = (1, 0);
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (old_factor, factor) = (factor, old_factor - quotient * factor);
    }
    i128::rem_euclid(old_factor, i128::from(modulus)) as u64
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Which record, and when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub sequence: u64,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

/// A record as it was read from a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset is not in the record: 0.
    pub geometry: Geometry,
    pub slot: u64,
    pub place: Place,
}

/// Why a slot holds no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// It does not begin as one does.
    NoRecord,
    Version(u32),
    /// It begins well, and then its checksum or one of its fields is wrong.
    Damaged,
}

impl Record {
    /// The bytes of a record.
    pub fn encode(geometry: &Geometry, place: &Place) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let words = [
            geometry.id,
            place.sequence,
            geometry.slot_of(place.sequence),
            geometry.slots,
            geometry.seed,
            place.monotonic_ns,
            place.realtime_ns,
        ];
        for (word, into) in words.iter().zip(bytes[16..HEAD].chunks_exact_mut(8)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        for (number, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            let start = if number == 0 { HEAD } else { STAMP };
            if number > 0 {
                sector[..8].copy_from_slice(&geometry.id.to_le_bytes());
                sector[8..16].copy_from_slice(&place.sequence.to_le_bytes());
            }
            fill(geometry.id, place.sequence, number, &mut sector[start..]);
        }
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads one; its payload is checked too.
    pub fn decode(bytes: &[u8; SLOT]) -> Result<Record, RecordError> {
        if &bytes[..8] != MAGIC {
            return Err(RecordError::NoRecord);
        }
        if checksum(bytes) != u32_at(bytes, 12) {
            return Err(RecordError::Damaged);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(RecordError::Version(u32_at(bytes, 8)));
        }
        let record = read_head(bytes).ok_or(RecordError::Damaged)?;
        // A right checksum over wrong bytes is not chance: somebody wants to be believed.
        let whole = Record::encode(&record.geometry, &record.place) == *bytes;
        whole.then_some(record).ok_or(RecordError::Damaged)
    }
}

/// The fields of sector 0; None when they make no sense.
fn read_head(bytes: &[u8]) -> Option<Record> {
    if &bytes[..8] != MAGIC || u32_at(bytes, 8) != VERSION {
        return None;
    }
    let geometry = Geometry {
        id: u64_at(bytes, 16),
        offset: 0,
        slots: u64_at(bytes, 40),
        seed: u64_at(bytes, 48),
    };
    let place = Place {
        sequence: u64_at(bytes, 24),
        monotonic_ns: u64_at(bytes, 56),
        realtime_ns: u64_at(bytes, 64),
    };
    let slot = u64_at(bytes, 32);
    let sound = (1..=MAX_SLOTS).contains(&geometry.slots)
        && place.sequence > 0
        && geometry.slot_of(place.sequence) == slot;
    sound.then_some(Record { geometry, slot, place })
}

/// Tells the sequence number of the record that a sector of a slot says it belongs to.
/// None for bytes that are no sector `number` of a record of this ledger in this slot. (The times
/// in sector 0 are not checked.)
pub fn read_sector(geometry: &Geometry, slot: u64, number: usize, sector: &[u8]) -> Option<u64> {
    let (sequence, start) = if number == 0 {
        let head = read_head(sector)?;
        let ours = Geometry { offset: 0, ..*geometry } == head.geometry && head.slot == slot;
        (ours.then_some(head.place.sequence)?, HEAD)
    } else {
        (u64_at(sector, 8), STAMP)
    };
    let mut expected = [0; SECTOR];
    fill(geometry.id, sequence, number, &mut expected[start..]);
    let ours = number == 0 || (u64_at(sector, 0) == geometry.id && sequence > 0);
    let whole = sector[start..] == expected[start..];
    (ours && whole && geometry.slot_of(sequence) == slot).then_some(sequence)
}

/// The payload: nothing compresses it, and no two sectors of a ledger share it.
fn fill(id: u64, sequence: u64, number: usize, into: &mut [u8]) {
    let mut state = mix(mix(id) ^ mix(sequence.wrapping_mul(8).wrapping_add(number as u64)));
    for word in into.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&mix(state).to_le_bytes());
    }
}

/// Over all bytes but its own.
fn checksum(bytes: &[u8; SLOT]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}
