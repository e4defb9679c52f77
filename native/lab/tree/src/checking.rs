//! Compares a tree with what its numbers say.

use std::collections::HashSet;
use std::fs::{self, read_dir, symlink_metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::making::CHUNK;
use crate::shape::{File, Tree};
use diskproof_random::Random;

/// What is not as it should be, one line each; nothing when all is there. What cannot be read
/// differs too.
pub fn check_tree(folder: &Path, tree: &Tree, seed: u64) -> Vec<String> {
    let mut found = check_names(folder, tree);
    let (mut chunk, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    for file in &tree.files {
        let path = folder.join(&file.path);
        match check_file(&path, file, seed, &mut chunk, &mut expected) {
            Ok(None) => {}
            Ok(Some(what)) => found.push(format!("{}: {what}", file.path.display())),
            Err(error) => found.push(format!("{}: {error}", file.path.display())),
        }
    }
    found
}

/// Folders that are none, and what has no business in those that are.
fn check_names(folder: &Path, tree: &Tree) -> Vec<String> {
    let files = tree.files.iter().map(|file| &file.path);
    let known: HashSet<&PathBuf> = tree.folders.iter().chain(files).collect();
    let root = PathBuf::new();
    let mut found = Vec::new();
    for path in std::iter::once(&root).chain(&tree.folders) {
        match list(&folder.join(path)) {
            Ok(names) => {
                let strange =
                    names.map(|name| path.join(name)).filter(|path| !known.contains(path));
                found.extend(strange.map(|path| format!("{}: not of this tree", path.display())));
            }
            Err(error) => found.push(format!("{}: {error}", path.display())),
        }
    }
    found
}

fn list(folder: &Path) -> io::Result<impl Iterator<Item = std::ffi::OsString>> {
    if !symlink_metadata(folder)?.is_dir() {
        return Err(io::Error::other("not a folder"));
    }
    let entries = read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().map(|entry| entry.file_name()))
}

fn check_file(
    path: &Path,
    file: &File,
    seed: u64,
    chunk: &mut [u8],
    expected: &mut [u8],
) -> io::Result<Option<String>> {
    let mut stream = open(path)?;
    let about = stream.metadata()?;
    if !about.is_file() {
        return Ok(Some("not a file".into()));
    }
    if about.len() != file.size {
        return Ok(Some(format!("{} bytes, not {}", about.len(), file.size)));
    }
    let mut content = Random::of_stream(seed, file.number);
    let mut done = 0;
    while done < file.size {
        let length = (file.size - done).min(CHUNK as u64) as usize;
        let (part, wanted) = (&mut chunk[..length], &mut expected[..length]);
        stream.read_exact(part)?;
        content.fill(wanted);
        if let Some(place) = part.iter().zip(&*wanted).position(|(is, should)| is != should) {
            return Ok(Some(format!("differs from byte {} on", done + place as u64)));
        }
        done += length as u64;
    }
    Ok(None)
}

/// A file to read: no link is followed, and no pipe is waited for.
pub fn open(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}
