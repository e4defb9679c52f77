#![no_std]

#[panic_handler]
fn abort(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
