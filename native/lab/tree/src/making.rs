//! Makes a tree.

use std::fs::{create_dir, create_dir_all, read_dir, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::shape::{File, Tree};
use diskproof_random::Random;

pub const CHUNK: usize = 1 << 18;

/// Makes all of it in a folder, which is made when it is missing and otherwise must be empty.
pub fn make(folder: &Path, tree: &Tree, seed: u64) -> io::Result<()> {
    create_dir_all(folder).map_err(|error| named(folder, error))?;
    if read_dir(folder)?.next().is_some() {
        return Err(named(folder, io::Error::other("is not empty")));
    }
    for path in &tree.folders {
        create_dir(folder.join(path)).map_err(|error| named(path, error))?;
    }
    let mut chunk = vec![0; CHUNK];
    tree.files.iter().try_for_each(|file| {
        write_file(folder, file, seed, &mut chunk).map_err(|error| named(&file.path, error))
    })
}

fn write_file(folder: &Path, file: &File, seed: u64, chunk: &mut [u8]) -> io::Result<()> {
    let mut stream =
        OpenOptions::new().write(true).create_new(true).open(folder.join(&file.path))?;
    let mut content = Random::of_stream(seed, file.number);
    let mut left = file.size;
    while left > 0 {
        let part = &mut chunk[..left.min(CHUNK as u64) as usize];
        content.fill(part);
        stream.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(())
}

/// An error with the path that it is about.
pub fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
