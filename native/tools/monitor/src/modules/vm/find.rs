//! Which processes are QEMUs that run a guest.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::command_line::{parse_command_line, CommandLine};

/// The shortest time between two looks at all processes.
const SCAN_PAUSE: Duration = Duration::from_secs(2);
/// A host with thousands of processes is looked at less often: at most a thousandth of the time
/// goes there.
const PAUSE_PER_SCAN: u32 = 1000;
const LONGEST_COMMAND_LINE: usize = 256 << 10;
/// More guests than any host runs; beyond it the monitor itself would be the load.
const MOST_GUESTS: usize = 1024;

/// A QEMU process. The number may be used again, together with the start it is unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub pid: i32,
    /// Clock ticks since boot.
    pub started: u64,
    /// Unique among those that live.
    pub name: String,
    pub command_line: CommandLine,
}

/// Finds QEMUs that come; who goes is seen by who reads their counters.
pub struct Finder {
    next: Option<Instant>,
}

impl Finder {
    pub fn new() -> Self {
        Finder { next: None }
    }

    /// The QEMUs that are not among `known`; nothing when it is too early to look again.
    pub fn find_new(&mut self, proc: &Path, known: &[&Found]) -> Vec<Found> {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return Vec::new();
        }
        let found = find_guests(proc, known);
        self.next = Some(began + SCAN_PAUSE.max(began.elapsed() * PAUSE_PER_SCAN));
        found
    }
}

fn find_guests(proc: &Path, known: &[&Found]) -> Vec<Found> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let mut pids: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut names: HashSet<String> = known.iter().map(|guest| guest.name.clone()).collect();
    let mut found = Vec::new();
    for pid in pids.into_iter().filter(|pid| known.iter().all(|guest| guest.pid != *pid)) {
        if known.len() + found.len() >= MOST_GUESTS {
            break;
        }
        let Some((started, command_line)) = find_guest(&proc.join(pid.to_string())) else {
            continue;
        };
        let told = command_line.name.clone().unwrap_or_else(|| pid.to_string());
        let name = if names.contains(&told) { format!("{told}-{pid}") } else { told };
        names.insert(name.clone());
        found.push(Found { pid, started, name, command_line });
    }
    found
}

/// Start and arguments of a process when it is a QEMU with a guest.
fn find_guest(process: &Path) -> Option<(u64, CommandLine)> {
    let program = fs::read_link(process.join("exe"));
    // A kernel thread has no program; the program of another user's process cannot be seen, its
    // arguments can.
    if program.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return None;
    }
    let by_program = program.is_ok_and(|path| is_qemu(&path));
    if !by_program && !may_be_qemu(&fs::read(process.join("comm")).ok()?) {
        return None;
    }
    let text = read_bounded(&process.join("cmdline"))?;
    let first = text.split(|&byte| byte == 0).next()?;
    if !by_program && !is_qemu(Path::new(&*String::from_utf8_lossy(first))) {
        return None;
    }
    let command_line = parse_command_line(&text);
    let started = read_start(process)?;
    (!command_line.no_machine).then_some((started, command_line))
}

/// `qemu-system-x86_64`, and what Red Hat and old Debian call it. A program replaced by an update
/// is `... (deleted)`.
fn is_qemu(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

/// Whether it is worth reading the arguments of a process whose program is hidden or another: its
/// own name, or any that `-name process=` gave it, says little, but all other processes are the
/// many.
fn may_be_qemu(comm: &[u8]) -> bool {
    comm.starts_with(b"qemu") || comm.starts_with(b"kvm")
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST_COMMAND_LINE as u64).read_to_end(&mut text).ok()?;
    Some(text).filter(|text| !text.is_empty())
}

/// The 22nd field of `/proc/PID/stat`; the name before may hold blanks and parentheses.
fn read_start(process: &Path) -> Option<u64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests;
