//! All modules but those about disks.

use super::{between, check, replay, Trees, NAN};
use crate::choices::Choices;

#[test]
fn cpu_of_a_kernel_of_today_and_of_one_without_steal() {
    let choices = Choices { full: true, ..Choices::default() };
    let stat = [
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1000 100 500 8000 200 50 50 100 7 7\ncpu1 10 0 0 10\nintr 5 0\n",
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1030 110 520 8100 220 55 55 110 9 9\ncpu1 25 0 0 15\nintr 9 0\n",
    ];
    // cpu0: 200 ticks in all: 40 user and nice, 20 + 5 + 5 system, 20 waiting, 10 stolen; guest
    // time is in user already.
    check(
        &between("cpu", &choices, "proc/stat", stat),
        &[
            ("cpu.0.user", 20.0),
            ("cpu.0.system", 15.0),
            ("cpu.0.idle", 50.0),
            ("cpu.0.iowait", 10.0),
            ("cpu.0.steal", 5.0),
            ("cpu.0.true_load", 35.0),
            ("cpu.1.user", 75.0),
            ("cpu.1.true_load", 75.0),
            ("cpu.1.iowait", 0.0),
        ],
    );
    check(
        &between("cpu", &Choices::default(), "proc/stat", stat),
        // No tick has passed: nothing to divide by.
        &[("cpu.user", NAN), ("cpu.true_load", NAN)],
    );
}

#[test]
fn memory_with_and_without_the_page_cache() {
    let meminfo = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 5242880 kB\nBuffers: 1024 kB\n\
        Cached: 3145728 kB\nSwapCached: 9 kB\nShmem: 524288 kB\nSReclaimable: 102400 kB\nSwapTotal: 2048 kB\n\
        SwapFree: 1024 kB\nDirty: 2048 kB\nWriteback: 1024 kB\nWritebackTmp: 7 kB\n";
    let choices = Choices::default();
    // 8192 - 1024 = 7168 in use; less 1 of buffers and 3072 + 100 - 512 of cache.
    check(
        &between("mem", &choices, "proc/meminfo", [meminfo; 2]),
        &[
            ("memory.used", 4507.0),
            ("memory.used_with_cache", 7168.0),
            ("memory.free", 1024.0),
            ("memory.buffers", 1.0),
            ("memory.cached", 3072.0),
            ("memory.available", 5120.0),
        ],
    );
    let dirty = between("dirty", &choices, "proc/meminfo", [meminfo; 2]);
    check(&dirty, &[("memory.dirty", 2.0), ("memory.writeback", 1.0)]);
    let swap = between("swap", &choices, "proc/meminfo", [meminfo; 2]);
    check(&swap, &[("swap.used", 1.0), ("swap.free", 1.0)]);
    let old = "MemTotal: 2048 kB\nMemFree: 1024 kB\nBuffers: 0 kB\nCached: 512 kB\n";
    let got = between("mem", &choices, "proc/meminfo", [old; 2]);
    check(&got, &[("memory.used", 0.5), ("memory.available", NAN)]);
}

#[test]
fn pressure_where_the_kernel_has_it() {
    let trees = Trees::new();
    let text = |io: u64, full: u64| {
        format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={io}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n")
    };
    let (before, after) = (text(1000, 500), text(501_000, 3_000_000));
    let roots = [
        trees.add(0, &[("proc/pressure/io", &before), ("proc/pressure/cpu", "some avg10=x\n")]),
        trees.add(1, &[("proc/pressure/io", &after), ("proc/pressure/cpu", "some avg10=x\n")]),
    ];
    let got = replay("psi", &Choices::default(), 2.0, &[&roots[0], &roots[1]]);
    check(&got, &[("psi.io", 25.0), ("psi.io_full", 100.0), ("psi.cpu", NAN), ("psi.memory", NAN)]);
}

#[test]
fn network_devices_come_and_go() {
    let dev = |lines: &[(&str, u64, u64)]| {
        let mut text = "Inter-|   Receive\n face |bytes packets\n".to_owned();
        for (name, received, sent) in lines {
            text += &format!(
                "{name:>6}:{received} {} 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n",
                received / 10
            );
        }
        text
    };
    let texts = [
        dev(&[("lo", 5, 5), ("eth0", 1000, 50), ("tap0", 70, 70)]),
        dev(&[("lo", 900, 900), ("eth0", 3000, 150), ("eth1", 1 << 40, 9)]),
    ];
    let choices = Choices {
        nets: ["eth0", "tap0", "lo", "total"].map(str::to_owned).to_vec(),
        ..Choices::default()
    };
    let got = between("net", &choices, "proc/net/dev", [&texts[0], &texts[1]]);
    check(
        &got,
        &[
            ("net.eth0.receive", 1000.0),
            ("net.eth0.send", 50.0),
            ("net.tap0.receive", NAN),
            ("net.lo.receive", 447.5),
            ("net.receive", 1000.0),
        ],
    );
    let got = between("net-packets", &choices, "proc/net/dev", [&texts[0], &texts[1]]);
    check(&got, &[("net.eth0.packets_received", 100.0), ("net.eth0.packets_sent", 0.0)]);
}

