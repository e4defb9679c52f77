//! The cached pages of a file as runs: small however large and sparse the file is.

use crate::counts::{cachestat, count_by_mincore};
use crate::mincore::read_map;
use crate::{page_size, pages_of, Error};
use std::ops::Range;
use std::os::fd::AsFd;

/// Below this many pages a mixed part is read page by page: one mmap is cheaper than halving.
const MAP_PAGES: u64 = 1 << 14;

/// Sorted runs of pages, neither touching nor overlapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Range<u64>>,
}

impl Runs {
    /// Adds a run behind all others; runs that touch become one.
    pub fn push(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
            _ => self.runs.push(pages),
        }
    }

    /// Halves the number of runs by closing the smaller gaps: says "cached" of some pages more.
    pub fn coarsen(&mut self) {
        let mut gaps: Vec<u64> =
            self.runs.windows(2).map(|two| two[1].start - two[0].end).collect();
        if gaps.is_empty() {
            return;
        }
        let middle = gaps.len() / 2;
        let limit = *gaps.select_nth_unstable(middle).1;
        let mut coarser = Self::default();
        for run in self.runs.drain(..) {
            match coarser.runs.last_mut() {
                Some(last) if run.start - last.end <= limit => last.end = run.end,
                _ => coarser.runs.push(run),
            }
        }
        *self = coarser;
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.runs.iter()
    }

    /// Number of runs (not of pages).
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    #[must_use]
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// What of `pages` lies between the runs.
    #[must_use]
    pub fn gaps(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut start = pages.start;
        for run in self.from(pages.start).take_while(|run| run.start < pages.end) {
            if start < run.start {
                gaps.push(start..run.start);
            }
            start = run.end;
        }
        if start < pages.end {
            gaps.push(start..pages.end);
        }
        gaps
    }

    /// Runs that end after `page`.
    fn from(&self, page: u64) -> impl Iterator<Item = &Range<u64>> {
        self.runs[self.runs.partition_point(|run| run.end <= page)..].iter()
    }
}

/// The cached pages of a file. With more than `limit` runs, the smallest gaps between them are
/// closed: then some pages count as cached that are not, never the other way round.
///
/// A part that cachestat finds empty or full is not looked at further, so a sparse file of
/// terabytes costs as much as what is cached of it. Older kernels read all of it by mincore.
pub fn read_runs(file: impl AsFd, limit: usize) -> Result<Runs, Error> {
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    let mut reader = Reader { file: &file, runs: Runs::default(), limit: limit.max(1) };
    let pages = pages_of(&(0..size));
    match reader.look(pages.clone()) {
        Err(Error::NoCachestat) => reader.look_by_mincore(pages)?,
        done => done?,
    }
    Ok(reader.runs)
}

struct Reader<'a, F> {
    file: &'a F,
    runs: Runs,
    limit: usize,
}

impl<F: AsFd> Reader<'_, F> {
    /// Recursion halves a file of at most 2^63 bytes: it is at most 51 deep.
    fn look(&mut self, pages: Range<u64>) -> Result<(), Error> {
        let total = pages.end - pages.start;
        let cached = cachestat(self.file, &bytes_of(&pages))?.cached;
        if cached == 0 {
            return Ok(());
        }
        if cached >= total {
            self.add(pages);
            return Ok(());
        }
        if total <= MAP_PAGES && self.map(&pages).is_ok() {
            return Ok(());
        }
        let middle = pages.start + total / 2;
        self.look(pages.start..middle)?;
        self.look(middle..pages.end)
    }

    fn look_by_mincore(&mut self, pages: Range<u64>) -> Result<(), Error> {
        let mut start = pages.start;
        while start < pages.end {
            let end = pages.end.min(start + (MAP_PAGES << 4));
            self.map(&(start..end))?;
            start = end;
        }
        Ok(())
    }

    fn map(&mut self, pages: &Range<u64>) -> Result<(), Error> {
        let map = read_map(self.file, bytes_of(pages))?;
        for (page, _) in (pages.start..).zip(map).filter(|(_, cached)| *cached) {
            self.add(page..page + 1);
        }
        Ok(())
    }

    fn add(&mut self, pages: Range<u64>) {
        self.runs.push(pages);
        if self.runs.len() > self.limit {
            self.runs.coarsen();
        }
    }
}

pub(crate) fn bytes_of(pages: &Range<u64>) -> Range<u64> {
    pages.start.saturating_mul(page_size())..pages.end.saturating_mul(page_size())
}

/// The last cached page at or before the end of `pages`, found by halving; None when there is none.
pub fn find_last_page(file: impl AsFd, pages: Range<u64>) -> Result<Option<u64>, Error> {
    let count = |pages: &Range<u64>| match cachestat(&file, &bytes_of(pages)) {
        Ok(answer) => Ok(answer.cached),
        Err(Error::NoCachestat) => Ok(count_by_mincore(&file, &bytes_of(pages))?.cached),
        Err(error) => Err(error),
    };
    let (mut low, mut high) = (pages.start, pages.end);
    if low >= high || count(&pages)? == 0 {
        return Ok(None);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match count(&(middle..high))? {
            0 => high = middle,
            _ => low = middle,
        }
    }
    Ok(Some(low))
}
