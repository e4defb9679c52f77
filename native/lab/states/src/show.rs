//! One state, made again in a directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskproof_wire::crash_log::ROOT;
use rustix::fs::{mknodat, setxattr, FileType, Mode, XattrFlags, CWD};
use rustix::io::Errno;

use crate::choice::{Presence, StateId};
use crate::content::Store;
use crate::cut::{collect, Cut};
use crate::failure::{During, Failure, Result};
use crate::fault::Durability;
use crate::image::Image;
use crate::operation::Operations;
use crate::report::{say, Line};
use crate::snapshot::{Node, Snapshot};
use crate::state::read_runs;

/// Bytes copied at once.
const BLOCK: u64 = 1 << 20;

/// Reads the log, and goes to the state's cut.
pub fn with_cut<T>(
    store: &Arc<Store>,
    id: &StateId,
    work: impl FnOnce(&Cut<'_, '_>) -> Result<T>,
) -> Result<T> {
    if id.cut > store.trace.last() {
        return Err(Failure::new("finding the state", "its cut is behind the end of the log"));
    }
    let durability = Durability::new(&store.trace, id.fault);
    let mut image = Image::new(store, &durability);
    image.advance(id.cut).during("building the state")?;
    let under_way = image.push_under_way().during("building the state")?;
    work(&collect(&image, &under_way))
}

/// Reads log and base as a state's name says.
fn open(log: &Path, base: &Path, id: Option<&StateId>) -> Result<Arc<Store>> {
    let store = Store::open(log, base, id.map(|id| id.sector))?;
    let store = store.with_discards(id.and_then(|id| id.discard_granularity))?;
    Ok(Arc::new(match id {
        Some(id) => store.under(id.fault),
        None => store,
    }))
}

/// Makes the state in a new directory.
pub fn show(log: &Path, base: &Path, id: &StateId, to: &Path) -> Result<()> {
    let store = open(log, base, Some(id))?;
    let snapshot = with_cut(&store, id, |cut| {
        let state = cut.state(&id.choice).during("building the state")?;
        Ok(Snapshot::new(&state))
    })?;
    let mut making = Making { store: &store, snapshot: &snapshot, made: HashMap::new() };
    let made = making.make(ROOT, to);
    made.during(format!("making {}", to.display()))
}

/// Tells each record by its operation and paths: all, or those that a state knows, each change with
/// what became of it there.
pub fn list(log: &Path, base: &Path, id: Option<&StateId>) -> Result<()> {
    let store = open(log, base, id)?;
    let (mut presences, mut last) = (HashMap::new(), store.trace.last());
    if let Some(id) = id {
        presences = with_cut(&store, id, |cut| {
            let presences = cut.presences(&id.choice);
            let found = cut.candidates.iter().zip(&presences);
            Ok(found.map(|(one, presence)| (one.sequence, cut.word(one, presence))).collect())
        })?;
        last = id.cut;
    }
    for named in Operations::new(&store.trace) {
        let known = presences.get(&named.sequence).copied();
        let changes = id.is_some() && store.trace.change(named.sequence).is_some();
        if named.sequence <= last || known.is_some() {
            let presence = known.or(changes.then_some(Presence::Present.word()));
            say(&Line::Operation { named: &named, presence });
        }
    }
    Ok(())
}

struct Making<'a> {
    store: &'a Store,
    snapshot: &'a Snapshot,
    /// Where a file was made, for its other names.
    made: HashMap<u64, PathBuf>,
}

impl Making<'_> {
    /// Owners stay those of who makes it, so set-ID bits and what only root may set are left out;
    /// devices and sockets are too.
    fn make(&mut self, file: u64, path: &Path) -> io::Result<()> {
        if let Some(first) = self.made.get(&file) {
            return std::fs::hard_link(first, path);
        }
        let snapshot = self.snapshot;
        let node = &snapshot.nodes[&file];
        match node.attributes.mode & libc::S_IFMT {
            libc::S_IFDIR => {
                DirBuilder::new().mode(0o700).create(path)?;
                for (name, &inner) in &node.entries {
                    self.make(inner, &path.join(OsStr::from_bytes(name)))?;
                }
            }
            libc::S_IFLNK => return symlink(OsStr::from_bytes(&node.target), path),
            libc::S_IFREG => {
                let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                self.fill(file, node, &new)?;
                self.made.insert(file, path.to_owned());
            }
            libc::S_IFIFO => {
                mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
                self.made.insert(file, path.to_owned());
            }
            _ => return Ok(()),
        }
        for (name, value) in &node.attributes.extended {
            if name.starts_with(b"user.") {
                match setxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        std::fs::set_permissions(path, Permissions::from_mode(node.attributes.mode & 0o777))
    }

    /// Only what is not zeros takes space.
    fn fill(&self, file: u64, node: &Node, to: &File) -> io::Result<()> {
        to.set_len(node.size)?;
        let sector = self.store.trace.sector;
        let based = self.store.base.data(file, 0, node.size);
        let changed =
            node.runs.iter().map(|run| (run.start * sector, run.end.saturating_mul(sector)));
        let mut parts: Vec<(u64, u64)> = based.chain(changed).collect();
        parts.sort_unstable();
        let mut buffer = vec![0; BLOCK as usize];
        let mut done = 0;
        for (from, until) in parts {
            let mut at = from.max(done);
            let until = until.min(node.size);
            while at < until {
                let part = &mut buffer[..BLOCK.min(until - at) as usize];
                read_runs(self.store, file, &node.runs, node.size, at, part)?;
                if !crate::content::is_zero(part) {
                    to.write_all_at(part, at)?;
                }
                at += part.len() as u64;
            }
            done = done.max(at);
        }
        Ok(())
    }
}
