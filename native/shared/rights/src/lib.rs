//! What a program of ours gives up once it has what it needs: capabilities, ways to gain others,
//! core dumps, memory without end.

#![forbid(unsafe_code)]

use std::io;

use rustix::process::{setrlimit, Resource, Rlimit};
use rustix::thread::{
    capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, CapabilitySets,
};

pub use rustix::thread::CapabilitySet;

/// From now on this thread and those that it starts have no more than these capabilities, and the
/// programs that they become gain none. Call while there is one thread, or in each of them. It
/// allocates nothing.
pub fn keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    // The sets of the kernels of tomorrow end where it says that there is no such capability.
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => leave_out(one)?,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    clear_ambient_capability_set()?;
    let had = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: had.effective & kept,
            permitted: had.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Whoever lacks the right to do that has nothing in the set that could be had.
fn leave_out(capability: CapabilitySet) -> io::Result<()> {
    match remove_capability_from_bounding_set(capability) {
        Err(rustix::io::Errno::PERM) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// This process, and what it starts, leaves no core file and gets no more than so many bytes of
/// memory of its own, each.
pub fn limit(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let most =
        rustix::process::getrlimit(Resource::Data).maximum.map_or(bytes, |had| had.min(bytes));
    setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}

/// Bytes of the host's memory.
pub fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread: it is the thread's own, and cannot be taken back.
    #[test]
    fn what_is_not_kept_is_gone_for_good() {
        let kept = CapabilitySet::CHOWN;
        std::thread::spawn(move || {
            let before = capabilities(None).unwrap();
            keep(kept).unwrap();
            let now = capabilities(None).unwrap();
            assert_eq!(now.effective, before.effective & kept);
            assert_eq!(now.permitted, before.permitted & kept);
            assert!(now.inheritable.is_empty());
            assert!(rustix::thread::no_new_privs().unwrap());
            if before.effective.contains(CapabilitySet::SETPCAP) {
                assert!(!capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
            }
            let back = CapabilitySets { inheritable: CapabilitySet::empty(), ..before };
            let again = set_capabilities(None, back);
            assert_eq!(again.is_ok(), before.permitted == now.permitted);
            // Twice is no mistake, also without the right to change the sets.
            keep(CapabilitySet::empty()).unwrap();
            assert!(capabilities(None).unwrap().permitted.is_empty());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_host_has_memory() {
        assert!(host_memory() > 1 << 26);
    }
}
