//! One number in the few letters that a terminal's column has.

use std::fmt::Write;

use crate::module::Unit;

/// How strong a number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shade {
    /// Nothing, or not known.
    Faint,
    Low,
    Middle,
    High,
    Highest,
}

/// Letters that a number of this unit takes.
pub fn width(unit: Unit, float: bool) -> usize {
    match unit {
        Unit::Percent if float => 5,
        Unit::Percent => 3,
        _ => 5,
    }
}

/// Append `value` to `text`, not aligned.
pub fn push(text: &mut String, value: f64, unit: Unit, float: bool) -> Shade {
    if !value.is_finite() {
        text.push('-');
        return Shade::Faint;
    }
    match unit {
        Unit::Percent => push_percent(text, value, float),
        Unit::Bytes | Unit::BytesPerSecond => push_scaled(text, value, float),
        Unit::Kib => push_scaled(text, value * 1024.0, float),
        Unit::Mib | Unit::MibPerSecond => push_scaled(text, value * 1048576.0, float),
        _ => push_plain(text, value),
    }
}

fn push_percent(text: &mut String, value: f64, float: bool) -> Shade {
    let _ = if float { write!(text, "{value:.1}") } else { write!(text, "{value:.0}") };
    match value {
        v if v < 0.5 => Shade::Faint,
        v if v < 30.0 => Shade::Low,
        v if v < 60.0 => Shade::Middle,
        v if v < 90.0 => Shade::High,
        _ => Shade::Highest,
    }
}

/// Bytes with a letter, in steps of 1024, at most five letters: `0`, `812B`, `9.5k`, `1023M`.
fn push_scaled(text: &mut String, bytes: f64, float: bool) -> Shade {
    const LETTERS: [(char, Shade); 7] = [
        ('B', Shade::Low),
        ('k', Shade::Low),
        ('M', Shade::Middle),
        ('G', Shade::High),
        ('T', Shade::Highest),
        ('P', Shade::Highest),
        ('E', Shade::Highest),
    ];
    if bytes < 0.5 {
        text.push('0');
        return Shade::Faint;
    }
    let (mut shown, mut step) = (bytes, 0);
    while shown >= 1023.5 && step + 1 < LETTERS.len() {
        shown /= 1024.0;
        step += 1;
    }
    let (letter, shade) = LETTERS[step];
    let _ = match step {
        _ if shown >= 1e4 => write!(text, "****{letter}"),
        0 => write!(text, "{shown:.0}{letter}"),
        _ if shown < 9.95 || (float && shown < 99.95) => write!(text, "{shown:.1}{letter}"),
        _ => write!(text, "{shown:.0}{letter}"),
    };
    shade
}

/// Three digits that matter while there is room for them, thousands as `k`.
fn push_plain(text: &mut String, value: f64) -> Shade {
    let size = value.abs();
    let (shown, letter) = match size {
        s if s < 99_999.5 => (value, ""),
        s if s < 9_999_500.0 => (value / 1e3, "k"),
        s if s < 9_999_500_000.0 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    let _ = match shown.abs() {
        s if s < 0.005 => write!(text, "0"),
        s if s < 9.995 && shown.fract() != 0.0 => write!(text, "{shown:.2}{letter}"),
        s if s < 99.95 && shown.fract() != 0.0 => write!(text, "{shown:.1}{letter}"),
        s if s < 1e5 => write!(text, "{shown:.0}{letter}"),
        _ => write!(text, "****{letter}"),
    };
    match size {
        s if s < 0.005 => Shade::Faint,
        s if s < 100.0 => Shade::Low,
        s if s < 1e4 => Shade::Middle,
        s if s < 1e6 => Shade::High,
        _ => Shade::Highest,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(value: f64, unit: Unit, float: bool) -> String {
        let mut text = String::new();
        push(&mut text, value, unit, float);
        text
    }

    #[test]
    fn numbers_as_people_read_them() {
        for (value, unit, float, wanted) in [
            (12.4, Unit::Percent, false, "12"),
            (12.44, Unit::Percent, true, "12.4"),
            (100.0, Unit::Percent, false, "100"),
            (0.0, Unit::Bytes, false, "0"),
            (812.0, Unit::BytesPerSecond, false, "812B"),
            (1024.0, Unit::BytesPerSecond, false, "1.0k"),
            (10.0 * 1024.0, Unit::BytesPerSecond, false, "10k"),
            (1.5, Unit::MibPerSecond, false, "1.5M"),
            (12.25, Unit::MibPerSecond, true, "12.2M"),
            (1023.9, Unit::Mib, false, "1.0G"),
            (0.25, Unit::Milliseconds, false, "0.25"),
            (12.34, Unit::Milliseconds, false, "12.3"),
            (7.0, Unit::Count, false, "7"),
            (1234.5, Unit::PerSecond, false, "1234"),
            (123_456.0, Unit::PerSecond, false, "123k"),
            (f64::NAN, Unit::Count, false, "-"),
        ] {
            assert_eq!(shown(value, unit, float), wanted, "{value} {unit:?}");
        }
    }

    proptest! {
        #[test]
        fn what_can_be_measured_fits_its_column(value in 0.0f64..1e12, float: bool) {
            for unit in [Unit::BytesPerSecond, Unit::Mib, Unit::Kib, Unit::PerSecond, Unit::Milliseconds, Unit::Count] {
                let text = shown(value, unit, float);
                prop_assert!(text.len() <= width(unit, float), "{value} {unit:?}: {text}");
            }
        }

        #[test]
        fn a_percentage_fits_its_column(value in 0.0f64..=100.0, float: bool) {
            prop_assert!(shown(value, Unit::Percent, float).len() <= width(Unit::Percent, float));
        }
    }
}
