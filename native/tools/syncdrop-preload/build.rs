//! No C library is named as needed: its few symbols come from whichever the program has, glibc or
//! musl, in any version.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-nostdlib");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now,-z,relro,-Bsymbolic");
}
