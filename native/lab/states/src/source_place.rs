//! Where in its program a thread was when it asked for something: the innermost function that is
//! the program's own.

use std::collections::HashMap;
use std::sync::Arc;

use diskproof_wire::crash_log::{is_carrier, Address, Operation};
use serde::Serialize;

use crate::operation::Caller;

/// Functions that are told of one operation.
const MOST_TOLD: usize = 5;
/// Where the sources of standard libraries are, parts of which are compiled into programs.
const CARRIERS_SOURCES: [&str; 2] = ["/rustc/", "/usr/include/"];
/// What Go itself asks the kernel with, and packages below which all does.
const GO_PACKAGES: [&str; 4] = ["runtime", "syscall", "os", "io"];
const GO_BELOW: [&str; 5] = ["runtime/", "internal/", "os/", "io/", "golang.org/x/sys/"];
/// Where Python's own modules are, and what lies there that is not its own.
const PYTHON: &str = "/lib/python3.";
const PYTHON_OF_OTHERS: [&str; 2] = ["site-packages", "dist-packages"];

/// A call in a program. What is not known is empty, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourcePlace {
    /// The file that ran, and the address there.
    pub module: String,
    pub offset: u64,
    /// With a line as the source has it, else as a table of symbols has it, with the bytes behind
    /// its begin (`save+0x1c`).
    pub function: String,
    pub file: String,
    pub line: u32,
    /// Its process said it: code that it made itself, or a script.
    #[serde(skip)]
    pub is_told: bool,
}

impl SourcePlace {
    /// What places have in common that are one.
    pub fn key(&self) -> String {
        match (self.file.as_str(), self.function.as_str()) {
            ("", "") => format!("{}+{:#x}", self.module, self.offset),
            ("", function) => format!("{function} in {}", self.module),
            (file, function) if self.line == 0 => format!("{function} in {file}"),
            (file, _) => format!("{file}:{}", self.line),
        }
    }

    fn is_carrier(&self) -> bool {
        is_carrier(self.module.as_bytes())
            || CARRIERS_SOURCES.iter().any(|begin| self.file.starts_with(begin))
    }

    /// The package of a function of Go: of `internal/poll.(*FD).Write` what is before the point.
    fn go_package(&self) -> Option<&str> {
        let end = self.function.find(['(', '[']).unwrap_or(self.function.len());
        let path = &self.function[..end];
        let name = path.rfind('/').map_or(0, |at| at + 1);
        let package = &path[..name + path[name..].find('.')?];
        let is_source = self.file.ends_with(".go") || self.file.ends_with(".s");
        Some(package).filter(|package| is_source && is_go_itself(package))
    }

    /// Where Go's own packages are, if this is a function of one; empty where paths were trimmed.
    fn go_root(&self) -> Option<&str> {
        let (folder, _) = self.file.rsplit_once('/')?;
        let root = folder.strip_suffix(self.go_package()?)?;
        (root.is_empty() || root.ends_with('/')).then_some(root)
    }

    /// Of Go's own packages, also where a function has the name of what it was inlined into.
    fn is_below_go(&self, root: &str) -> bool {
        let folder = self.file.strip_prefix(root).and_then(|path| path.rsplit_once('/'));
        folder.is_some_and(|(folder, _)| is_go_itself(folder))
    }

    fn is_told_by_its_process(&self) -> bool {
        self.is_told && !self.function.is_empty()
    }

    /// Of an interpreter's standard library, which only carries out, too.
    fn is_standard(&self) -> bool {
        let below = self.file.split_once(PYTHON).and_then(|(_, rest)| rest.split_once('/'));
        let is_of_others =
            |path: &str| path.split('/').any(|part| PYTHON_OF_OTHERS.contains(&part));
        let is_frozen = self.file.starts_with("<frozen ");
        self.is_told && (is_frozen || below.is_some_and(|(_, path)| !is_of_others(path)))
    }
}

/// Who asked for what is in a log, half read.
#[derive(Default)]
pub struct Callers {
    named: Vec<Caller>,
    /// Their paths, and whether they are what a process said of itself.
    modules: Vec<(String, bool)>,
    stacks: HashMap<u32, Vec<Address>>,
    lines: HashMap<Address, Vec<SourcePlace>>,
}

