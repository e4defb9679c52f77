//! Which folders and files a tree has: from four numbers alone.

use std::path::PathBuf;

use diskproof_random::Random;

pub const MAX_FILES: u64 = 1_000_000;
pub const MAX_BYTES: u64 = 1 << 44;
pub const MAX_DEPTH: u64 = 32;
const FILES_A_FOLDER: u64 = 12;
/// One file of so many is big; all big ones together hold about six bytes of ten.
const BIG_EVERY: u64 = 200;
const BIG_WEIGHT: u64 = 12_800;
const SHAPE_STREAM: u64 = u64::MAX;

/// The four numbers. `depth` counts the levels of folders below the tree's own.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    pub files: u64,
    pub bytes: u64,
    pub depth: u64,
}

/// A tree. Paths are relative to its folder; a folder stands before what is in it.
#[derive(Debug)]
pub struct Tree {
    pub folders: Vec<PathBuf>,
    pub files: Vec<File>,
}

/// A file of a tree; `number` selects its content.
#[derive(Debug)]
pub struct File {
    pub number: u64,
    pub path: PathBuf,
    pub size: u64,
}

impl Shape {
    /// The tree of these numbers, the same on every machine. Every level has a folder, and the
    /// sizes add up to `bytes`.
    pub fn grow(&self) -> Tree {
        let mut random = Random::of_stream(self.seed, SHAPE_STREAM);
        let folders = self.grow_folders(&mut random);
        let sizes = self.share_bytes(&mut random);
        let files = (0..).zip(sizes).map(|(number, size)| {
            // The first ones spread over all folders, so that none is empty where there are enough.
            let place = match usize::try_from(number) {
                Ok(place) if place < folders.len() => place,
                _ => random.below(folders.len() as u64) as usize,
            };
            let path = folders[place].join(format!("f{number}-{}", word(&mut random)));
            File { number, path, size }
        });
        Tree { files: files.collect(), folders }
    }

    fn grow_folders(&self, random: &mut Random) -> Vec<PathBuf> {
        let count = self.depth.max(self.files / FILES_A_FOLDER);
        let mut folders: Vec<(PathBuf, u64)> = Vec::new();
        for number in 0..count {
            // A chain to the lowest level first, then anywhere that is not the lowest.
            let parent = if number < self.depth { number } else { random.below(number + 1) };
            let (above, level) = match parent.checked_sub(1) {
                Some(place) if folders[place as usize].1 < self.depth => {
                    folders[place as usize].clone()
                }
                _ => (PathBuf::new(), 0),
            };
            folders.push((above.join(format!("d{number}-{}", word(random))), level + 1));
        }
        folders.into_iter().map(|(path, _)| path).collect()
    }

    /// Sizes from weights: few are big, small ones spread over eight powers of two.
    fn share_bytes(&self, random: &mut Random) -> Vec<u64> {
        let big = random.below(BIG_EVERY);
        let weights: Vec<u64> = (0..self.files)
            .map(|number| match number % BIG_EVERY == big.min(self.files - 1) {
                true => BIG_WEIGHT / 2 + random.below(BIG_WEIGHT),
                false => {
                    let least = 1 << random.below(8);
                    least + random.below(least)
                }
            })
            .collect();
        let all = u128::from(weights.iter().sum::<u64>());
        let (mut sum, mut done) = (0_u128, 0_u64);
        let share = |weight: u64| {
            sum += u128::from(weight);
            let end = (u128::from(self.bytes) * sum / all) as u64;
            let size = end - done;
            done = end;
            size
        };
        weights.into_iter().map(share).collect()
    }
}

/// A name's tail of 1 to 12 letters.
fn word(random: &mut Random) -> String {
    let length = 1 + random.below(12);
    (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn level(path: &std::path::Path) -> u64 {
        path.components().count() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_tree_is_what_its_numbers_say(
            seed: u64, files in 1..3000_u64, bytes in 0..MAX_BYTES, depth in 1..=MAX_DEPTH,
        ) {
            let tree = Shape { seed, files, bytes, depth }.grow();
            prop_assert_eq!(tree.files.len() as u64, files);
            prop_assert_eq!(tree.files.iter().map(|file| file.size).sum::<u64>(), bytes);
            prop_assert_eq!(tree.folders.iter().map(|path| level(path)).max(), Some(depth));
            let mut known = HashSet::from([PathBuf::new()]);
            for folder in &tree.folders {
                prop_assert!(known.contains(folder.parent().unwrap()));
                prop_assert!(known.insert(folder.clone()));
            }
            for file in &tree.files {
                prop_assert!(tree.folders.iter().any(|folder| file.path.parent() == Some(folder)));
                prop_assert!(known.insert(file.path.clone()));
            }
        }
    }

    #[test]
    fn few_files_are_big_and_hold_most_bytes() {
        let tree = Shape { seed: 1, files: 44_500, bytes: 670_000_000, depth: 5 }.grow();
        let mut sizes: Vec<u64> = tree.files.iter().map(|file| file.size).collect();
        sizes.sort_unstable();
        let big = &sizes[sizes.len() - 222..];
        let held = big.iter().sum::<u64>() as f64 / 670e6;
        assert!((0.5..0.75).contains(&held), "{held}");
        assert!(sizes[sizes.len() / 2] < 5000 && big[0] > 500_000);
        assert_eq!(tree.folders.len(), 3708);
    }
}
