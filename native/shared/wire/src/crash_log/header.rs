//! The first bytes of a log.

use super::reader::LogError;
use super::VERSION;
use crate::bytes;

pub const MAGIC: &[u8; 8] = b"dpcrash\n";
pub const HEADER_LENGTH: usize = 64;

/// What holds for the whole log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes that the backing's disk writes in one piece, as far as the kernel tells; a power of
    /// two.
    pub sector: u32,
    /// The backing file system's block, in bytes.
    pub block: u32,
    /// The backing file system's type as statfs(2) numbers it.
    pub file_system: u64,
    /// CLOCK_MONOTONIC and CLOCK_REALTIME when the log was begun.
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sector.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.block.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.file_system.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.monotonic_ns.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.realtime_ns.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<Header, LogError> {
        let u32_at = |at| bytes::u32_at(bytes, at);
        let u64_at = |at| bytes::u64_at(bytes, at);
        if &bytes[..8] != MAGIC {
            return Err(LogError::NoLog);
        }
        if !(1..=VERSION).contains(&u32_at(8)) {
            return Err(LogError::Version(u32_at(8)));
        }
        if crc32fast::hash(&bytes[..60]) != u32_at(60) {
            return Err(LogError::Corrupt { offset: 0, why: "the header's checksum is wrong" });
        }
        let header = Header {
            sector: u32_at(12),
            block: u32_at(16),
            file_system: u64_at(24),
            monotonic_ns: u64_at(32),
            realtime_ns: u64_at(40),
        };
        let zeros = u32_at(20) == 0 && bytes[48..60].iter().all(|&byte| byte == 0);
        if !header.sector.is_power_of_two() || !zeros {
            return Err(LogError::Corrupt { offset: 0, why: "the header has a bad field" });
        }
        Ok(header)
    }
}