impl Callers {
    pub fn take(&mut self, caller: u32, operation: &Operation<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match operation {
            Operation::Module { inode, path, .. } => self.modules.push((text(path), *inode == 0)),
            Operation::Stack { frames } => {
                self.stacks.insert(caller, frames.clone());
            }
            Operation::Line { address, line, function, file } => {
                let (function, file, bare) = (text(function), text(file), self.bare(*address));
                let place = SourcePlace { function, file, line: *line, ..bare };
                self.lines.entry(*address).or_default().push(place);
            }
            _ => self.named.extend(Caller::named(operation)),
        }
    }

    /// By their numbers, from 1. Lines stand behind the stacks that they are about.
    pub fn finish(mut self) -> Vec<Caller> {
        let mut named = std::mem::take(&mut self.named);
        for (caller, number) in named.iter_mut().zip(1..) {
            (caller.frames, caller.place) = self.of_caller(number);
        }
        named
    }

    /// Only known by where it is in its module.
    fn bare(&self, address: Address) -> SourcePlace {
        let module = (address.module as usize).checked_sub(1);
        let module = module.and_then(|at| self.modules.get(at)).cloned();
        let (module, is_told) = module.unwrap_or_default();
        SourcePlace { module, offset: address.offset, is_told, ..SourcePlace::default() }
    }

    /// The program's own calls that led to what a caller asked, the innermost first, and which of
    /// them is the place.
    fn of_caller(&self, caller: u32) -> (Arc<[SourcePlace]>, usize) {
        let frames = self.stacks.get(&caller).into_iter().flatten();
        let all: Vec<SourcePlace> = frames
            .flat_map(|frame| match self.lines.get(frame) {
                Some(lines) => lines.clone(),
                None => vec![self.bare(*frame)],
            })
            .collect();
        let mut told: Vec<SourcePlace> = own(&all).cloned().collect();
        let mut place = told.iter().position(|one| !one.is_standard()).unwrap_or(0);
        if place >= MOST_TOLD {
            told.swap(place, MOST_TOLD - 1);
            place = MOST_TOLD - 1;
        }
        told.truncate(MOST_TOLD);
        (told.into(), place)
    }
}

fn is_go_itself(package: &str) -> bool {
    let package = package.strip_prefix("vendor/").unwrap_or(package);
    GO_PACKAGES.contains(&package) || GO_BELOW.iter().any(|begin| package.starts_with(begin))
}

