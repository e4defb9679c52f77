//! The time of day as people here write it.

/// `21-11 10:55:14`, local time, as dstat has it; dashes for a time that no calendar has.
pub fn day_and_time(seconds: f64) -> String {
    let mut parts = libc::tm {
        tm_sec: 0,
        tm_min: 0,
        tm_hour: 0,
        tm_mday: 0,
        tm_mon: 0,
        tm_year: 0,
        tm_wday: 0,
        tm_yday: 0,
        tm_isdst: 0,
        tm_gmtoff: 0,
        tm_zone: std::ptr::null(),
    };
    let whole = seconds as libc::time_t;
    // SAFETY: both point to live values of their types; the result is only compared with null.
    let done = unsafe { libc::localtime_r(&whole, &mut parts) };
    if done.is_null() {
        return "-- --".to_owned();
    }
    format!(
        "{:02}-{:02} {:02}:{:02}:{:02}",
        parts.tm_mday,
        parts.tm_mon + 1,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// As `{:.3}` shows it, so that whole seconds beside that are the same ones.
pub fn to_millisecond(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_clocks_show_one_second() {
        for thousandths in 0..2_000_u32 {
            let seconds = 1_764_000_029.0 + f64::from(thousandths) / 2e3 + 0.000_4;
            let moment = super::to_millisecond(seconds);
            let shown = format!("{moment:.3}");
            assert_eq!(shown.split('.').next(), Some(format!("{}", moment.floor()).as_str()));
            assert!((moment - seconds).abs() < 0.000_501);
        }
    }
}
