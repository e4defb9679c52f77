//! Whether a thread that waits in a call of ours may be cancelled.

use core::ffi::c_int;

use diskproof_bare::c_function;

type SetType = extern "C" fn(c_int, *mut c_int) -> c_int;
const ASYNCHRONOUS: c_int = 1;

/// From here on a thread that waits may be cancelled, as glibc does it in its own calls; the type
/// from before.
#[inline(always)]
pub fn allow_cancelling() -> c_int {
    set_cancel_type(ASYNCHRONOUS)
}

/// It may unwind through us: no frame of ours has anything to clean up.
#[inline(always)]
pub fn set_cancel_type(kind: c_int) -> c_int {
    let mut before = kind;
    if let Some(set_type) = c_function!("pthread_setcanceltype", SetType) {
        set_type(kind, &raw mut before);
    }
    before
}
