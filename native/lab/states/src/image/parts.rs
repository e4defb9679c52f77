//! Which parts of one change are there or not, each by itself.

use std::ops::Range;

use super::Image;
use crate::trace::Change;

/// File systems keep a file's end in blocks of a page.
pub const BLOCK: u64 = 4096;

/// The parts of a change of data, in the order in which a torn change counts them.
pub struct Parts {
    /// Sectors that are there or not, each by itself.
    sectors: Vec<Range<u64>>,
    /// Sectors that are there or not cluster by cluster.
    clusters: Range<u64>,
    /// Sectors of a cluster.
    cluster: u64,
}

impl Parts {
    pub fn count(&self) -> u64 {
        self.sector_count() + self.cluster_count()
    }

    fn sector_count(&self) -> u64 {
        self.sectors.iter().map(|range| range.end - range.start).sum()
    }

    pub fn cluster_count(&self) -> u64 {
        if self.clusters.is_empty() {
            return 0;
        }
        self.clusters.end.div_ceil(self.cluster) - self.clusters.start / self.cluster
    }

    pub fn index(&self, number: u64) -> Option<usize> {
        let mut before = 0;
        for range in &self.sectors {
            if range.contains(&number) {
                return Some((before + number - range.start) as usize);
            }
            before += range.end - range.start;
        }
        let own = || before + number / self.cluster - self.clusters.start / self.cluster;
        self.clusters.contains(&number).then(|| own() as usize)
    }

    /// Where runs of sectors have to end, so that each is of one part, or by sector.
    pub fn borders(&self) -> impl Iterator<Item = u64> + '_ {
        let edges = self.sectors.iter().flat_map(|range| [range.start, range.end]);
        let first = self.clusters.start / self.cluster;
        let inner = (first + 1..first + self.cluster_count()).map(|number| number * self.cluster);
        let ends = Some(self.clusters.clone()).filter(|range| !range.is_empty());
        edges.chain(ends.into_iter().flat_map(|range| [range.start, range.end])).chain(inner)
    }
}

impl Image<'_> {
    /// A write is there sector by sector. The blocks that a truncation or a range of zeros covers
    /// in part are changed in place, as by a write; the rest is whole, but for what a device does:
    /// it may zero some clusters. A file system's own holes are metadata.
    pub fn parts(&self, change: &Change) -> Parts {
        let sector = self.store.trace.sector;
        let granularity = self.store.trace.discard_granularity.filter(|_| self.journal().is_none());
        let mut parts = Parts {
            sectors: self.edges(change),
            clusters: 0..0,
            cluster: granularity.map_or(1, |bytes| bytes / sector),
        };
        match (change, self.sectors(change)) {
            (Change::Write { .. }, Some((start, end))) => parts.sectors.push(start..end),
            (Change::Zero { .. }, Some((start, end))) if granularity.is_some() => {
                let front = parts.sectors.iter().find(|edge| edge.start == start);
                let back = parts.sectors.iter().find(|edge| edge.end == end);
                let from = front.map_or(start, |edge| edge.end);
                parts.clusters = from..back.map_or(end, |edge| edge.start).max(from);
            }
            _ => {}
        }
        parts
    }

    /// The sectors of a write that a sync may leave in the disk's cache.
    pub(super) fn in_place(&self, sequence: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let sector = self.store.trace.sector;
        let bytes = self.journal().map_or(&[][..], |journal| journal.in_place(sequence));
        bytes.iter().map(move |one| one.start / sector..one.end.div_ceil(sector))
    }

    /// Which of the parts that can be torn from each other a sector is of; None: it goes with the
    /// size.
    pub fn torn_index(&self, change: &Change, number: u64) -> Option<usize> {
        if let Change::Write { .. } = change {
            let (start, end) = self.sectors(change)?;
            return (start..end).contains(&number).then(|| (number - start) as usize);
        }
        self.parts(change).index(number)
    }

    /// Whether the sectors around this one can be torn from each other.
    pub fn is_by_sector(&self, change: &Change, number: u64) -> bool {
        let is_write = matches!(change, Change::Write { .. });
        is_write || self.edges(change).iter().any(|edge| edge.contains(&number))
    }

    /// The sectors of blocks that a truncation or a range of zeros covers in part.
    fn edges(&self, change: &Change) -> Vec<Range<u64>> {
        let sector = self.store.trace.sector;
        let (from, to) = match *change {
            Change::Truncate { size } => (size, size.next_multiple_of(BLOCK)),
            Change::Zero { offset, length, .. } => (offset, offset + length),
            _ => return Vec::new(),
        };
        let front = from..from.next_multiple_of(BLOCK).min(to);
        let back = (to - to % BLOCK).max(front.end)..to;
        let edges = [front, back].into_iter().filter(|bytes| !bytes.is_empty());
        let mut edges: Vec<Range<u64>> =
            edges.map(|bytes| bytes.start / sector..bytes.end.div_ceil(sector)).collect();
        // Sectors may be larger than blocks.
        if edges.len() == 2 && edges[1].start < edges[0].end {
            edges[0].end = edges.remove(1).end;
        }
        edges
    }

    /// The sectors that a change of data can be about.
    pub fn sectors(&self, change: &Change) -> Option<(u64, u64)> {
        let sector = self.store.trace.sector;
        match *change {
            Change::Write { offset, length, .. } | Change::Zero { offset, length, .. } => {
                Some((offset / sector, (offset + length).div_ceil(sector)))
            }
            Change::Truncate { size } => Some((size / sector, u64::MAX)),
            _ => None,
        }
    }
}
