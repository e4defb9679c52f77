//! Who a program runs as, for how long and with how much.

use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use rustix::process::{
    getppid, getrlimit, set_parent_process_death_signal, setrlimit, umask, Pid, Resource, Rlimit,
    Signal,
};
use rustix::thread::{
    capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    CapabilitySet, CapabilitySets, Gid, Uid,
};
use std::str::FromStr;

/// A bound for one kind of what a process may have. Who may not raise it keeps what it has.
#[derive(Clone, Copy)]
pub struct Limit(Resource, u64);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("it reads NAME=NUMBER")?;
        let resource = match name {
            "as" => Resource::As,
            "core" => Resource::Core,
            "cpu" => Resource::Cpu,
            "data" => Resource::Data,
            "fsize" => Resource::Fsize,
            "memlock" => Resource::Memlock,
            "nofile" => Resource::Nofile,
            "nproc" => Resource::Nproc,
            _ => {
                return Err("known are as, core, cpu, data, fsize, memlock, nofile and nproc".into())
            }
        };
        let value = value.parse().map_err(|error| format!("{value}: {error}"))?;
        Ok(Self(resource, value))
    }
}

impl Limit {
    pub fn enter(self) -> Result<()> {
        let bound = |value| Rlimit { current: Some(value), maximum: Some(value) };
        match (setrlimit(self.0, bound(self.1)), getrlimit(self.0).maximum) {
            (Err(Errno::PERM), Some(least)) => setrlimit(self.0, bound(least.min(self.1))),
            (done, _) => done,
        }
    }
}

/// This process becomes a user without rights, and its group's number is the same. Nothing takes
/// that back. It has one thread.
pub fn become_user(number: u32, groups: &[u32]) -> Result<()> {
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            Err(Errno::INVAL) => break, // behind the last one that this kernel has
            Err(error) => return Err(error),
        }
    }
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// What is not this program's any more: rights by programs that lend them, files for others.
pub fn keep_to_itself() -> Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    set_no_new_privs(true)
}

/// Whether it has no capability left.
pub fn is_powerless() -> Result<bool> {
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    Ok(effective.is_empty() && permitted.is_empty())
}

/// Be killed when ``parent`` ends; whether it is still there. A change of user undoes it.
pub fn end_with(parent: i32) -> Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // One that was killed before we asked for the signal leaves us to another parent.
    Ok(getppid().map(Pid::as_raw_pid) == Some(parent))
}
