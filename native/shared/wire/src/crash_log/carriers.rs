//! Modules whose calls are no place in a program.

/// Libraries that only carry out what a program asks of the kernel, by the beginnings of their
/// files' names. What is passed over for places needs no lines.
const CARRIERS: [&str; 13] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-musl",
    "libc.musl",
    "libpthread",
    "libm.so",
    "librt",
    "libdl",
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libgcc_s.so",
];

/// Whether a module is such a library, by its path.
pub fn is_carrier(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    CARRIERS.iter().any(|begin| name.starts_with(begin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        assert!(is_carrier(b"/usr/lib/x86_64-linux-gnu/libc.so.6") && is_carrier(b"libc-2.31.so"));
        assert!(!is_carrier(b"/opt/libc.so.6/app") && !is_carrier(b"/usr/lib/libcap.so.2"));
        assert!(!is_carrier(b""));
    }
}
