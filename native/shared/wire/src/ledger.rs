//! The ledger: numbered, checksummed records in slots of a disk or file, which tell after a crash
//! what is still there.
//!
//! `docs/ledger.md` is the contract, `tests/golden/ledger.bin` an example of it.

mod acknowledgement;
mod record;
mod verify;

pub use acknowledgement::Acknowledgement;
pub use record::{read_sector, Geometry, Place, Record, RecordError, MAX_SLOTS};
pub use verify::{check_slot, find_geometry, verify, Loss, ReadAt, Report, Slot};

pub const MAGIC: &[u8; 8] = b"dpledge\n";
/// Raised whenever a reader of the old version would misread a record.
pub const VERSION: u32 = 1;
/// A slot and the record in it.
pub const SLOT: usize = 4096;
/// What may be torn from the rest: each sector of a record says whose it is.
pub const SECTOR: usize = 512;
