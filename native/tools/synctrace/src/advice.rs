//! What the figures suggest, in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::Call;
use crate::quantities::{render_bytes, render_count, render_percent, render_time};
use crate::tally::Tally;

/// Fewer calls give no rule.
const FEW: u64 = 20;
/// Below this share of the wall time syncs are not the program's problem.
const SMALL_SHARE: f64 = 0.01;
/// Bytes between two syncs that a group commit would make more of.
const SMALL_BATCH: f64 = 65_536.0;
/// Share of syncs with nothing new that is worth a word.
const MANY_EMPTY: f64 = 0.2;

pub fn find_advice(tally: &Tally, wall: u64) -> Vec<String> {
    if tally.sums.calls == 0 {
        return vec!["nothing was synced: what was written may be lost in a power cut".into()];
    }
    let busy = tally.busy.total();
    if (busy as f64) < wall as f64 * SMALL_SHARE {
        let share = render_percent(busy, wall);
        return vec![format!("syncs take {share} of the time: look elsewhere")];
    }
    let mut advice = Vec::new();
    let spent = time_by_process(tally);
    for (process, (syncs, written, empty)) in tally.writers_by_name() {
        let time = spent.get(&process).copied().unwrap_or(0);
        if syncs < FEW || (time as f64) < wall as f64 * SMALL_SHARE {
            continue;
        }
        let Some(written) = written else { continue };
        if empty as f64 >= syncs as f64 * MANY_EMPTY {
            advice.push(empty_advice(&process, syncs, empty));
        }
        let between = written as f64 / syncs as f64;
        if (1.0..SMALL_BATCH).contains(&between) {
            advice.push(batch_advice(&process, syncs, between, time));
        }
    }
    advice.extend(call_advice(tally, wall));
    advice
}

fn time_by_process(tally: &Tally) -> BTreeMap<Arc<str>, u64> {
    let mut spent = BTreeMap::<Arc<str>, u64>::new();
    for ((process, _), latencies) in &tally.latencies {
        *spent.entry(process.clone()).or_default() += latencies.sums.total;
    }
    spent
}

fn batch_advice(process: &str, syncs: u64, between: f64, time: u64) -> String {
    format!(
        "{process}: {} syncs of {}: group commits; ten in one would save up to {}",
        render_count(syncs),
        render_bytes(between),
        render_time(time / 10 * 9)
    )
}

fn empty_advice(process: &str, syncs: u64, empty: u64) -> String {
    format!(
        "{process}: {} of {} syncs came with nothing written since the last one: leave them out, \
         unless they follow renames, links or stores to mapped memory",
        render_count(empty),
        render_count(syncs)
    )
}

/// Calls for which there is a cheaper one.
fn call_advice(tally: &Tally, wall: u64) -> Vec<String> {
    let mut advice = Vec::new();
    for ((process, call), latencies) in &tally.latencies {
        let sums = &latencies.sums;
        if (sums.total as f64) < wall as f64 * SMALL_SHARE {
            continue;
        }
        match call {
            Call::Sync => advice.push(format!(
                "{process}: sync waits for everybody's data; syncfs or fsync of its own files \
                 would wait less"
            )),
            Call::Fsync if sums.calls >= FEW => advice.push(format!(
                "{process}: where only data change and not the file's size, fdatasync saves the \
                 write of the inode"
            )),
            _ => {}
        }
    }
    advice
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
