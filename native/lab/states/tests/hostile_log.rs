//! Logs that nobody recorded: explored in every way, or refused.

#![cfg(test)]

mod logs;
#[path = "../../../shared/wire/tests/sealed_log/mod.rs"]
mod sealed_log;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use diskproof_states::causes::likeness::Steps;
use diskproof_states::content::Store;
use diskproof_states::cut::{collect, Cut};
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::plan::{choices, Cuts, Pass};
use diskproof_states::snapshot::Snapshot;
use logs::{Recording, SECTOR};
use rustix::fs::{memfd_create, MemfdFlags};
use sealed_log::sealed;

/// What is explored of one log: enough for any two records to meet, little enough to be quick.
const RECORDS: u64 = 24;
const STATES: usize = 6;

#[test]
fn any_log_is_explored_or_refused() {
    let mut recording = Recording::new(&[7; 5 * SECTOR as usize]);
    let (_, base) = recording.finish();
    let log = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
    let path = format!("/proc/self/fd/{}", log.as_raw_fd());
    bolero::check!(name = "log").for_each(|bytes: &[u8]| {
        let bytes = sealed(bytes);
        log.set_len(0).unwrap();
        log.write_all_at(&bytes, 0).unwrap();
        let Ok(store) = Store::open(Path::new(&path), &base, None) else { return };
        let steps = Steps::new(&store.trace);
        assert!(
            (1..=store.trace.last()).all(|record| steps.of(record) <= store.trace.last() as u32)
        );
        for fault in Fault::ALL {
            explore(&store, fault);
        }
    });
}

fn explore(store: &Store, fault: Fault) {
    let durability = Durability::new(&store.trace, fault);
    let cuts = Cuts::new(&store.trace, &durability, 1);
    let mut image = Image::new(store, &durability);
    for cut in 0..=store.trace.last().min(RECORDS) {
        image.advance(cut).unwrap();
        let under_way = image.push_under_way().unwrap();
        build(&cuts, &collect(&image, &under_way));
        image.retract(&under_way);
    }
}

/// Builds some states of a cut, and reads the begin of each of their files.
fn build(cuts: &Cuts, cut: &Cut<'_, '_>) {
    for pass in [Pass::Single, Pass::Quick, Pass::Alone, Pass::Random(0)] {
        for choice in choices(pass, cuts, cut, 1, STATES) {
            let state = cut.state(&choice).unwrap();
            let snapshot = Snapshot::new(&state);
            for (file, node) in &snapshot.nodes {
                if node.is_regular() {
                    let mut begin = [0; 3 * SECTOR as usize];
                    state.read(*file, 100, &mut begin).unwrap();
                }
            }
        }
    }
}
