//! What a writer says is durable: one line of text.

use super::record::{Geometry, MAX_SLOTS};
use super::SLOT;

/// `ledger ID SEQUENCE`: all records up to this one are durable. The first line of a ledger
/// acknowledges 0 and goes on with `OFFSET SLOTS SEED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub id: u64,
    pub sequence: u64,
    pub geometry: Option<Geometry>,
}

impl Acknowledgement {
    /// The line that begins a ledger.
    pub fn begin(geometry: Geometry) -> Acknowledgement {
        Acknowledgement { id: geometry.id, sequence: 0, geometry: Some(geometry) }
    }

    /// None for a line that is no acknowledgement of a ledger, or a malformed one.
    pub fn parse(line: &[u8]) -> Option<Acknowledgement> {
        let words: Vec<&str> = std::str::from_utf8(line).ok()?.split(' ').collect();
        match words[..] {
            ["ledger", id, sequence] => {
                let (id, sequence) = (hexadecimal(id)?, decimal(sequence)?);
                Some(Acknowledgement { id, sequence, geometry: None })
            }
            ["ledger", id, "0", offset, slots, seed] => {
                let (offset, slots) = (decimal(offset)?, decimal(slots)?);
                let geometry =
                    Geometry { id: hexadecimal(id)?, offset, slots, seed: hexadecimal(seed)? };
                let sound = (1..=MAX_SLOTS).contains(&slots)
                    && offset.checked_add(slots * SLOT as u64).is_some();
                sound.then_some(Acknowledgement::begin(geometry))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Acknowledgement {
    /// The line without its newline.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ledger {:016x} {}", self.id, self.sequence)?;
        if let Some(Geometry { offset, slots, seed, .. }) = self.geometry {
            write!(f, " {offset} {slots} {seed:016x}")?;
        }
        Ok(())
    }
}

fn decimal(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

fn hexadecimal(word: &str) -> Option<u64> {
    let sound = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    sound.then(|| u64::from_str_radix(word, 16).ok())?
}
