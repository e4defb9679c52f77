//! Memory that O_DIRECT takes: one buffer a thread, on a page's border.

use std::cell::RefCell;

const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

thread_local! {
    static BUFFER: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `length` bytes; what they hold is what the last caller left.
pub fn with_buffer<T>(length: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|pages| {
        let need = length.div_ceil(ALIGNMENT);
        if pages.len() < need {
            pages.resize(need, Page([0; ALIGNMENT]));
        }
        // SAFETY: pages are plain bytes without padding, and at least `length` of them are initialised.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), length) };
        work(bytes)
    })
}

/// Calls `work` with the same bytes on a page's border.
pub fn with_copy<T>(data: &[u8], work: impl FnOnce(&[u8]) -> T) -> T {
    if data.as_ptr() as usize % ALIGNMENT == 0 {
        return work(data);
    }
    with_buffer(data.len(), |buffer| {
        buffer.copy_from_slice(data);
        work(buffer)
    })
}
