//! `--arc`: ZFS's own cache, which stands in for the page cache where a disk lies on ZFS.
//!
//! The kernel writes a line a number, `name type value`, behind two lines of head.

use crate::counter::{change, percent, ratio};
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

const STATS: &str = "proc/spl/kstat/zfs/arcstats";
const MIB: f64 = 1048576.0;

/// Column, label, the kernel's name of its bytes.
const SIZES: [(&str, &str, &[u8]); 4] = [
    ("arc.size", "size", b"size"),
    ("arc.target", "targ", b"c"),
    ("arc.mru", "mru", b"mru_size"),
    ("arc.mfu", "mfu", b"mfu_size"),
];

/// Since the module was loaded.
#[derive(Clone, Copy)]
struct Accesses {
    misses: u64,
    all: u64,
}

struct Arc {
    file: FileId,
    last: Option<Accesses>,
    groups: Vec<Group>,
}

/// Without ZFS all is unknown.
pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let sizes = SIZES.iter().map(|size| Column::new(size.0, size.1, Unit::Mib));
    let rates = [
        Column::new("arc.accesses", "acc", Unit::PerSecond),
        Column::new("arc.misses", "miss", Unit::PerSecond),
        Column::new("arc.hit", "hit", Unit::Percent),
    ];
    let groups = vec![Group::new("zfs arc", sizes.chain(rates).collect())];
    Ok(Box::new(Arc { file: setup.files.share(STATS), last: None, groups }))
}

fn value(text: &[u8], name: &[u8]) -> Option<u64> {
    scan::words(scan::after_key(text, name)?).nth(1).and_then(scan::whole_number)
}

/// A block that is being read already (`iohits`, since 2.2) is not asked for again: no miss.
fn accesses(text: &[u8]) -> Option<Accesses> {
    let misses = value(text, b"misses")?;
    let found = value(text, b"hits")?.saturating_add(value(text, b"iohits").unwrap_or(0));
    Some(Accesses { misses, all: found.saturating_add(misses) })
}

impl Module for Arc {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        let text = files.text(self.file);
        row.extend(
            SIZES.map(|size| value(text, size.2).map_or(f64::NAN, |bytes| bytes as f64 / MIB)),
        );
        let found = accesses(text);
        row.extend(match (self.last, found) {
            (Some(before), Some(after)) => {
                let all = change(before.all, after.all);
                let misses = change(before.misses, after.misses);
                [
                    ratio(all, now.span),
                    ratio(misses, now.span),
                    percent((all - misses).max(0.0), all),
                ]
            }
            _ => [f64::NAN; 3],
        });
        self.last = found;
    }
}
