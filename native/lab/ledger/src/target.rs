//! Where records go: a file or block device, a directory, or an NBD export.

use std::io;

use diskproof_wire::ledger::SLOT;

/// What makes a record durable, as far as its writer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durable {
    /// A flush after it
    Flush,
    /// Its own write, which is asked to be durable (FUA, O_DSYNC)
    Fua,
    /// Nothing: it is acknowledged when its write is complete
    Write,
}

/// One slot's bytes, aligned for O_DIRECT.
#[repr(align(4096))]
pub struct Block(pub [u8; SLOT]);

/// Several threads store at once; never in the same slot.
pub trait Target: Sync {
    /// Writes a record. With [`Durable::Fua`] it is durable when this returns.
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()>;

    /// Makes durable what was stored before.
    fn flush(&self) -> io::Result<()>;
}

/// An error that says which path it is about.
pub fn named(path: impl std::fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}
