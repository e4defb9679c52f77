//! The same for programs. Times are nanoseconds, so that sums stay exact.

use serde::Serialize;

use crate::advice::find_advice;
use crate::session::Session;
use crate::tally::Latencies;

/// Raised whenever a reader of the old version would misread the object.
const PROTOCOL: u32 = 1;
const MOST_WAITS: usize = 100;

#[derive(Serialize)]
struct Report<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    protocol: u32,
    mechanism: &'static str,
    command: &'a [String],
    pid: i32,
    exit_code: Option<u8>,
    wall_ns: u64,
    calls: u64,
    errors: u64,
    total_ns: u64,
    busy_ns: u64,
    max_ns: u64,
    late: u64,
    lost: u64,
    not_seen: Vec<String>,
    by_call: Vec<ByCall<'a>>,
    groups: Vec<GroupLine<'a>>,
    writers: Vec<WriterLine<'a>>,
    waits: Vec<WaitLine<'a>>,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct ByCall<'a> {
    process: &'a str,
    call: &'static str,
    calls: u64,
    errors: u64,
    total_ns: u64,
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    max_ns: u64,
    histogram: Vec<Bin>,
}

#[derive(Serialize)]
struct Bin {
    from_ns: u64,
    calls: u64,
}

#[derive(Serialize)]
struct GroupLine<'a> {
    process: &'a str,
    pid: i32,
    call: &'static str,
    file: &'a str,
    calls: u64,
    errors: u64,
    total_ns: u64,
    max_ns: u64,
}

#[derive(Serialize)]
struct WriterLine<'a> {
    process: &'a str,
    pid: i32,
    syncs: u64,
    written_bytes: u64,
    empty: u64,
}

#[derive(Serialize)]
struct WaitLine<'a> {
    waiter: &'a str,
    waiter_pid: i32,
    beside: &'a str,
    beside_pid: i32,
    file: &'a str,
    calls: u64,
    together_ns: u64,
}

#[expect(clippy::expect_used, reason = "strings and numbers become JSON in any case")]
pub fn render_json(session: &Session) -> String {
    let tally = &session.tally;
    let report = Report {
        kind: "sync_trace",
        protocol: PROTOCOL,
        mechanism: session.mechanism.name(),
        command: &session.command,
        pid: session.pid,
        exit_code: session.exit_code,
        wall_ns: session.wall(),
        calls: tally.sums.calls,
        errors: tally.sums.errors,
        total_ns: tally.sums.total,
        busy_ns: tally.busy.total(),
        max_ns: tally.sums.most,
        late: tally.late,
        lost: session.lost,
        not_seen: session.mechanism.not_seen(session.unreached.as_deref(), session.writes),
        by_call: by_call(session),
        groups: groups(session),
        writers: writers(session),
        waits: waits(session),
        advice: find_advice(tally, session.wall()),
    };
    let text = serde_json::to_string(&report).expect("numbers and strings can be written");
    text + "\n"
}

fn by_call(session: &Session) -> Vec<ByCall<'_>> {
    let mut lines = Vec::new();
    for ((process, call), latencies) in &session.tally.latencies {
        lines.push(ByCall {
            process,
            call: call.name(),
            calls: latencies.sums.calls,
            errors: latencies.sums.errors,
            total_ns: latencies.sums.total,
            mean_ns: latencies.sums.mean(),
            p50_ns: latencies.percentile(50.0),
            p99_ns: latencies.percentile(99.0),
            p99_9_ns: latencies.percentile(99.9),
            max_ns: latencies.sums.most,
            histogram: histogram(latencies),
        });
    }
    lines
}

fn histogram(latencies: &Latencies) -> Vec<Bin> {
    let bins = latencies.powers.iter().enumerate().filter(|(_, calls)| **calls > 0);
    bins.map(|(power, calls)| Bin { from_ns: 1 << power, calls: *calls }).collect()
}

fn groups(session: &Session) -> Vec<GroupLine<'_>> {
    let mut lines = Vec::new();
    for (group, sums) in session.tally.sorted_groups() {
        lines.push(GroupLine {
            process: &group.process,
            pid: group.pid,
            call: group.call.name(),
            file: &group.file,
            calls: sums.calls,
            errors: sums.errors,
            total_ns: sums.total,
            max_ns: sums.most,
        });
    }
    lines
}

fn writers(session: &Session) -> Vec<WriterLine<'_>> {
    let writers = session.tally.writers.iter().filter(|(_, writer)| writer.syncs > 0);
    writers
        .map(|(pid, writer)| WriterLine {
            process: &writer.process,
            pid: *pid,
            syncs: writer.syncs,
            written_bytes: writer.written,
            empty: writer.empty,
        })
        .collect()
}

fn waits(session: &Session) -> Vec<WaitLine<'_>> {
    let mut lines = Vec::new();
    for (pair, (calls, together)) in session.tally.waits.sorted().into_iter().take(MOST_WAITS) {
        lines.push(WaitLine {
            waiter: &pair.waiter.1,
            waiter_pid: pair.waiter.0,
            beside: &pair.before.1,
            beside_pid: pair.before.0,
            file: &pair.file,
            calls,
            together_ns: together,
        });
    }
    lines
}
