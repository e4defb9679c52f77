//! Numbers as people read them: three digits and a unit.

/// Nanoseconds, at most 7 characters below a year.
pub fn render_time(nanoseconds: u64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e3, "ns"), (1e6, "us"), (1e9, "ms"), (1e13, "s")];
    let value = nanoseconds as f64;
    let mut below = 1.0;
    for (limit, unit) in UNITS {
        // What would be rounded to 1000 belongs to the next unit.
        if value < limit * 0.9995 {
            return format!("{} {unit}", three_digits(value / below));
        }
        below = limit;
    }
    format!("{} h", three_digits(value / 3.6e12))
}

pub fn render_bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    for unit in &UNITS[..4] {
        if value < 1000.0 {
            let digits = if *unit == "B" { format!("{value:.0}") } else { three_digits(value) };
            return format!("{digits} {unit}");
        }
        value /= 1024.0;
    }
    format!("{} {}", three_digits(value), UNITS[4])
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Digits in groups of three: `1,600`.
pub fn render_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share of a whole; no whole has no shares.
pub fn render_percent(part: u64, whole: u64) -> String {
    match 100.0 * part as f64 / whole.max(1) as f64 {
        share if share < 0.095 && part > 0 => "< 0.1 %".into(),
        share if share < 9.95 => format!("{share:.1} %"),
        share if share > 9999.0 => "> 9999 %".into(),
        share => format!("{share:.0} %"),
    }
}

/// Text of strangers on a terminal: no control characters.
pub fn render_safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// At most `width` characters; what is left out is at the front, where paths are alike.
pub fn render_end_of(text: &str, width: usize) -> String {
    let text = render_safe(text);
    let length = text.chars().count();
    if length <= width {
        return text;
    }
    let end: String = text.chars().skip(length + 3 - width).collect();
    format!("...{end}")
}

/// At most `width` characters of the front.
pub fn render_start_of(text: &str, width: usize) -> String {
    render_safe(text).chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 812, 999, 1_000, 7_713, 999_499, 999_600, 12_345_678, 3_400_000_000];
        let texts = ["0.00 ns", "812 ns", "999 ns", "1.00 us", "7.71 us", "999 us", "1.00 ms"];
        for (time, text) in times.iter().zip(texts.iter().chain(&["12.3 ms", "3.40 s"])) {
            assert_eq!(render_time(*time), *text);
        }
    }

    #[test]
    fn counts_bytes_and_shares() {
        assert_eq!(render_count(1_234_567), "1,234,567");
        assert_eq!(render_count(100), "100");
        assert_eq!(render_bytes(5734.4), "5.60 KiB");
        assert_eq!(render_bytes(12.0), "12 B");
        assert_eq!(render_percent(1, 3), "33 %");
        assert_eq!(render_percent(1, 1_000_000), "< 0.1 %");
        assert_eq!(render_percent(0, 0), "0.0 %");
    }

    proptest! {
        #[test]
        fn widths_are_kept(text: String, nanoseconds in 0u64..86_400_000_000_000, width in 4usize..40) {
            prop_assert!(render_end_of(&text, width).chars().count() <= width);
            prop_assert!(render_start_of(&text, width).chars().all(|c| !c.is_control()));
            prop_assert!(render_time(nanoseconds).len() <= 7);
        }
    }
}
