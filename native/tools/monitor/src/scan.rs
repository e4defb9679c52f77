//! Numbers and words out of the kernel's text, without allocation and without trust.

/// The number at the start of `text` after blanks; None when there is none or it is past 64 bits.
pub fn number(text: &[u8]) -> Option<u64> {
    words(text).next().and_then(whole_number)
}

/// A word that is nothing but digits.
pub fn whole_number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal fraction as /proc/loadavg and the pressure files write it: digits, perhaps a point and
/// digits.
pub fn decimal(word: &[u8]) -> Option<f64> {
    let dot = word.iter().position(|&byte| byte == b'.');
    let (whole, part) = word.split_at(dot.unwrap_or(word.len()));
    let whole = whole_number(whole)? as f64;
    match part {
        [] => Some(whole),
        [_, digits @ ..] if digits.len() <= 9 => {
            Some(whole + whole_number(digits)? as f64 / 10f64.powi(digits.len() as i32))
        }
        _ => None,
    }
}

pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// What follows `key` and a blank or colon on the line that starts with it.
pub fn after_key<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(key)?;
        matches!(rest.first(), Some(b' ' | b':' | b'\t')).then(|| &rest[1..])
    })
}

/// The number after `key`: `Cached:   12 kB`, `ctxt 99`.
pub fn value_of(text: &[u8], key: &[u8]) -> Option<u64> {
    number(after_key(text, key)?)
}

/// As many of the line's numbers as there are, up to N; what is missing or malformed ends it.
pub fn numbers<const N: usize>(line: &[u8]) -> ([u64; N], usize) {
    let mut found = [0; N];
    let mut count = 0;
    for (place, number) in found.iter_mut().zip(words(line).map_while(whole_number)) {
        *place = number;
        count += 1;
    }
    (found, count)
}

/// A name for people and headers out of what the kernel wrote.
pub fn name(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}
