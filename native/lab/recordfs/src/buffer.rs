//! Memory to read into: one buffer a thread, kept.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `length` bytes; what they hold is what the last caller left.
pub fn with_buffer<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        work(&mut buffer[..length])
    })
}
