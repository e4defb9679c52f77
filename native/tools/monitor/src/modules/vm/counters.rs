//! What the kernel tells of one QEMU process: processor time by kind of thread, I/O, memory.

use std::borrow::Cow;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{open, Mode, OFlags};
use rustix::io::pread;

/// Beyond it, further threads count as the emulator's.
const MOST_VCPUS: usize = 1024;

/// `/proc/PID/status` has about 1.5 KiB.
pub const LONGEST_TEXT: usize = 8192;

/// How often swap and shared pages are read anew at most.
const SLOW_SECONDS: f64 = 4.5;

/// Counters since the process started, and states; NaN is "not told".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counters {
    /// CPU seconds of all threads, dead ones too; steps of a tick (10 ms).
    pub cpu: f64,
    /// CPU seconds of the vCPU threads, and seconds in which they could have run but had to wait
    /// for a core.
    pub vcpu: f64,
    pub waited: f64,
    /// CPU seconds of iothreads.
    pub iothread: f64,
    /// Bytes that it fetched from and sent to storage.
    pub read: f64,
    pub written: f64,
    /// Bytes.
    pub rss: f64,
    pub swap: f64,
    /// Bytes of the guest's memory that stand on pages shared by KSM.
    pub merged: f64,
}

/// The open files of one process: they name this very process, also when its number is used again.
pub struct Watched {
    folder: PathBuf,
    stat: OwnedFd,
    statm: OwnedFd,
    status: Option<OwnedFd>,
    io: Option<OwnedFd>,
    ksm: Option<OwnedFd>,
    threads: Threads,
    slow: Slow,
    ticks_per_second: f64,
    page: f64,
}

/// States that change slowly and are dear to read, in bytes.
struct Slow {
    next: f64,
    swap: f64,
    merged: f64,
}

#[derive(Default)]
struct Threads {
    /// How many there were when they were looked at: another number is a reason to look again.
    count: u64,
    vcpus: Vec<OwnedFd>,
    iothreads: Vec<OwnedFd>,
    named: bool,
    /// Samples since then.
    age: u32,
}

impl Watched {
    /// None when the process is gone.
    pub fn open(folder: PathBuf) -> Option<Self> {
        Some(Watched {
            stat: open_file(&folder.join("stat"))?,
            statm: open_file(&folder.join("statm"))?,
            status: open_file(&folder.join("status")),
            io: open_file(&folder.join("io")),
            ksm: open_file(&folder.join("ksm_stat")),
            folder,
            threads: Threads::default(),
            slow: Slow { next: 0.0, swap: f64::NAN, merged: f64::NAN },
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            page: rustix::param::page_size() as f64,
        })
    }

    /// The second number of `/proc/PID/statm`, in bytes; `status` has it too, at five times the
    /// cost.
    fn resident(&self, buffer: &mut [u8]) -> f64 {
        let text = text_of(Some(&self.statm), buffer).unwrap_or_default();
        let pages =
            text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.map_or(f64::NAN, |pages| pages as f64 * self.page)
    }

    fn refresh_slow(&mut self, now: f64, buffer: &mut [u8]) {
        if now < self.slow.next {
            return;
        }
        let [swap] = numbers(self.status.as_ref(), ["VmSwap:"], buffer);
        let [merged] = numbers(self.ksm.as_ref(), ["ksm_merging_pages"], buffer);
        let next = now + SLOW_SECONDS;
        self.slow = Slow { next, swap: swap * 1024.0, merged: merged * self.page };
    }

    /// Ids of the threads that are there now.
    pub fn thread_ids(&self) -> Vec<i32> {
        thread_ids(&self.folder)
    }

    /// Whether QEMU names its threads (`-name ...,debug-threads=on`): without it vCPUs are not told
    /// from the rest.
    pub fn has_named_threads(&self) -> bool {
        self.threads.named
    }

    /// None when the process has ended; a zombie has. `now` is CLOCK_MONOTONIC, seconds.
    pub fn read(&mut self, now: f64, buffer: &mut [u8]) -> Option<Counters> {
        let stat = parse_stat(&text_of(Some(&self.stat), buffer)?)?;
        self.threads.look_again(&self.folder, stat.threads);
        let [read, written] = numbers(self.io.as_ref(), ["read_bytes:", "write_bytes:"], buffer);
        self.refresh_slow(now, buffer);
        let cpu = stat.ticks / self.ticks_per_second;
        let (vcpu, waited) = self.threads.vcpu_seconds(cpu, buffer);
        Some(Counters {
            cpu,
            vcpu,
            waited,
            iothread: sum_schedstat(&self.threads.iothreads, buffer).0,
            read,
            written,
            rss: self.resident(buffer),
            swap: self.slow.swap,
            merged: self.slow.merged,
        })
    }
}

impl Threads {
    /// A thread gets its name a moment after it was started: look twice, and now and then while
    /// none has one.
    fn look_again(&mut self, folder: &Path, count: u64) {
        self.age += 1;
        let changed = self.count != count;
        if changed || self.age == 1 || (!self.named && self.age % 16 == 0) {
            let age = if changed { 0 } else { self.age };
            *self = Threads { age, ..Threads::find(folder, count) };
        }
    }

