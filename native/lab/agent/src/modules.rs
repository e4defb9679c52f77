//! Kernel modules from the initramfs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::fs::{self, File};

use rustix::io::Errno;
use rustix::system::finit_module;

use crate::failure::{Doing, Failure, Outcome};

const FOLDER: &str = "/modules";
/// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h: the kernel unpacks the file itself.
const COMPRESSED: c_int = 4;

/// The modules this guest can load, and the files it has loaded.
#[derive(Default)]
pub struct Modules {
    deps: Option<BTreeMap<String, Vec<String>>>,
    loaded: BTreeSet<String>,
}

impl Modules {
    /// What the channel needs, and nothing else: it is on the way of every boot.
    pub fn load_boot(&mut self) -> Outcome<()> {
        let text = read_list("boot.list")?;
        let files = parse_files(&text).collect::<Outcome<Vec<_>>>()?;
        files.iter().try_for_each(|file| self.insert(file))
    }

    /// Load modules by name, each with what it depends on.
    pub fn load(&mut self, names: &[String]) -> Outcome<()> {
        if self.deps.is_none() {
            self.deps = Some(parse_deps(&read_list("deps.list")?)?);
        }
        for name in names {
            let deps = self.deps.as_ref().and_then(|deps| deps.get(&plain(name)));
            let files = deps.cloned().ok_or_else(|| {
                Failure::new(format!("cannot load module {name}"), "deps.list does not name it")
            })?;
            files.iter().try_for_each(|file| self.insert(file))?;
        }
        Ok(())
    }

    fn insert(&mut self, file: &str) -> Outcome<()> {
        if self.loaded.contains(file) {
            return Ok(());
        }
        let opened =
            File::open(format!("{FOLDER}/{file}")).doing(|| format!("cannot open {file}"))?;
        match finit_module(&opened, c"", insert_flags(file)) {
            Ok(()) | Err(Errno::EXIST) => {
                self.loaded.insert(file.to_owned());
                Ok(())
            }
            Err(error) => Err(error).doing(|| format!("cannot load {file}")),
        }
    }
}

fn read_list(name: &str) -> Outcome<String> {
    fs::read_to_string(format!("{FOLDER}/{name}")).doing(|| format!("cannot read {name}"))
}

fn insert_flags(file: &str) -> c_int {
    if file.ends_with(".ko") {
        0
    } else {
        COMPRESSED
    }
}

/// `-` and `_` are the same in a module's name.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// The entries of a list: lines without the empty ones and comments.
fn parse_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_files(text: &str) -> impl Iterator<Item = Outcome<String>> + '_ {
    parse_lines(text).map(parse_file)
}

fn parse_file(name: &str) -> Outcome<String> {
    if name.contains(['/', '\0']) {
        Err(Failure::new(format!("cannot load {name:?}"), "it is not a file name"))
    } else {
        Ok(name.to_owned())
    }
}

/// `name: file file`, one module a line.
fn parse_deps(text: &str) -> Outcome<BTreeMap<String, Vec<String>>> {
    parse_lines(text)
        .map(|line| {
            let (name, files) = line.split_once(':').ok_or_else(|| {
                Failure::new("cannot read deps.list", format!("no colon in {line:?}"))
            })?;
            let files = files.split_ascii_whitespace().map(parse_file).collect::<Outcome<_>>()?;
            Ok((plain(name.trim()), files))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deps_keep_load_order_and_plain_names() {
        let deps =
            parse_deps("# made by hand\n\nvirtio-blk: a.ko virtio_blk.ko.xz\next4:\n").unwrap();
        assert_eq!(deps["virtio_blk"], ["a.ko", "virtio_blk.ko.xz"]);
        assert!(deps["ext4"].is_empty());
    }

    #[test]
    fn paths_and_lines_without_colon_are_refused() {
        assert!(parse_deps("a: ../../x.ko").is_err());
        assert!(parse_deps("a b").is_err());
        assert!(parse_files("a.ko\n/b.ko").any(|file| file.is_err()));
    }

    #[test]
    fn only_packed_files_are_unpacked_by_the_kernel() {
        assert_eq!(insert_flags("ext4.ko"), 0);
        assert_eq!(insert_flags("ext4.ko.xz"), COMPRESSED);
        assert_eq!(insert_flags("ext4.ko.zst"), COMPRESSED);
    }

    #[test]
    fn any_list_is_read_or_refused() {
        bolero::check!(name = "modules").for_each(|text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            if let Ok(deps) = parse_deps(&text) {
                assert!(deps.values().flatten().all(|file| !file.contains(['/', '\0'])));
            }
            if let Ok(files) = parse_files(&text).collect::<Outcome<Vec<_>>>() {
                assert!(files.iter().all(|file| !file.contains(['/', '\0'])));
            }
        });
    }
}
