//! Differences of counters that wrap, restart and go back.

/// A counter that went back (a device came anew, iowait was corrected) has not counted.
pub fn change(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

/// The most that a wrap is believed to have gone on: three days of milliseconds.
const BELIEVED: u32 = 1 << 28;

/// The same for the milliseconds of /proc/diskstats: 32 bits, which wrap after 50 days of waiting.
///
/// Going back by more is a device that came anew.
pub fn change32(before: u64, after: u64) -> f64 {
    match (u32::try_from(before), u32::try_from(after)) {
        (Ok(before), Ok(after)) if after < before => {
            let gone_on = after.wrapping_sub(before);
            if gone_on < BELIEVED {
                f64::from(gone_on)
            } else {
                0.0
            }
        }
        _ => change(before, after),
    }
}

/// `part` of `whole`; NaN when there is no whole.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole
    } else {
        f64::NAN
    }
}

/// Percent of `whole`, at most 100: the kernel's clocks are coarser than ours, and 100.4 would only
/// confuse.
pub fn percent(part: f64, whole: f64) -> f64 {
    let share = ratio(part * 100.0, whole);
    // Not `min`: it would make 100 of what is not known.
    if share > 100.0 {
        100.0
    } else {
        share
    }
}
