//! Logs that are wrong in everything but their checksums: damage that the checksums do not find.

use diskproof_wire::crash_log::{Header, FRAME_LENGTH, HEADER_LENGTH};

/// The records that `bytes` would be if its checksums, its numbers and its times were right, behind
/// a header that is right.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let header =
        Header { sector: 512, block: 4096, file_system: 0xef53, monotonic_ns: 1, realtime_ns: 2 };
    let mut log = header.encode().to_vec();
    let mut rest = bytes.get(HEADER_LENGTH..).unwrap_or_default();
    let (mut sequence, mut now, mut callers) = (0u64, 0u64, 0u32);
    while let Some((frame, behind)) = rest.split_first_chunk::<FRAME_LENGTH>() {
        let mut frame = *frame;
        let told = u32::from_le_bytes([frame[8], frame[9], frame[10], frame[11]]);
        let length = (told as usize).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        let padding = length.next_multiple_of(8) - length;
        rest = behind.get(padding..).unwrap_or_default();
        sequence += 1;
        now += u64::from(frame[24]) + 1;
        let begun = now.saturating_sub(u64::from(frame[32]));
        frame[4..8].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        frame[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        frame[16..24].copy_from_slice(&sequence.to_le_bytes());
        frame[24..32].copy_from_slice(&begun.to_le_bytes());
        frame[32..40].copy_from_slice(&now.to_le_bytes());
        let names = frame[12] == 21;
        callers += u32::from(names);
        let caller = if names { callers } else { u32::from(frame[44]).min(callers) };
        frame[44..].copy_from_slice(&caller.to_le_bytes());
        let checksum = crc32fast::hash(&frame[4..]);
        frame[..4].copy_from_slice(&checksum.to_le_bytes());
        log.extend(frame);
        log.extend(payload);
        log.extend(&[0; 8][..padding]);
    }
    log
}
