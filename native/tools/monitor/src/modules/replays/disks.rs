//! Disks: the formulas of iostat, kernels of all ages, wraps, and disks that go.

use std::path::{Path, PathBuf};

use super::{between, check, replay, Trees, NAN};
use crate::choices::Choices;

fn disk(kind: &str, name: &str, texts: [&str; 2]) -> Vec<(String, f64)> {
    let choices = Choices { disks: vec![name.to_owned()], ..Choices::default() };
    between(kind, &choices, "proc/diskstats", texts)
}

#[test]
fn a_disk_by_the_formulas_of_iostat() {
    let got = disk(
        "disk-ext",
        "vda",
        [
            " 254 0 vda 100 5 2048 50 200 7 4096 60 0 1000 110 10 1 800 20 10 5\n",
            " 254 0 vda 300 15 6144 90 600 27 20480 460 3 1200 910 30 3 2400 30 40 65\n",
        ],
    );
    check(
        &got,
        &[
            ("disk.vda.read_iops", 100.0),
            ("disk.vda.write_iops", 200.0),
            ("disk.vda.read", 1.0),
            ("disk.vda.write", 4.0),
            ("disk.vda.read_merged", 5.0),
            ("disk.vda.write_merged", 10.0),
            ("disk.vda.read_await", 0.2),
            ("disk.vda.write_await", 1.0),
            ("disk.vda.read_size", 10.24),
            ("disk.vda.write_size", 20.48),
            ("disk.vda.discard_iops", 10.0),
            ("disk.vda.discard_await", 0.5),
            ("disk.vda.discard_size", 40.0),
            ("disk.vda.flush", 15.0),
            ("disk.vda.flush_await", 2.0),
            ("disk.vda.aqu_sz", 0.4),
            ("disk.vda.areq_sz", (4096.0 + 16384.0 + 1600.0) / 2.0 / 620.0),
            ("disk.vda.util", 10.0),
            ("disk.vda.efficiency", 0.5),
            ("disk.vda.in_flight", 3.0),
        ],
    );
}

#[test]
fn older_kernels_have_no_flushes_or_discards() {
    let fields15 =
        ["8 0 sda 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0\n", "8 0 sda 3 0 24 5 1 0 8 1 0 3 5 4 0 0 2\n"];
    let got = disk("disk-ext", "sda", fields15);
    check(
        &got,
        &[("disk.sda.discard_iops", 2.0), ("disk.sda.flush", NAN), ("disk.sda.read_await", 2.0)],
    );
    let fields11 = ["8 0 sda 1 0 8 1 1 0 8 1 0 1 1\n", "8 0 sda 3 0 24 5 1 0 8 1 0 3 5\n"];
    let got = disk("disk-ext", "sda", fields11);
    check(
        &got,
        &[("disk.sda.discard_iops", NAN), ("disk.sda.flush", NAN), ("disk.sda.read_iops", 1.0)],
    );
    check(&got, &[("disk.sda.areq_sz", 4.0), ("disk.sda.write_await", NAN)]);
    // Partitions before 2.6.25 have four fields.
    let choices = Choices::default();
    let got = between("disk", &choices, "proc/diskstats", ["8 1 sda1 1 8 1 8\n"; 2]);
    check(&got, &[("disk.read", NAN)]);
}

#[test]
fn milliseconds_wrap_after_fifty_days_and_a_new_disk_of_that_name_has_not_gone_back() {
    let line = |reads: u64, ms: u64, busy: u64| {
        format!("8 0 sda {reads} 0 {reads} {ms} 0 0 0 0 0 {busy} {ms}\n")
    };
    let wrapped = [line(10, 4_294_967_200, 4_294_967_290), line(20, 104, 994)];
    let got = disk("disk-ext", "sda", [&wrapped[0], &wrapped[1]]);
    check(
        &got,
        &[("disk.sda.read_await", 20.0), ("disk.sda.aqu_sz", 0.1), ("disk.sda.util", 50.0)],
    );
    let anew = [line(9_000_000, 700_000, 700_000), line(3, 1, 1)];
    let got = disk("disk-ext", "sda", [&anew[0], &anew[1]]);
    check(
        &got,
        &[("disk.sda.read_iops", 0.0), ("disk.sda.read_await", NAN), ("disk.sda.util", 0.0)],
    );
}

#[test]
fn a_disk_that_goes_is_unknown_until_it_has_been_back_for_an_interval() {
    let trees = Trees::new();
    let line = |reads: u32| {
        format!("8 0 sda {reads} 0 8 1 1 0 8 1 0 1 1\n8 16 sdb 5 0 8 1 1 0 8 1 0 1 1\n")
    };
    let gone = "8 16 sdb 5 0 8 1 1 0 8 1 0 1 1\n";
    let texts = [line(10), gone.to_owned(), line(1000), line(1004)];
    let roots: Vec<PathBuf> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| trees.add(at, &[("proc/diskstats", text)]))
        .collect();
    let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
    let choices = Choices { disks: vec!["sda".into(), "total".into()], ..Choices::default() };
    for (moments, sda, total) in [(2, NAN, 0.0), (3, NAN, 0.0), (4, 2.0, 2.0)] {
        let got = replay("io", &choices, 2.0, &roots[..moments]);
        check(&got, &[("disk.sda.read_iops", sda), ("disk.read_iops", total)]);
    }
}
