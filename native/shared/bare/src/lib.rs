//! What the libraries to preload are made of: system calls without a C library, and the few
//! functions that are taken from the one that the program has, glibc or musl, in any version.
//!
//! Nothing here allocates, locks or panics, so that all of it may be used in signal handlers and
//! after fork.
#![no_std]

pub mod c_library;
mod opens;
pub mod shared_page;
pub mod syscall;

/// The panic handler of a library that never panics.
#[macro_export]
macro_rules! stop_at_panic {
    () => {
        #[panic_handler]
        fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {
                core::hint::spin_loop();
            }
        }
    };
}
