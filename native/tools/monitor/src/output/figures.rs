//! How a number is written for machines: six decimals at most, no exponent.

use std::fmt::Write;

/// Shortest text of `value` to a millionth; nothing when it is not known.
pub fn push_number(text: &mut String, value: f64) {
    if !value.is_finite() {
        return;
    }
    let rounded = (value * 1e6).round() / 1e6;
    // Past 2^53 a float is whole, and a product with 1e6 may be infinite.
    let shown = if rounded.is_finite() && value.abs() < 1e15 { rounded } else { value };
    // Writing to a String cannot fail; and 0 is not to be "-0".
    let _ = write!(text, "{}", shown + 0.0);
}
