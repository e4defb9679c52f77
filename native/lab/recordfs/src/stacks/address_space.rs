//! What lies where in a process, and its memory.
//!
//! The file of its memory belongs to the program that it ran when that was opened: after exec(2)
//! nothing can be read from it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::elf::{find_build_id, parse_headers, Headers, HEADERS};
use super::go::Go;
use super::maps::{parse, Mapping};
use super::memo::Seen;
use super::python::Python;
use super::rules::Rules;
use super::Module;

const PAGE: u64 = 4096;
const MOST_MAPS: u64 = 8 << 20;
/// What is known of more of them is not kept.
const MOST_MODULES: usize = 1024;

pub struct AddressSpace {
    process: u32,
    pub files: Arc<Files>,
    pub pages: u64,
    pub seen: Seen,
    mappings: Vec<Mapping>,
    pub modules: Vec<Loaded>,
    /// None until it was looked for.
    python: Option<Option<Arc<Python>>>,
}

/// The files of a process in /proc.
pub struct Files {
    pub memory: File,
    /// Its size changes with every mapping.
    statm: File,
}

impl Files {
    pub fn open(thread: u32) -> Option<Files> {
        let open = |name: &str| File::open(format!("/proc/{thread}/{name}")).ok();
        Some(Files { memory: open("mem")?, statm: open("statm")? })
    }

    pub fn read_pages(&self) -> Option<u64> {
        let mut text = [0; 64];
        let length = self.statm.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.split(' ').next()?.parse().ok()
    }
}

/// A module in memory.
pub struct Loaded {
    pub named: Module,
    pub device: (u32, u32),
    /// What is added to the file's addresses.
    pub bias: u64,
    pub headers: Headers,
    pub rules: Option<Arc<Rules>>,
    /// None until it was looked for.
    pub go: Option<Option<Arc<Go>>>,
    /// Where its first byte is.
    from: u64,
}

impl Loaded {
    pub fn file(&self) -> FileId {
        (self.device, self.named.inode)
    }
}

/// A file as the kernel tells it: its device, and its number there.
pub type FileId = ((u32, u32), u64);

/// What is at an address that may be run.
pub enum Found {
    Module(usize),
    /// Memory of no file.
    Written,
}

impl AddressSpace {
    pub fn open(process: u32, thread: u32) -> Option<AddressSpace> {
        let files = Arc::new(Files::open(thread)?);
        let pages = files.read_pages()?;
        let maps = File::open(format!("/proc/{thread}/maps")).ok()?;
        let mut text = Vec::new();
        maps.take(MOST_MAPS).read_to_end(&mut text).ok()?;
        let mappings = parse(&text);
        Some(AddressSpace {
            process,
            files,
            pages,
            seen: Seen::default(),
            mappings,
            modules: Vec::new(),
            python: None,
        })
    }

