//! Whether an instruction that calls ends where somebody is said to return to.

/// Bytes before a return address that a call may have.
pub const LONGEST: usize = 7;

/// `before` are the bytes before the return address.
pub fn ends_in_call(before: &[u8; LONGEST]) -> bool {
    // call rel32
    before[LONGEST - 5] == 0xe8
        || (2..=LONGEST).any(|length| {
            let call = &before[LONGEST - length..];
            call[0] == 0xff && indirect_length(call) == Some(length)
        })
}

/// The length of `call r/m64` (FF /2), from its bytes.
fn indirect_length(call: &[u8]) -> Option<usize> {
    let modrm = call[1];
    if (modrm >> 3) & 7 != 2 {
        return None;
    }
    let (mode, register) = (modrm >> 6, modrm & 7);
    let has_index = mode != 3 && register == 4;
    let index = usize::from(has_index);
    let displaced = match mode {
        0 if register == 5 => 4,
        0 if has_index && *call.get(2)? & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(2 + index + displaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_what_is_none() {
        for (bytes, is_call) in [
            (&[0xe8, 1, 2, 3, 4][..], true),
            (&[0xff, 0xd0], true),
            (&[0x41, 0xff, 0xd3], true),
            (&[0xff, 0x15, 1, 2, 3, 4], true),
            (&[0xff, 0x53, 0x18], true),
            (&[0xff, 0x54, 0x24, 0x08], true),
            (&[0xff, 0x94, 0x24, 1, 2, 3, 4], true),
            (&[0xff, 0x14, 0xc8], true),
            (&[0xff, 0x90, 1, 2, 3, 4], true),
            (&[0xff, 0xe0], false),
            (&[0x0f, 0x05], false),
            (&[0xff, 0x53], false),
            (&[0xc3], false),
        ] {
            let mut before = [0x90; LONGEST];
            before[LONGEST - bytes.len()..].copy_from_slice(bytes);
            assert_eq!(ends_in_call(&before), is_call, "{bytes:x?}");
        }
    }
}
