//! A ledger on an NBD export.

use std::io;

use diskproof_nbd::{Export, Nbd};
use diskproof_wire::ledger::Geometry;

use crate::target::{Block, Durable, Target};

/// A ledger on an export.
pub struct NbdLedger {
    nbd: Nbd,
    geometry: Geometry,
}

impl NbdLedger {
    /// Refuses an export that cannot do what makes a record durable.
    pub fn new(nbd: Nbd, geometry: Geometry, durable: Durable) -> io::Result<NbdLedger> {
        match find_obstacle(nbd.export, durable) {
            Some(obstacle) => Err(io::Error::other(format!("the NBD export {obstacle}"))),
            None => Ok(NbdLedger { nbd, geometry }),
        }
    }
}

fn find_obstacle(export: Export, durable: Durable) -> Option<&'static str> {
    match durable {
        _ if export.read_only => Some("is read-only"),
        Durable::Flush if !export.takes_flush => Some("takes no flushes"),
        Durable::Fua if !export.takes_fua => Some("takes no durable writes (FUA)"),
        _ => None,
    }
}

impl Target for NbdLedger {
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()> {
        self.nbd.write(self.geometry.position(slot), &block.0, durable == Durable::Fua)
    }

    fn flush(&self) -> io::Result<()> {
        self.nbd.flush()
    }
}

#[test]
fn an_export_that_cannot_keep_the_promise_is_refused() {
    let good = Export { size: 1 << 24, read_only: false, takes_flush: true, takes_fua: true };
    let refused = |export, durable| find_obstacle(export, durable).is_some();
    let (no_flush, no_fua) =
        (Export { takes_flush: false, ..good }, Export { takes_fua: false, ..good });
    for (durable, without) in [(Durable::Flush, no_flush), (Durable::Fua, no_fua)] {
        assert!(!refused(good, durable) && refused(without, durable));
        assert!(refused(Export { read_only: true, ..good }, durable));
    }
    assert!(!refused(no_flush, Durable::Write) && !refused(no_fua, Durable::Flush));
}
