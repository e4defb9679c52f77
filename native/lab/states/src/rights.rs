//! Which of root's rights an exploration keeps. What an ordinary user has not is not kept either.

use diskproof_rights::CapabilitySet;

use crate::request::{CheckRequest, Format, Request};

/// To read what others own.
pub const TO_READ: CapabilitySet = CapabilitySet::DAC_OVERRIDE;
/// To read log and base, and to make the place where states are seen.
const TO_BEGIN: CapabilitySet = TO_READ.union(CapabilitySet::CHOWN).union(CapabilitySet::SYS_ADMIN);
/// To start programs that have none of them, in namespaces and as another user, and to end them:
/// the kernel, too, ends the child of a dead parent only where that might have done so.
const TO_CONFINE: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_ADMIN);
/// What no check of files needs: the kernel's code, clock, log and rules, and the hardware.
const OF_THE_HOST: CapabilitySet = CapabilitySet::AUDIT_CONTROL
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::BLOCK_SUSPEND)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_TTY_CONFIG)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::WAKE_ALARM);

/// Whether another program mounts for us, fusermount3 for an ordinary user: it gains rights, which
/// it cannot once we have given that up.
pub fn is_mounted_for_us(request: &Request) -> bool {
    let in_memory = matches!(request.check, CheckRequest::Ledger { format: Format::Raw, .. });
    !in_memory && !rustix::process::geteuid().is_root()
}

/// Until everything is open and mounted.
pub fn to_begin(request: &Request) -> CapabilitySet {
    TO_BEGIN.union(to_check(request))
}

/// From then on. A command of the user's is theirs, and does what they may do with files.
pub fn to_check(request: &Request) -> CapabilitySet {
    match request.check {
        CheckRequest::Ledger { format: Format::Raw, .. } => CapabilitySet::empty(),
        CheckRequest::Ledger { .. } | CheckRequest::Image { .. } => match request.confined {
            Some(_) => TO_CONFINE,
            None => CapabilitySet::empty(),
        },
        CheckRequest::Command { .. } => CapabilitySet::all().difference(OF_THE_HOST),
    }
}
