//! One state of a cut, and what it holds.

use std::io;

use crate::content::Source;
use crate::cut::{Cut, Pick, Piece};
use crate::image::{Key, Value, Version};

/// One state: base, durable changes, and some of the others.
pub struct State<'c, 'i, 's> {
    pub cut: &'c Cut<'i, 's>,
    /// In the order of the cut's pieces.
    pub picks: Vec<Pick>,
    /// States with the same hash hold the same.
    pub hash: u64,
}

/// A run of sectors with one source.
#[derive(Clone, Debug)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    /// Begins at `start`.
    pub source: Source,
}

impl State<'_, '_, '_> {
    /// What the state has of a part that is not data.
    pub fn value<'a>(&'a self, key: &Key, settled: &'a [Version]) -> &'a Value {
        match self.cut.find_piece(key) {
            Some(piece) => match &self.picks[piece] {
                Pick::Version(at) => &self.cut.pieces[piece].versions[*at].value,
                Pick::Size(_) | Pick::Sectors(_) => unreachable!("asked for by itself"),
            },
            None => &settled[0].value,
        }
    }

    pub fn size(&self, file: u64) -> u64 {
        let key = Key::Size(file);
        if let Some(Pick::Size(size)) = self.cut.find_piece(&key).map(|at| &self.picks[at]) {
            return *size;
        }
        match self.cut.image.cells.get(&key).map(|cell| self.value(&key, &cell.versions)) {
            Some(Value::Size(size)) => *size,
            _ => self.cut.image.store.base.size(file),
        }
    }

    /// What is not as in the base, of these sectors of a file, in order.
    pub fn runs(&self, file: u64, start: u64, end: u64) -> Vec<Run> {
        let cells = &self.cut.image.cells;
        let before = cells.range(Key::Data(file, 0)..Key::Data(file, start)).next_back();
        let before = before.filter(|(_, cell)| cell.end > start);
        let here = cells.range(Key::Data(file, start)..Key::Data(file, end));
        let mut runs = Vec::new();
        for (key, cell) in before.into_iter().chain(here) {
            let Key::Data(_, from) = *key else { unreachable!("data has keys of data") };
            let piece = if cell.versions.len() > 1 { self.cut.find_piece(key) } else { None };
            match piece.map(|at| (&self.cut.pieces[at], &self.picks[at])) {
                None => push_run(&mut runs, from, cell.end, &cell.versions[0].value),
                Some((piece, Pick::Version(at))) => {
                    push_run(&mut runs, from, cell.end, &piece.versions[*at].value);
                }
                Some((piece, Pick::Sectors(sectors))) => {
                    self.push_torn(&mut runs, from, piece, sectors);
                }
                Some((_, Pick::Size(_))) => unreachable!("data has no size"),
            }
        }
        runs
    }

    fn push_torn(&self, runs: &mut Vec<Run>, from: u64, piece: &Piece, sectors: &[usize]) {
        let sector = self.cut.image.store.trace.sector;
        for (&at, number) in sectors.iter().zip(from..) {
            let source = piece.source(at).after((number - from) * sector);
            runs.push(Run { start: number, end: number + 1, source });
        }
    }

    /// Zeros behind the end of the file.
    pub fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sector = self.cut.image.store.trace.sector;
        let end = offset + buffer.len() as u64;
        let runs = self.runs(file, offset / sector, end.div_ceil(sector));
        read_runs(self.cut.image.store, file, &runs, self.size(file), offset, buffer)
    }
}

fn push_run(runs: &mut Vec<Run>, start: u64, end: u64, value: &Value) {
    let Value::Data(source) = value else { unreachable!("data is data") };
    if !matches!(source, Source::Base) {
        runs.push(Run { start, end, source: source.clone() });
    }
}

/// Those of the runs that overlap these bytes.
pub fn runs_between<'r>(
    store: &crate::content::Store,
    runs: &'r [Run],
    start: u64,
    end: u64,
) -> &'r [Run] {
    let sector = store.trace.sector;
    let first = runs.partition_point(|run| run.end.saturating_mul(sector) <= start);
    let last = runs.partition_point(|run| run.start * sector < end);
    &runs[first..last.max(first)]
}

/// Bytes of a file of which `runs` (in order, and all that overlap the buffer) say what is not as
/// in the base.
pub fn read_runs(
    store: &crate::content::Store,
    file: u64,
    runs: &[Run],
    size: u64,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let sector = store.trace.sector;
    let end = (offset + buffer.len() as u64).min(size).max(offset);
    let (buffer, behind) = buffer.split_at_mut((end - offset) as usize);
    behind.fill(0);
    let mut at = offset;
    let base = |at: u64, to: u64, buffer: &mut [u8]| {
        store.base.read(file, at, &mut buffer[(at - offset) as usize..(to - offset) as usize])
    };
    for run in runs {
        let start = run.start * sector;
        let (from, to) = (start.max(offset), (run.end.saturating_mul(sector)).min(end));
        if from >= to {
            continue;
        }
        base(at, from.max(at), buffer)?;
        let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        store.read(file, &run.source, start, from - start, part)?;
        at = to;
    }
    base(at, end, buffer)
}
