//! The C library's functions that open a file, all by one function.

/// Defines them by the caller's `unsafe fn open_at(folder, path, flags, mode) -> c_int`. The mode
/// is variadic in C, which makes no difference in registers.
#[macro_export]
macro_rules! define_opens {
    () => {
        $crate::define_opens! { open openat creat __open_2 __openat_2 }
        $crate::define_opens! { open64 openat64 creat64 __open64_2 __openat64_2 }
    };
    ($open:ident $open_at:ident $creat:ident $checked:ident $checked_at:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            // SAFETY: as open(2).
            unsafe { open_at($crate::syscall::AT_FDCWD, path, flags, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $open_at(
            fd: c_int,
            path: *const c_char,
            flags: c_int,
            mode: c_uint,
        ) -> c_int {
            // SAFETY: as openat(2).
            unsafe { open_at(fd, path, flags, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $creat(path: *const c_char, mode: c_uint) -> c_int {
            const O_CREATE_AND_TRUNCATE: c_int = 0o1 | 0o100 | 0o1000;
            // SAFETY: as creat(2).
            unsafe { open_at($crate::syscall::AT_FDCWD, path, O_CREATE_AND_TRUNCATE, mode) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as open(2) without a mode.
            unsafe { open_at($crate::syscall::AT_FDCWD, path, flags, 0) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $checked_at(fd: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: as openat(2) without a mode.
            unsafe { open_at(fd, path, flags, 0) }
        }
    };
}
