//! Which system calls a program may make, put in force by the kernel (seccomp(2)).
//!
//! It is a list of what is denied, as QEMU's own `-sandbox on` has one: a program that measures
//! must get whatever I/O interface it asks for. On the list are QEMU's sets `default`, `obsolete`,
//! `elevateprivileges` and `resourcecontrol` (QEMU's softmmu/qemu-seccomp.c); the groups that
//! systemd leaves out of `@system-service`: `@clock`, `@cpu-emulation`, `@debug`, `@module`,
//! `@mount`, `@obsolete`, `@raw-io`, `@reboot`, `@swap` (systemd.exec(5), SystemCallFilter=); and
//! what Docker's default profile keeps back besides: keys, namespaces, bpf, userfaultfd, rare
//! socket families (docs.docker.com/engine/security/seccomp). Unlike Docker's it lets io_uring
//! through, which is one of the ways under test.
//!
//! Calls are refused with EPERM; clone3 with ENOSYS, for its flags lie in memory, where no filter
//! can look, and libraries then take clone. A program for another instruction set (i386 on x86-64)
//! is killed at its first call. Those that are decided by their number alone cost a bit test in
//! kernels since 5.11.

use libc::c_long;
use seccompiler::{
    apply_filter, sock_filter, BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Length,
    SeccompCmpOp as Is, SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule,
};
use std::collections::BTreeMap;

/// No argument of theirs makes them harmless here.
const DENIED: &[c_long] = &[
    // Other users and groups.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    // Namespaces, roots and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Large and seldom used parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_vhangup,
    // The machine itself: its kernel, clock, names, swap, accounts and log.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_nfsservctl,
];

/// A larger share of the machine than the next one.
const SCHEDULING: &[c_long] = &[
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_modify_ldt,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    libc::SYS_afs_syscall,
    libc::SYS_getpmsg,
    libc::SYS_putpmsg,
    libc::SYS_security,
    libc::SYS_tuxcall,
    libc::SYS_vserver,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// What makes another process; a thread is none (clone with CLONE_THREAD stays).
#[cfg(target_arch = "x86_64")]
const SPAWNING: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const SPAWNING: &[c_long] = &[];
const LEAVING: &[c_long] = &[libc::SYS_setsid, libc::SYS_setpgid];

const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The families that disks are reached over, and the one that tells of interfaces.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// personality(2): the usual one, and the question which one it is.
const PERSONALITIES: &[u64] = &[0, 0xffff_ffff];

/// What is not denied to all.
#[derive(Clone, Copy)]
pub struct Allowed {
    pub spawning: bool,
    pub scheduling: bool,
}

/// Filter this process and all that it starts. Nothing takes that back. Who may not spawn can still
/// become another program, which then is under the same filter.
pub fn enter(allowed: Allowed) -> Result<(), seccompiler::Error> {
    let denied = build(rules(allowed)?, libc::EPERM)?;
    let unknown = build(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    apply_filter(&denied)?;
    apply_filter(&unknown)
}

type Rules = BTreeMap<c_long, Vec<Rule>>;

fn rules(allowed: Allowed) -> Result<Rules, BackendError> {
    let mut rules: Rules = DENIED.iter().chain(DENIED_HERE).map(|call| (*call, vec![])).collect();
    let of_namespace = |flag: &i32| has_bits(*flag, *flag);
    let mut clone = NAMESPACES.iter().map(of_namespace).collect::<Result<Vec<_>, _>>()?;
    if !allowed.scheduling {
        rules.extend(SCHEDULING.iter().map(|call| (*call, vec![])));
    }
    if !allowed.spawning {
        rules.extend(SPAWNING.iter().chain(LEAVING).map(|call| (*call, vec![])));
        clone.push(has_bits(libc::CLONE_THREAD, 0)?);
    }
    rules.insert(libc::SYS_clone, clone);
    let families: Vec<u64> =
        FAMILIES.iter().map(|family| u64::from(family.unsigned_abs())).collect();
    rules.insert(libc::SYS_socket, vec![none_of(&families)?]);
    rules.insert(libc::SYS_personality, vec![none_of(PERSONALITIES)?]);
    Ok(rules)
}

/// The first argument has these of the bits of ``mask``.
fn has_bits(mask: i32, bits: i32) -> Result<Rule, BackendError> {
    let is = Is::MaskedEq(u64::from(mask.unsigned_abs()));
    Rule::new(vec![Condition::new(0, Length::Dword, is, u64::from(bits.unsigned_abs()))?])
}

/// The first argument is none of these.
fn none_of(values: &[u64]) -> Result<Rule, BackendError> {
    let differs = |value: &u64| Condition::new(0, Length::Dword, Is::Ne, *value);
    Rule::new(values.iter().map(differs).collect::<Result<_, _>>()?)
}

fn build(rules: Rules, refusal: i32) -> Result<BpfProgram, BackendError> {
    let refused = SeccompAction::Errno(refusal.unsigned_abs());
    let here = std::env::consts::ARCH.try_into()?;
    let program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, here)?.try_into()?;
    Ok(if cfg!(target_arch = "x86_64") { [refuse_x32(), program].concat() } else { program })
}

/// Before all else: numbers of the x32 ABI are the same calls once more, and no rule names those.
fn refuse_x32() -> BpfProgram {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const X32_BIT: u32 = 0x4000_0000;
    let step = |code: u32, jf: u8, k: u32| sock_filter { code: code as u16, jt: 0, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    vec![step(LOAD, 0, 0), step(AT_LEAST, 1, X32_BIT), step(RETURN, 0, refused)]
}