/// Without libraries that carry out, and without the interpreter where that says what it runs. In a
/// module with source lines a function without one is of such a library, linked in.
fn own(all: &[SourcePlace]) -> impl Iterator<Item = &SourcePlace> {
    let begin = all.iter().position(SourcePlace::is_told_by_its_process).unwrap_or(0);
    let go = all.iter().find_map(SourcePlace::go_root);
    let is_go = move |one: &SourcePlace| {
        one.go_package().is_some() || go.is_some_and(|root| one.is_below_go(root))
    };
    // Go has lines whatever is linked to it.
    let has_lines = move |module: &str| {
        all.iter().any(|one| one.line > 0 && one.module == module && !is_go(one))
    };
    let rest = all.get(begin..).unwrap_or_default().iter();
    rest.filter(move |one| {
        let is_linked_in = one.file.is_empty() && has_lines(&one.module);
        !one.is_carrier() && !is_go(one) && !is_linked_in && !one.module.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(module: &str, function: &str, file: &str, line: u32) -> SourcePlace {
        let [module, function, file] = [module, function, file].map(str::to_owned);
        SourcePlace { module, offset: 16, function, file, line, is_told: false }
    }

    fn functions(all: &[SourcePlace]) -> Vec<&str> {
        own(all).map(|one| one.function.as_str()).collect()
    }

    #[test]
    fn the_c_library_and_what_is_linked_in_are_not_the_program() {
        let app = [
            place("/lib/libc.so.6", "write", "write.c", 26),
            place("/app", "write+0x10", "", 0),
            place("/app", "std::fs::write", "/rustc/1/library/std/src/fs.rs", 7),
            place("/app", "save", "/src/app.c", 12),
            place("/app", "main", "/src/app.c", 40),
            place("/lib/libc.so.6", "__libc_start_main", "", 0),
            place("/app", "_start+0x21", "", 0),
        ];
        assert_eq!(functions(&app), ["save", "main"]);
        // Nothing is known of its lines: what is next to the library is the place.
        let stripped = [app[0].clone(), place("/bare", "", "", 0), place("/bare", "main+1", "", 0)];
        assert_eq!(functions(&stripped), ["", "main+1"]);
        assert_eq!(stripped[1].key(), "/bare+0x10");
    }

    #[test]
    fn what_an_interpreter_runs_is_the_program_where_it_says_so() {
        let python = [
            place("/lib/libc.so.6", "write", "", 0),
            place("/usr/bin/python3", "os_write+0x7", "", 0),
            SourcePlace { is_told: true, ..place("/tmp/perf-1.map", "save", "/srv/app.py", 0) },
        ];
        assert_eq!(functions(&python), ["save"]);
        assert_eq!(python[2].key(), "save in /srv/app.py");
        assert_eq!(functions(&python[..2]), ["os_write+0x7"]);
    }

    #[test]
    fn what_go_asks_the_kernel_with_is_not_the_program() {
        let call = |function, file| place("/app", function, file, 7);
        let all = [
            call("internal/runtime/syscall/linux.Syscall6", "/go/src/asm_linux_amd64.s"),
            call("syscall.write", "/go/src/syscall/zsyscall_linux_amd64.go"),
            call("internal/poll.(*FD).Write", "/go/src/internal/poll/fd_unix.go"),
            call("os.(*File).write", "/go/src/os/file_posix.go"),
            call("main.main.Mkdir.func1", "/go/src/os/file.go"),
            call("io/ioutil.WriteFile", "/go/src/io/ioutil/ioutil.go"),
            call("vendor/golang.org/x/sys/unix.Fsync", "/go/src/vendor/fsync.go"),
            call("example.com/os.Save", "/src/os/save.go"),
            call("main.each[go.shape.string]", "/src/main.go"),
            call("osprey.(*T).os.func1", "/src/osprey.go"),
            call("runtime.main", "/go/src/runtime/proc.go"),
            call("os.cpp", "/src/os.cpp"),
        ];
        let (save, each) = ("example.com/os.Save", "main.each[go.shape.string]");
        assert_eq!(functions(&all), [save, each, "osprey.(*T).os.func1", "os.cpp"]);
        let trimmed = [
            call("syscall.Mkdir", "syscall/syscall_linux.go"),
            call("main.main.Mkdir.func1", "os/file.go"),
            call("main.main", "app/os/main.go"),
        ];
        assert_eq!(functions(&trimmed), ["main.main"]);
        let by_c = [place("/app", "make+0x1", "", 0), all[3].clone()];
        assert_eq!(functions(&by_c), ["make+0x1"]);
    }

    #[test]
    fn numbers_that_nothing_stands_behind_are_no_place() {
        let mut places = Callers::default();
        let address = Address { module: 7, offset: 1 };
        places.take(1, &Operation::Stack { frames: vec![address] });
        assert!(places.of_caller(1).0.is_empty() && places.of_caller(2).0.is_empty());
    }

    fn of_script(files: &[&str]) -> (Arc<[SourcePlace]>, usize) {
        let mut places = Callers::default();
        let mut frames = Vec::new();
        for (number, file) in (1..).zip(files) {
            let path = file.as_bytes().into();
            places.take(0, &Operation::Module { inode: 0, build_id: (&[]).into(), path });
            let address = Address { module: number, offset: 7 };
            frames.push(address);
            let (function, file) = (b"f".into(), file.as_bytes().into());
            places.take(0, &Operation::Line { address, line: 7, function, file });
        }
        places.take(1, &Operation::Stack { frames });
        places.of_caller(1)
    }

    #[test]
    fn modules_of_python_are_passed_over_for_the_place_alone() {
        let (os, frozen) = ("/usr/lib/python3.11/os.py", "<frozen genericpath>");
        let (frames, place) = of_script(&[frozen, os, "/srv/app.py", "/srv/main.py"]);
        assert_eq!((frames.len(), place, &*frames[place].file), (4, 2, "/srv/app.py"));
        let package = "/venv/lib/python3.11/site-packages/store/disk.py";
        assert_eq!(of_script(&[os, package, "/srv/app.py"]).1, 1);
        assert_eq!(of_script(&["/usr/lib/python3/dist-packages/a.py", "/srv/app.py"]).1, 0);
        // Nothing is the program's own, or it stands further out than is told.
        assert_eq!(of_script(&[os, os]).1, 0);
        let (frames, place) = of_script(&[os, os, os, os, os, os, "/srv/app.py"]);
        assert_eq!((frames.len(), place, &*frames[4].file), (5, 4, "/srv/app.py"));
    }
}
