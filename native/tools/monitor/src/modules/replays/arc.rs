//! What ZFS tells of its cache.

use super::{between, check, NAN};
use crate::choices::Choices;

const STATS: &str = "proc/spl/kstat/zfs/arcstats";

fn stats(hits: u64, more: &str, misses: u64) -> String {
    format!(
        "9 1 0x01 123 33456 7000000000 9000000000\nname                            type data\n\
         hits                            4    {hits}\n{more}\
         misses                          4    {misses}\n\
         demand_data_hits                4    999\nc                               4    104857600\n\
         c_min                           4    7\nsize                            4    52428800\n\
         compressed_size                 4    8\nmru_size                        4    1048576\n\
         mfu_size                        4    3145728\nmfu_ghost_size                  4    9\n"
    )
}

#[test]
fn sizes_and_what_was_found_between_two_moments() {
    let got =
        between("arc", &Choices::default(), STATS, [&stats(1000, "", 500), &stats(1150, "", 550)]);
    check(
        &got,
        &[
            ("arc.size", 50.0),
            ("arc.target", 100.0),
            ("arc.mru", 1.0),
            ("arc.mfu", 3.0),
            ("arc.accesses", 100.0),
            ("arc.misses", 25.0),
            ("arc.hit", 75.0),
        ],
    );
}

#[test]
fn what_is_being_read_already_is_no_miss() {
    let iohits = |count| format!("iohits                          4    {count}\n");
    let texts = [stats(1000, &iohits(10), 500), stats(1040, &iohits(30), 540)];
    let got = between("arc", &Choices::default(), STATS, [&texts[0], &texts[1]]);
    check(&got, &[("arc.accesses", 50.0), ("arc.misses", 20.0), ("arc.hit", 60.0)]);
}

#[test]
fn what_is_not_told_is_not_known() {
    let choices = Choices::default();
    let idle = stats(1000, "", 500);
    let got = between("arc", &choices, STATS, [&idle, &idle]);
    check(&got, &[("arc.accesses", 0.0), ("arc.misses", 0.0), ("arc.hit", NAN)]);
    // The module went and came back: its counters begin anew.
    let got = between("arc", &choices, STATS, [&idle, &stats(3, "", 2)]);
    check(&got, &[("arc.accesses", 0.0), ("arc.misses", 0.0), ("arc.hit", NAN)]);
    for text in ["", "hits 4\nmisses 4 -1\nsize 4 x\n"] {
        let got = between("arc", &choices, STATS, [text; 2]);
        assert!(got.len() == 7 && got.iter().all(|(_, value)| value.is_nan()), "{got:?}");
    }
}

/// OpenZFS 2.1.11 under Linux 6.1: before and after a file of 40 MiB was read, from the disk and
/// then once more from the cache.
#[test]
fn a_kernel_that_has_it() {
    let texts = [include_str!("arcstats/before"), include_str!("arcstats/after")];
    let got = between("arc", &Choices::default(), STATS, texts);
    check(
        &got,
        &[
            ("arc.size", 46_201_008.0 / 1048576.0),
            ("arc.target", 82_016_256.0 / 1048576.0),
            ("arc.mru", 95_744.0 / 1048576.0),
            ("arc.mfu", 45_133_312.0 / 1048576.0),
            ("arc.accesses", 3398.5),
            ("arc.misses", 189.0),
            ("arc.hit", 100.0 * 6419.0 / 6797.0),
        ],
    );
}
