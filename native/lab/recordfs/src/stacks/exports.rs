//! Where in a process the symbols are that a module exports: its table for the loader
//! (DT_GNU_HASH), as it lies in memory.

use super::address_space::{AddressSpace, FileId, Loaded};

/// Entries of a dynamic section, and symbols of one bucket, that are looked at.
const MOST_ENTRIES: u64 = 256;
const MOST_CHAIN: u64 = 1024;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL: u64 = 24;

pub struct Exports<'a> {
    space: &'a AddressSpace,
    file: FileId,
    bias: u64,
    symbols: u64,
    strings: u64,
    hash: u64,
}

impl<'a> Exports<'a> {
    pub fn read(space: &'a AddressSpace, module: &Loaded) -> Option<Exports<'a>> {
        let (at, end) = module.headers.dynamic?;
        let (file, bias) = (module.file(), module.bias);
        let mut found = Exports { space, file, bias, symbols: 0, strings: 0, hash: 0 };
        for number in 0..(end.checked_sub(at)? / 16).min(MOST_ENTRIES) {
            let [tag, value] = found.words(at.wrapping_add(bias).checked_add(number * 16)?)?;
            // glibc's loader writes the address in memory there, others leave that of the file.
            let is_of_file = |(from, to): &(u64, u64)| (*from..*to).contains(&value);
            let is_of_file = module.headers.loaded.iter().any(is_of_file);
            let address = if is_of_file { value.wrapping_add(bias) } else { value };
            match tag {
                0 => break,
                STRINGS => found.strings = address,
                SYMBOLS => found.symbols = address,
                GNU_HASH => found.hash = address,
                _ => {}
            }
        }
        Some(found)
    }

    /// The address of what is exported by a name.
    pub fn find(&self, name: &str) -> Option<u64> {
        let hash = name
            .bytes()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let [buckets, first, blooms] = [0, 4, 8].map(|at| self.short(self.hash.wrapping_add(at)));
        let (buckets, first, blooms) = (buckets?, first?, blooms?);
        let table = self.hash.checked_add(16)?.checked_add(u64::from(blooms) * 8)?;
        let bucket = u64::from(hash.checked_rem(buckets)?);
        let begin = self.short(table.checked_add(bucket * 4)?)?;
        let chain = table.checked_add(u64::from(buckets) * 4)?;
        for number in 0..MOST_CHAIN {
            let index = u64::from(begin) + number;
            let link = self.short(chain.checked_add(index.checked_sub(first.into())? * 4)?)?;
            let symbol = self.symbols.checked_add(index * SYMBOL)?;
            if link | 1 == hash | 1 && self.is_named(symbol, name)? {
                let [value, _] = self.words(symbol.checked_add(8)?)?;
                return Some(value.wrapping_add(self.bias));
            }
            if link & 1 == 1 {
                break;
            }
        }
        None
    }

    fn is_named(&self, symbol: u64, name: &str) -> Option<bool> {
        let at = self.strings.checked_add(self.short(symbol)?.into())?;
        let mut bytes = vec![0; name.len() + 1];
        self.space.read(self.file, at, &mut bytes)?;
        Some(bytes.strip_suffix(b"\0") == Some(name.as_bytes()))
    }

    fn short(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.space.read(self.file, address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    fn words(&self, address: u64) -> Option<[u64; 2]> {
        let mut bytes = [0; 16];
        self.space.read(self.file, address, &mut bytes)?;
        let both = u128::from_le_bytes(bytes);
        Some([both as u64, (both >> 64) as u64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_c_library_exports_is_where_its_file_says() {
        use object::{Object, ObjectSymbol};
        let mut program = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let number = program.id();
        let (space, modules) = loop {
            let mut space = AddressSpace::open(number, number).unwrap();
            let modules = space.find_modules(|name| name.starts_with(b"libc.so"));
            if !modules.is_empty() {
                break (space, modules);
            }
        };
        // The loader writes its addresses after it has mapped the file.
        let exports = loop {
            let exports = Exports::read(&space, &space.modules[modules[0]]).unwrap();
            if exports.find("getppid").is_some() {
                break exports;
            }
        };
        let module = &space.modules[modules[0]];
        let file = std::fs::read(String::from_utf8_lossy(&module.named.path).as_ref()).unwrap();
        let file = object::File::parse(&*file).unwrap();
        for name in ["getppid", "environ", "_IO_stdin_used", "qsort"] {
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
            let expected = symbol.map(|symbol| symbol.address().wrapping_add(module.bias));
            assert_eq!(exports.find(name), expected, "{name}");
        }
        program.kill().unwrap();
        program.wait().unwrap();
    }
}
