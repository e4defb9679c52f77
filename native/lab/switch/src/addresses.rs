//! Which port a station was last heard on.

use std::collections::HashMap;

/// A guest has one card. One that invents stations fills its own share only.
pub const MAX_PER_PORT: usize = 32;

pub type Address = [u8; 6];

/// Broadcast and multicast: such an address is nobody's own.
pub fn is_group(address: &Address) -> bool {
    address[0] & 1 != 0
}

#[derive(Default)]
pub struct Addresses {
    ports: HashMap<Address, usize>,
    counts: HashMap<usize, usize>,
}

impl Addresses {
    /// A frame of this station came in here. Stations beyond a port's share stay unknown: frames
    /// for them are flooded.
    pub fn learn(&mut self, address: Address, port: usize) {
        let known = self.ports.get(&address).copied();
        let count = self.counts.entry(port).or_default();
        if known == Some(port) || is_group(&address) || *count >= MAX_PER_PORT {
            return;
        }
        *count += 1;
        self.ports.insert(address, port);
        if let Some(before) = known {
            self.counts.entry(before).and_modify(|count| *count -= 1);
        }
    }

    pub fn find(&self, address: &Address) -> Option<usize> {
        self.ports.get(address).copied()
    }

    pub fn forget(&mut self, port: usize) {
        self.ports.retain(|_, known| *known != port);
        self.counts.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(number: u16) -> Address {
        let [high, low] = number.to_be_bytes();
        [0x52, 0x54, 0, 0, high, low]
    }

    #[test]
    fn a_station_is_where_it_was_last_heard() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.find(&station(1)), None);
        addresses.learn(station(1), 3);
        assert_eq!(addresses.find(&station(1)), Some(3));
        addresses.learn(station(1), 4);
        assert_eq!(addresses.find(&station(1)), Some(4));
        addresses.forget(4);
        assert_eq!(addresses.find(&station(1)), None);
    }

    #[test]
    fn groups_are_not_learnt() {
        let mut addresses = Addresses::default();
        addresses.learn([0xff; 6], 1);
        addresses.learn([1, 0, 0x5e, 0, 0, 1], 1);
        assert_eq!(addresses.find(&[0xff; 6]), None);
        assert_eq!(addresses.find(&[1, 0, 0x5e, 0, 0, 1]), None);
    }

    #[test]
    fn a_liar_fills_its_own_share_only() {
        let mut addresses = Addresses::default();
        for number in 0..u16::MAX {
            addresses.learn(station(number), 1);
        }
        assert_eq!(addresses.ports.len(), MAX_PER_PORT);
        addresses.learn(station(u16::MAX), 2);
        assert_eq!(addresses.find(&station(u16::MAX)), Some(2));
    }

    #[test]
    fn a_station_that_moves_frees_its_old_place() {
        let mut addresses = Addresses::default();
        for round in 0..1000 {
            addresses.learn(station(1), round % 2);
        }
        for number in 2..=MAX_PER_PORT as u16 {
            addresses.learn(station(number), 1);
        }
        assert_eq!(addresses.ports.len(), MAX_PER_PORT);
    }
}