    fn find(folder: &Path, count: u64) -> Self {
        let mut found = Threads { count, ..Threads::default() };
        for id in thread_ids(folder).into_iter().take(MOST_VCPUS) {
            let thread = folder.join(format!("task/{id}"));
            let Ok(name) = fs::read(thread.join("comm")) else { continue };
            let into = if name.starts_with(b"CPU ") || name.starts_with(b"ALL CPUs") {
                &mut found.vcpus
            } else if name.starts_with(b"IO ") {
                &mut found.iothreads
            } else {
                continue;
            };
            into.extend(open_file(&thread.join("schedstat")));
        }
        found.named = !found.vcpus.is_empty();
        found
    }

    /// Running and waiting of the vCPUs; of the whole process when its threads have no names.
    fn vcpu_seconds(&self, process: f64, buffer: &mut [u8]) -> (f64, f64) {
        if self.named {
            sum_schedstat(&self.vcpus, buffer)
        } else {
            (process, f64::NAN)
        }
    }
}

fn thread_ids(folder: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder.join("task")) else { return Vec::new() };
    let mut ids: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

fn open_file(path: &Path) -> Option<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// One read: none of these files is longer than the buffer, and the kernel makes each in one go. A
/// process may give itself a name that is no UTF-8.
fn text_of<'a>(file: Option<&OwnedFd>, buffer: &'a mut [u8]) -> Option<Cow<'a, str>> {
    let length = pread(file?, &mut *buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]))
}

struct Stat {
    ticks: f64,
    threads: u64,
}

/// Fields of `/proc/PID/stat`, counted behind the name (proc_pid_stat(5)); None for a zombie.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(Stat { ticks: number(11)? as f64 + number(12)? as f64, threads: number(17)? })
}

/// The numbers that follow some words in a file; NaN for what is not told.
fn numbers<const N: usize>(
    file: Option<&OwnedFd>,
    words: [&str; N],
    buffer: &mut [u8],
) -> [f64; N] {
    let text = text_of(file, buffer).unwrap_or_default();
    words.map(|word| find_number(&text, word).unwrap_or(f64::NAN))
}

/// The number that follows a word at the start of a line.
fn find_number(text: &str, word: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|number| number as f64)
}

/// Seconds on a core and seconds in wait for one, over threads that live;
/// `/proc/PID/task/TID/schedstat` has nanoseconds of both.
fn sum_schedstat(threads: &[OwnedFd], buffer: &mut [u8]) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for thread in threads {
        let numbers = text_of(Some(thread), buffer)
            .and_then(|text| parse_schedstat(&text))
            .unwrap_or_default();
        sum = (sum.0 + numbers.0, sum.1 + numbers.1);
    }
    sum
}

fn parse_schedstat(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<u64>());
    Some((numbers.next()?.ok()? as f64 / 1e9, numbers.next()?.ok()? as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let fields = "S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 6 0 12345 1000000 5000 184467";
        for name in ["qemu-system-x86", "a) S 1 (b", ""] {
            let stat = parse_stat(&format!("7 ({name}) {fields}\n")).unwrap();
            assert_eq!((stat.ticks, stat.threads), (300.0, 6));
        }
        assert!(parse_stat(&format!("7 (q) Z{}", &fields[1..])).is_none());
        assert!(parse_stat("7 (q) S 1 2").is_none());
        assert!(parse_stat("").is_none());
    }

    #[test]
    fn numbers_behind_words() {
        let text = "ksm_rmap_items 5\nksm_merging_pages 12\nVmSwap:\t     40 kB\nNaN: x\n";
        assert_eq!(find_number(text, "ksm_merging_pages"), Some(12.0));
        assert_eq!(find_number(text, "VmSwap:"), Some(40.0));
        assert_eq!(find_number(text, "NaN:"), None);
        assert_eq!(find_number(text, "merging"), None);
        assert_eq!(parse_schedstat("1500000000 250000000 17\n"), Some((1.5, 0.25)));
        assert_eq!(parse_schedstat("1500000000\n"), None);
    }

    #[test]
    fn our_own_process_is_read_and_one_that_ended_is_not() {
        let own =
            Watched::open("/proc/self".into()).unwrap().read(1.0, &mut [0; LONGEST_TEXT]).unwrap();
        assert!(own.rss > 0.0 && own.read >= 0.0 && own.waited.is_nan());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let mut watched = Watched::open(folder).unwrap();
        let mut buffer = [0; LONGEST_TEXT];
        assert!(watched.read(1.0, &mut buffer).is_some() && !watched.has_named_threads());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(watched.read(1.0, &mut buffer), None);
    }

    #[test]
    fn no_text_of_the_kernel_is_too_strange() {
        bolero::check!(name = "counters").for_each(|text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            if let Some(stat) = parse_stat(&text) {
                assert!(stat.ticks >= 0.0 && stat.ticks.is_finite());
            }
            if let Some((on, waited)) = parse_schedstat(&text) {
                assert!(on >= 0.0 && waited >= 0.0);
            }
            find_number(&text, "write_bytes:");
        });
    }
}
