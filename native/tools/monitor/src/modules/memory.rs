//! `-m`, `-s`, `--dirty`: memory with and without the page cache.

use super::simple::{now, value, Field};
use crate::module::Unit::Mib;

const MEMINFO: &str = "proc/meminfo";

fn mib(text: &[u8], key: &[u8]) -> Option<f64> {
    value(text, key).map(|kib| kib / 1024.0)
}

/// Page cache as free(1) counts it: what can be given back, tmpfs and shared memory not among it.
fn cached(text: &[u8]) -> Option<f64> {
    let reclaimable = mib(text, b"SReclaimable").unwrap_or(0.0);
    let shared = mib(text, b"Shmem").unwrap_or(0.0);
    Some((mib(text, b"Cached")? + reclaimable - shared).max(0.0))
}

fn with_cache(text: &[u8]) -> Option<f64> {
    Some((mib(text, b"MemTotal")? - mib(text, b"MemFree")?).max(0.0))
}

fn without_cache(text: &[u8]) -> Option<f64> {
    Some((with_cache(text)? - mib(text, b"Buffers")? - cached(text)?).max(0.0))
}

pub const MEM: &[Field] = &[
    now("memory.used", "used", Mib, MEMINFO, without_cache),
    now("memory.used_with_cache", "+cach", Mib, MEMINFO, with_cache),
    now("memory.free", "free", Mib, MEMINFO, |text| mib(text, b"MemFree")),
    now("memory.buffers", "buff", Mib, MEMINFO, |text| mib(text, b"Buffers")),
    now("memory.cached", "cach", Mib, MEMINFO, |text| mib(text, b"Cached")),
    now("memory.available", "avai", Mib, MEMINFO, |text| mib(text, b"MemAvailable")),
];

pub const DIRTY: &[Field] = &[
    now("memory.dirty", "dirty", Mib, MEMINFO, |text| mib(text, b"Dirty")),
    now("memory.writeback", "wback", Mib, MEMINFO, |text| mib(text, b"Writeback")),
];

pub const SWAP: &[Field] = &[
    now("swap.used", "used", Mib, MEMINFO, |text| {
        Some((mib(text, b"SwapTotal")? - mib(text, b"SwapFree")?).max(0.0))
    }),
    now("swap.free", "free", Mib, MEMINFO, |text| mib(text, b"SwapFree")),
];
