//! What no kernel writes.

use super::super::{cpu, disk, KINDS};
use super::{replay, Trees};
use crate::choices::Choices;
use crate::files::Files;
use crate::module::Setup;
use crate::scan;

/// The files that modules here read.
const FILES: [&str; 15] = [
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
    "proc/spl/kstat/zfs/arcstats",
    "proc/7/stat",
    "proc/7/io",
    "sys/kernel/mm/ksm/pages_shared",
];

/// Two moments of a machine all of whose files hold the same: what stands before and behind the
/// first 0xff.
#[test]
fn no_text_makes_a_module_panic_or_a_value_absurd() {
    let trees = Trees::new();
    let roots = [0, 1].map(|at| {
        let root = trees.add(at, &[("text", "")]);
        for path in FILES.map(|path| root.join(path)) {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(root.join("text"), path).unwrap();
        }
        root
    });
    bolero::check!(name = "kernel").for_each(|input: &[u8]| {
        let full = input.first().is_some_and(|first| first % 2 == 1);
        let choices = Choices { full, pids: vec![7], ..Choices::default() };
        let mut texts = input.splitn(2, |&byte| byte == 0xff);
        for root in &roots {
            std::fs::write(root.join("text"), texts.next().unwrap_or(input)).unwrap();
        }
        for kind in KINDS.iter().filter(|kind| !["vm", "program"].contains(&kind.name)) {
            for (name, value) in replay(kind.name, &choices, 2.0, &[&roots[0], &roots[1]]) {
                assert!(value.is_nan() || value >= 0.0, "{name} {value}");
                let share = name.starts_with("cpu.")
                    || name.starts_with("psi.")
                    || name.ends_with(".util")
                    || name == "arc.hit";
                assert!(value.is_nan() || !share || value <= 100.0 + 1e-9, "{name} {value}");
            }
        }
    });
}

#[test]
fn bytes_that_are_no_text_are_no_number() {
    bolero::check!(name = "numbers").for_each(|noise: &[u8]| {
        let _ = disk::counters::parse(noise);
        let _ = cpu::Ticks::find(noise, b"cpu");
        for word in scan::words(noise) {
            let plain = std::str::from_utf8(word).ok();
            let plain = plain.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(scan::whole_number(word), plain.and_then(|word| word.parse::<u64>().ok()));
            assert!(scan::decimal(word).is_none_or(|number| number >= 0.0));
        }
    });
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
