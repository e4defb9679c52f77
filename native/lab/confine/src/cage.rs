//! What a program may open, put in force by the kernel.

use landlock::{
    path_beneath_rules, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, ABI,
};
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Rights of newer kernels are left out on older ones; those of the first are what makes a cage.
const NEWEST: ABI = ABI::V6;
const NEEDED: ABI = ABI::V1;

pub struct Cage<'a> {
    pub read: &'a [PathBuf],
    pub write: &'a [PathBuf],
}

#[derive(Debug)]
pub enum Trouble {
    Kernel(RulesetError),
    NotInForce,
    StillOpen(PathBuf),
    Unproved(PathBuf, std::io::Error),
    Powerful,
    Filter(seccompiler::Error),
    System(rustix::io::Errno),
}

impl Cage<'_> {
    /// Confine this process and all that it starts. Nothing takes that back.
    pub fn enter(&self) -> Result<(), Trouble> {
        let status = self.restrict().map_err(Trouble::Kernel)?;
        match status {
            RulesetStatus::NotEnforced => Err(Trouble::NotInForce),
            RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
        }
    }

    fn restrict(&self) -> Result<RulesetStatus, RulesetError> {
        let done = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(NEEDED))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .add_rules(path_beneath_rules(self.read, AccessFs::from_read(NEWEST)))?
            .add_rules(path_beneath_rules(self.write, AccessFs::from_all(NEWEST)))?
            .restrict_self()?;
        Ok(done.ruleset)
    }
}

/// A file outside cannot be opened any more; what is not there proves nothing.
pub fn require_closed(path: Option<&Path>) -> Result<(), Trouble> {
    let Some(path) = path else { return Ok(()) };
    match File::open(path) {
        Ok(_) => Err(Trouble::StillOpen(path.into())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(Trouble::Unproved(path.into(), error)),
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(RulesetError::CreateRuleset(_) | RulesetError::HandleAccesses(_)) => {
                out.write_str("this kernel has no Landlock (Linux 5.13, with landlock among its security modules)")
            }
            Self::Kernel(error) => write!(out, "Landlock: {error}"),
            Self::NotInForce => out.write_str("Landlock is not in force"),
            Self::StillOpen(path) => write!(out, "{} can still be opened", path.display()),
            Self::Unproved(path, error) => write!(out, "{} proves nothing: {error}", path.display()),
            Self::Powerful => out.write_str("capabilities are left after the change of user"),
            Self::Filter(error) => write!(out, "no system calls can be denied: {error}"),
            Self::System(error) => write!(out, "privileges cannot be given up: {error}"),
        }
    }
}
