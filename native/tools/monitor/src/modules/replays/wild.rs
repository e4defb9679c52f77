//! What no kernel writes.

use proptest::prelude::*;

use super::super::{cpu, disk, KINDS};
use super::{replay, Trees};
use crate::choices::Choices;
use crate::files::Files;
use crate::module::Setup;

/// The files that modules here read.
const FILES: [&str; 14] = [
    "proc/stat",
    "proc/diskstats",
    "proc/meminfo",
    "proc/vmstat",
    "proc/net/dev",
    "proc/loadavg",
    "proc/interrupts",
    "proc/pressure/io",
    "proc/pressure/cpu",
    "proc/net/sockstat",
    "proc/sys/fs/inode-nr",
    "proc/7/stat",
    "proc/7/io",
    "sys/kernel/mm/ksm/pages_shared",
];

/// Keys and separators as the kernel writes them, around any numbers: more likely to get far than
/// noise is.
fn kernel_like() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        (0u64..1000).prop_map(|number| number.to_string()),
        "[ -~]{0,6}",
        prop::sample::select(vec![
            "cpu",
            "cpu0",
            "sda",
            "total=",
            "some",
            "full",
            "MemTotal:",
            "MemFree:",
            "Cached:",
            "intr",
            "ctxt",
            "eth0:",
            "24:",
            "TCP:",
            "read_bytes:",
            "(x)",
            "Z",
            "R",
            "\n",
            "\n",
            "-1",
            "99999999999999999999",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(word, 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_makes_a_module_panic_or_a_value_absurd(texts in prop::array::uniform2(kernel_like()), full: bool) {
        let trees = Trees::new();
        let roots = [0, 1].map(|at| trees.add(at, &FILES.map(|path| (path, texts[at].as_str()))));
        let choices = Choices { full, pids: vec![7], ..Choices::default() };
        for kind in KINDS.iter().filter(|kind| !["vm", "program"].contains(&kind.name)) {
            for (name, value) in replay(kind.name, &choices, 2.0, &[&roots[0], &roots[1]]) {
                prop_assert!(value.is_nan() || value >= 0.0, "{name} {value}");
                let share = name.starts_with("cpu.") || name.ends_with(".util") || name.starts_with("psi.");
                prop_assert!(value.is_nan() || !share || value <= 100.0 + 1e-9, "{name} {value}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_number(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        use crate::scan;
        let _ = disk::counters::parse(&noise);
        let _ = cpu::Ticks::find(&noise, b"cpu");
        for word in scan::words(&noise) {
            let plain = std::str::from_utf8(word).ok().filter(|word| word.bytes().all(|b| b.is_ascii_digit()));
            prop_assert_eq!(scan::whole_number(word), plain.and_then(|word| word.parse::<u64>().ok()));
        }
    }
}

#[test]
fn names_are_unique_over_all_modules_unless_they_mean_the_same() {
    let choices = Choices { pids: vec![1], ..Choices::default() };
    let mut units: std::collections::HashMap<String, _> = std::collections::HashMap::new();
    for kind in KINDS.iter().filter(|kind| kind.name != "program") {
        let mut files = Files::new("/");
        let module = (kind.open)(&mut Setup { files: &mut files, choices: &choices }).unwrap();
        for column in module.groups().iter().flat_map(|group| &group.columns) {
            let known = units.entry(column.name.clone()).or_insert(column.unit);
            assert_eq!(*known, column.unit, "{}", column.name);
        }
    }
}