    /// Whether nothing was mapped since.
    pub fn is_current(&self) -> bool {
        self.files.read_pages() == Some(self.pages)
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|one| one.to <= address);
        self.mappings.get(at).filter(|one| one.from <= address)
    }

    /// The stack that a pointer is in: memory of no file, so that reading it asks no file system.
    pub fn read_stack(&self, pointer: u64, most: u64) -> Option<Stack> {
        let mapping = self.mapping(pointer)?;
        if mapping.inode != 0 || !mapping.is_private {
            return None;
        }
        let end = mapping.to.min(pointer.saturating_add(most));
        let mut stack = Stack { end, page: 0, bytes: Box::new([0; PAGE as usize]) };
        stack.read_page(self, pointer & !(PAGE - 1))?;
        Some(stack)
    }

    /// Reads memory of no file, or of one that is known to ask no other file system.
    pub fn read(&self, file: FileId, address: u64, bytes: &mut [u8]) -> Option<()> {
        let mapping = self.mapping(address).filter(|one| one.is_private)?;
        let is_known = mapping.inode == 0 || (mapping.device, mapping.inode) == file;
        let end = address.checked_add(bytes.len() as u64)?;
        if !is_known || end > mapping.to {
            return None;
        }
        self.files.memory.read_exact_at(bytes, address).ok()
    }

    /// Where what is not run of a file lies.
    pub fn data_of(&self, file: FileId) -> Vec<(u64, u64)> {
        let is_data = |one: &&Mapping| {
            (one.device, one.inode) == file && one.is_private && !one.is_executable
        };
        self.mappings.iter().filter(is_data).map(|one| (one.from, one.to)).collect()
    }

    /// As `open`, when something was mapped since. What is known of its modules stays.
    pub fn open_again(self, thread: u32) -> Option<AddressSpace> {
        let mut opened = AddressSpace::open(self.process, thread)?;
        // After exec(2) nothing can be read from what was open before.
        let module = self.modules.first()?;
        self.files.memory.read_exact_at(&mut [0], module.from).ok()?;
        opened.python = self.python.filter(Option::is_some);
        if self.modules.len() <= MOST_MODULES {
            opened.modules = self.modules;
        }
        Some(opened)
    }

    /// Modules that run, by the end of their path.
    pub fn find_modules(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let name = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
        let wanted = |one: &&Mapping| one.is_executable && one.inode != 0;
        let at: Vec<u64> = (self.mappings.iter().filter(wanted))
            .filter(|one| name(&one.path).is_some_and(|name| is_wanted(&name)))
            .map(|one| one.from)
            .collect();
        at.into_iter()
            .filter_map(|address| match self.find(address)? {
                Found::Module(at) => Some(at),
                Found::Written => None,
            })
            .collect()
    }

    /// None where nothing can be run.
    pub fn find(&mut self, address: u64) -> Option<Found> {
        let mapping = self.mapping(address).filter(|one| one.is_executable)?;
        if mapping.inode == 0 {
            return mapping.path.is_empty().then_some(Found::Written);
        }
        let (device, inode, path) = (mapping.device, mapping.inode, mapping.path.clone());
        let is_same = |one: &&Mapping| (one.device, one.inode) == (device, inode);
        let before = self.mappings.partition_point(|one| one.from <= address);
        let file = self.mappings.get(..before)?.iter().rev().filter(is_same);
        let from = file.into_iter().find(|one| one.offset == 0)?.from;
        let is_known = |one: &Loaded| one.from == from && one.file() == (device, inode);
        if let Some(at) = self.modules.iter().position(is_known) {
            return Some(Found::Module(at));
        }
        let mut bytes = [0; HEADERS];
        self.files.memory.read_exact_at(&mut bytes, from).ok()?;
        let headers = parse_headers(&bytes)?;
        let bias = from.wrapping_sub(headers.first);
        let build_id = self.read_build_id(&headers, bias).unwrap_or_default();
        let named = Module { inode, build_id, path: path.get(..4096).unwrap_or(&path).to_vec() };
        self.modules.push(Loaded { named, device, bias, headers, rules: None, go: None, from });
        Some(Found::Module(self.modules.len() - 1))
    }

    fn read_build_id(&self, headers: &Headers, bias: u64) -> Option<Vec<u8>> {
        headers.notes.iter().find_map(|&(from, to)| {
            let mut bytes = vec![0; to.checked_sub(from)?.try_into().ok()?];
            self.files.memory.read_exact_at(&mut bytes, from.wrapping_add(bias)).ok()?;
            find_build_id(&bytes)
        })
    }

    /// The interpreter that it runs in, if it is one of Python.
    pub fn python(&mut self, own_device: Option<(u32, u32)>) -> Option<Arc<Python>> {
        if self.python.is_none() {
            self.python = Some(Python::find(self, own_device).map(Arc::new));
        }
        self.python.clone().flatten()
    }

    /// Where the process writes what its own code is, if it does.
    pub fn perf_map(&self) -> Module {
        let path = format!("/tmp/perf-{}.map", self.process).into_bytes();
        Module { inode: 0, build_id: Vec::new(), path }
    }
}

/// A stack, read by the page.
pub struct Stack {
    end: u64,
    page: u64,
    bytes: Box<[u8; PAGE as usize]>,
}

impl Stack {
    /// The word at an address of it, not below `pointer`.
    pub fn read(&mut self, space: &AddressSpace, address: u64, pointer: u64) -> Option<u64> {
        if address % 8 != 0 || address < pointer || address.checked_add(8)? > self.end {
            return None;
        }
        let page = address & !(PAGE - 1);
        if self.page != page {
            self.read_page(space, page)?;
        }
        let at = (address - page) as usize;
        let bytes = self.bytes.get(at..at + 8)?;
        space.seen.add(address, bytes);
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn read_page(&mut self, space: &AddressSpace, page: u64) -> Option<()> {
        // Nothing is at a page that could not be read.
        self.page = 0;
        space.files.memory.read_exact_at(&mut self.bytes[..], page).ok()?;
        self.page = page;
        Some(())
    }
}
