//! What a sync must answer when it does not succeed: the kernel's own answer is the yardstick.

use crate::errno_calls as calls;
use serde::{Deserialize, Serialize};

/// What one call returned and what stood in errno afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub call: String,
    pub returned: i64,
    /// errno held a number that no call sets, before.
    pub errno: i32,
}

#[derive(Clone, Copy)]
pub struct ErrnoCheck {
    /// Stable: for `--json`.
    pub id: &'static str,
    pub what: &'static str,
    pub(crate) ask: fn() -> std::io::Result<Vec<Answer>>,
}

const fn check(
    id: &'static str,
    what: &'static str,
    ask: fn() -> std::io::Result<Vec<Answer>>,
) -> ErrnoCheck {
    ErrnoCheck { id, what, ask }
}

pub const ERRNO_CHECKS: [ErrnoCheck; 15] = [
    check("fsync-closed", "fsync of a closed descriptor", calls::fsync_closed),
    check("fdatasync-closed", "fdatasync of a closed descriptor", calls::fdatasync_closed),
    check("syncfs-closed", "syncfs of a closed descriptor", calls::syncfs_closed),
    check("range-closed", "sync_file_range of a closed descriptor", calls::range_closed),
    check("path-only", "a descriptor opened with O_PATH", calls::path_only),
    check("pipe", "fsync and fdatasync of a pipe", calls::pipe),
    check("socket", "fsync and fdatasync of a socket", calls::socket),
    check("terminal", "fsync and fdatasync of a terminal", calls::terminal),
    check("range-flags", "sync_file_range with unknown flags", calls::range_flags),
    check("range-offset", "sync_file_range with a negative range", calls::range_offset),
    check("range-pipe", "sync_file_range of a pipe", calls::range_pipe),
    check("msync-invalid", "msync, odd address or flags", calls::msync_invalid),
    check("msync-unmapped", "msync of unmapped memory", calls::msync_unmapped),
    check("opens-writes", "opens and writes that sync, refused", calls::opens_and_writes),
    check("success", "success, which leaves errno alone", calls::success),
];

#[must_use]
pub fn find_errno_check(id: &str) -> Option<&'static ErrnoCheck> {
    ERRNO_CHECKS.iter().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's documented answers: a check that asks nothing, or not what it says, fails here.
    #[test]
    fn the_kernel_answers_as_its_manual_says() {
        let errors = |id: &str| {
            let answers = (find_errno_check(id).expect(id).ask)().expect(id);
            answers.into_iter().map(|answer| (answer.returned, answer.errno)).collect::<Vec<_>>()
        };
        for closed in ["fsync-closed", "fdatasync-closed", "syncfs-closed", "range-closed"] {
            assert!(errors(closed).iter().all(|&said| said == (-1, libc::EBADF)), "{closed}");
        }
        assert_eq!(errors("path-only"), [(-1, libc::EBADF); 4]);
        for special in ["pipe", "socket", "terminal", "msync-invalid"] {
            assert!(errors(special).iter().all(|&said| said == (-1, libc::EINVAL)), "{special}");
        }
        for range in ["range-flags", "range-offset"] {
            assert!(errors(range).iter().all(|&said| said == (-1, libc::EINVAL)), "{range}");
        }
        assert_eq!(errors("range-pipe"), [(-1, libc::ESPIPE)]);
        assert_eq!(errors("msync-unmapped"), [(-1, libc::ENOMEM); 2]);
        assert!(errors("success").iter().all(|&said| said == (0, calls::SENTINEL)));
        let refused = errors("opens-writes");
        assert!(refused.iter().all(|&(returned, errno)| returned == -1 && errno > 0));
        let distinct: std::collections::BTreeSet<_> = refused.iter().collect();
        assert!(distinct.len() >= 5, "{refused:?}");
    }

    #[test]
    fn every_check_has_an_id_of_its_own_and_asks_something() {
        for check in &ERRNO_CHECKS {
            assert_eq!(ERRNO_CHECKS.iter().filter(|other| other.id == check.id).count(), 1);
            assert!(!(check.ask)().expect(check.id).is_empty(), "{}", check.id);
        }
    }
}
