//! The ways themselves, as a program under test does them: through the C library's symbols where
//! it has any, so that a preloaded library can take part.

pub mod aio;
pub mod inode;
pub mod opens;
pub mod plain;
pub mod uring;
pub mod writes;
