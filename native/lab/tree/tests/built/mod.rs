//! The program as it was just built.

use std::path::PathBuf;

/// Beside the folder of the tests: dash, which runs our compiler's wrapper, drops variables with a
/// `-` in their name, and so CARGO_BIN_EXE_diskproof-tree.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("diskproof-tree")
}