#[test]
fn interrupts_by_number_by_name_and_the_busiest() {
    let text = |vda: u64, timer: u64| {
        format!(
            "           CPU0       CPU1\n 24:  {vda}  10  PCI-MSIX  1-edge  virtio1-req.0\n 25: 1 1 IO-APIC ttyS0\n\
             LOC: {timer} {timer}   Local timer interrupts\n 26: 0 0 idle\nERR:  3\n"
        )
    };
    let texts = [text(100, 500), text(300, 600)];
    let busiest = between("int", &Choices::default(), "proc/interrupts", [&texts[0], &texts[1]]);
    check(
        &busiest,
        &[("interrupts.24", 100.0), ("interrupts.LOC", 100.0), ("interrupts.ERR", 0.0)],
    );
    let interrupts = ["virtio1", "24", "LOC"].map(str::to_owned).to_vec();
    let choices = Choices { interrupts, ..Choices::default() };
    let got = between("int", &choices, "proc/interrupts", [&texts[0], &texts[1]]);
    assert_eq!(got.len(), 2, "{got:?}");
}

#[test]
fn a_process_with_any_name_and_one_that_dies() {
    let stat = |state: char, ticks: u64, started: u64| {
        format!("7 (a) b) {state} 1 7 7 0 -1 4194560 1 0 0 0 {ticks} 10 0 0 20 0 1 0 {started} 1000000 256 0\n")
    };
    let io = |bytes: u64| format!("rchar: 1\nread_bytes: {bytes}\nwrite_bytes: 0\n");
    let trees = Trees::new();
    let tree =
        |at, stat: &str, io: &str| trees.add(at, &[("proc/7/stat", stat), ("proc/7/io", io)]);
    let a = tree(0, &stat('R', 100, 5), &io(1000));
    let b = tree(1, &stat('S', 200, 5), &io(5000));
    let choices = Choices { pids: vec![7], ..Choices::default() };
    let got = replay("process", &choices, 2.0, &[&a, &b]);
    check(&got, &[("process.cpu", 50.0), ("process.read", 2000.0), ("process.rss", 1.0)]);
    for (at, text) in [stat('Z', 200, 5), String::new()].iter().enumerate() {
        let dead = tree(2 + at, text, "");
        let got = replay("process", &choices, 2.0, &[&a, &dead]);
        check(&got, &[("process.cpu", NAN), ("process.rss", NAN), ("process.write", NAN)]);
    }
    let number_used_again = tree(9, &stat('R', 900, 77), &io(9));
    let got = replay("process", &choices, 2.0, &[&a, &number_used_again]);
    check(&got, &[("process.cpu", NAN)]);
    let secret = tree(10, &stat('R', 300, 5), "");
    let got = replay("process", &choices, 2.0, &[&a, &secret]);
    check(&got, &[("process.cpu", 100.0), ("process.read", NAN)]);
}

#[test]
fn single_numbers_of_the_kernel() {
    let choices = Choices::default();
    let stat = [
        "intr 50 1 2\nctxt 1000\nprocesses 10\nprocs_running 3\nprocs_blocked 1\n",
        "intr 90 1 2\nctxt 1500\nprocesses 14\nprocs_running 5\nprocs_blocked 2\n",
    ];
    let got = between("sys", &choices, "proc/stat", stat);
    check(&got, &[("interrupts", 20.0), ("context_switches", 250.0)]);
    let got = between("proc", &choices, "proc/stat", stat);
    check(&got, &[("processes.running", 5.0), ("processes.blocked", 2.0), ("processes.new", 2.0)]);
    let got = between("load", &choices, "proc/loadavg", ["0.50 1.25 10.00 1/200 99\n"; 2]);
    check(&got, &[("load.1m", 0.5), ("load.5m", 1.25), ("load.15m", 10.0)]);
    let vmstat = ["pswpin 0\npswpout 256\n", "pswpin 512\npswpout 256\n"];
    check(
        &between("page", &choices, "proc/vmstat", vmstat),
        &[("paging.in", 1.0), ("paging.out", 0.0)],
    );
    let sockets =
        "sockets: used 44\nTCP: inuse 5 orphan 0 tw 0\nUDP: inuse 2 mem 1\nRAW: inuse 0\n";
    let got = between("socket", &choices, "proc/net/sockstat", [sockets; 2]);
    check(&got, &[("sockets.all", 44.0), ("sockets.tcp", 5.0), ("sockets.udp", 2.0)]);
    let got = between("ksm", &choices, "sys/kernel/mm/ksm/pages_sharing", ["0\n", "2560\n"]);
    check(&got, &[("ksm.saved", 10.0), ("ksm.shared", NAN)]);
}
