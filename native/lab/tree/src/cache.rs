//! What of a tree the page cache holds.

use std::io;
use std::path::Path;

use diskproof_pagecache::{count_pages, drop_pages, page_size};

use crate::checking::open;
use crate::making::named;
use crate::shape::Tree;

/// Bytes of a tree's files that the page cache holds, in whole pages.
pub fn count_cached(folder: &Path, tree: &Tree) -> io::Result<u64> {
    each_file(folder, tree, |file| {
        let counts = count_pages(file, 0..u64::MAX).map_err(io::Error::other)?;
        Ok(counts.cached * page_size())
    })
}

/// Drops the clean pages of a tree's files: those of one that was just made are written first.
pub fn drop_cached(folder: &Path, tree: &Tree) -> io::Result<()> {
    rustix::fs::syncfs(std::fs::File::open(folder).map_err(|error| named(folder, error))?)?;
    each_file(folder, tree, |file| {
        drop_pages(file, 0..u64::MAX).map_err(io::Error::other)?;
        Ok(0)
    })?;
    Ok(())
}

fn each_file(
    folder: &Path,
    tree: &Tree,
    act: impl Fn(&std::fs::File) -> io::Result<u64>,
) -> io::Result<u64> {
    let mut sum = 0;
    for file in &tree.files {
        sum += open(&folder.join(&file.path))
            .and_then(|file| act(&file))
            .map_err(|error| named(&file.path, error))?;
    }
    Ok(sum)
}
