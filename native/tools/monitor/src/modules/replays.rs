//! Values of modules from files of /proc and /sys: written by hand with what they must give, and
//! wild ones.

mod arc;
mod disks;
mod numbers;
mod wild;

use std::fs;
use std::path::{Path, PathBuf};

use crate::choices::Choices;
use crate::files::Files;
use crate::module::{Moment, Setup};

/// A folder that is gone afterwards.
pub struct Trees(tempfile::TempDir);

impl Trees {
    pub fn new() -> Trees {
        Trees(tempfile::tempdir().unwrap())
    }

    /// The `at`th moment's tree, with these files.
    pub fn add(&self, at: usize, files: &[(&str, &str)]) -> PathBuf {
        let root = self.0.path().join(at.to_string());
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }
}

/// Names and values at the last of the moments, which are `span` seconds apart.
pub fn replay(kind: &str, choices: &Choices, span: f64, roots: &[&Path]) -> Vec<(String, f64)> {
    let mut files = Files::new(roots[0]);
    let kind = super::find(kind).unwrap();
    let mut module = (kind.open)(&mut Setup { files: &mut files, choices }).unwrap();
    let mut row = Vec::new();
    for (at, root) in roots.iter().enumerate() {
        files.move_root(*root);
        files.read_all();
        row.clear();
        let span = if at == 0 { f64::NAN } else { span };
        let now = Moment { monotonic: at as f64 * 2.0, time: 1e9, span };
        module.sample(&files, now, &mut row);
    }
    let names = module.groups().iter().flat_map(|group| &group.columns);
    let names: Vec<String> = names.map(|column| column.name.clone()).collect();
    assert_eq!(names.len(), row.len());
    names.into_iter().zip(row).collect()
}

/// What a module makes of one file at two moments, two seconds apart.
fn between(kind: &str, choices: &Choices, path: &str, texts: [&str; 2]) -> Vec<(String, f64)> {
    let trees = Trees::new();
    let roots = [trees.add(0, &[(path, texts[0])]), trees.add(1, &[(path, texts[1])])];
    replay(kind, choices, 2.0, &[&roots[0], &roots[1]])
}

fn check(got: &[(String, f64)], wanted: &[(&str, f64)]) {
    for (name, wanted) in wanted {
        let value = got.iter().find(|(known, _)| known == name);
        let (_, value) = value.unwrap_or_else(|| panic!("no {name} in {got:?}"));
        let same = (value - wanted).abs() < 1e-9 || (value.is_nan() && wanted.is_nan());
        assert!(same, "{name}: {value} instead of {wanted}");
    }
}

const NAN: f64 = f64::NAN;
