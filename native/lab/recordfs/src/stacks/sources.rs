//! Lines that a process said of itself: what is noted of them while it runs, and told at the end.

use std::collections::BTreeMap;

use diskproof_wire::crash_log::{Address, Operation};

use super::symbols::Source;

/// Lines that are kept; what comes later has none.
const MOST: usize = 1 << 14;
/// Functions that share a line.
const MOST_ON_A_LINE: u64 = 16;

#[derive(Default)]
pub struct Sources(BTreeMap<Address, Vec<Source>>);

impl Sources {
    /// A number for a line of a module: the line itself, and which of the functions in it.
    pub fn number(&mut self, module: u32, source: Source) -> Option<Address> {
        for further in 0..MOST_ON_A_LINE {
            let address = Address { module, offset: further << 32 | u64::from(source.line) };
            match self.0.get(&address) {
                Some(known) if *known == [source.clone()] => return Some(address),
                Some(_) => {}
                None if self.0.len() >= MOST => return None,
                None => {
                    self.0.insert(address, vec![source]);
                    return Some(address);
                }
            }
        }
        None
    }

    pub fn has(&self, address: &Address) -> bool {
        self.0.contains_key(address)
    }

    /// What an address of a program is; functions that were inlined first.
    pub fn add(&mut self, address: Address, sources: Vec<Source>) {
        if self.0.len() < MOST && !sources.is_empty() {
            self.0.insert(address, sources);
        }
    }

    pub fn tell(&self, tell: &mut impl FnMut(&Operation<'_>)) {
        for (address, sources) in &self.0 {
            sources.iter().for_each(|source| tell(&source.clone().line_of(*address)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_line_are_told_apart() {
        let mut sources = Sources::default();
        let source =
            |function: &str, line| Source { function: function.into(), file: "a".into(), line };
        let first = sources.number(1, source("f", 3)).unwrap();
        let second = sources.number(1, source("g", 3)).unwrap();
        assert_eq!((first.offset, second.offset), (3, 1 << 32 | 3));
        assert_eq!(sources.number(1, source("f", 3)), Some(first));
        let mut told = 0;
        sources.tell(&mut |_| told += 1);
        assert_eq!(told, 2);
        for line in 0..2 * MOST as u32 {
            let _ = sources.number(2, source("h", line));
        }
        assert_eq!(sources.0.len(), MOST);
    }
}
