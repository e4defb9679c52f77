//! Walks that were made before. A thread that waits in the same system call, at the same place of
//! its stack, and has the same values wherever a walk read any, would be walked the same way.

use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::address_space::Files;
use super::Waiting;

/// Walks that are kept of a thread.
const MOST: usize = 8;
/// Pieces that one is kept for, and bytes that it takes to read them.
const MOST_RANGES: usize = 64;
const MOST_BYTES: usize = 1 << 16;
/// Bytes between two pieces that are read along: nothing unmapped fits in there.
const MOST_BETWEEN: u64 = 2048;

/// What a walk reads in a process.
#[derive(Default)]
pub struct Seen(RefCell<Vec<(u64, Vec<u8>)>>);

impl Seen {
    pub fn begin(&self) {
        self.0.borrow_mut().clear();
    }

    pub fn add(&self, address: u64, bytes: &[u8]) {
        self.0.borrow_mut().push((address, bytes.to_vec()));
    }

    fn end(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.take()
    }
}

/// What a walk began with and read.
pub struct Memo {
    at: Waiting,
    thread: u32,
    files: Arc<Files>,
    /// Of the process, where more than the stack of a thread was read: it may lie elsewhere once
    /// that has changed.
    pages: Option<u64>,
    /// From where so many bytes are read, one behind the other.
    ranges: Vec<(u64, usize)>,
    /// What is at a place of these.
    pieces: Vec<(usize, Vec<u8>)>,
}

impl Memo {
    /// None where that is too much to be read each time.
    pub fn new(
        at: Waiting,
        thread: u32,
        files: Arc<Files>,
        pages: Option<u64>,
        seen: &Seen,
    ) -> Option<Memo> {
        let mut seen = seen.end();
        seen.sort_unstable();
        seen.dedup();
        let mut ranges: Vec<(u64, usize)> = Vec::new();
        let (mut pieces, mut total) = (Vec::new(), 0);
        for (address, bytes) in seen {
            let end = address.checked_add(bytes.len() as u64)?;
            match ranges.last_mut() {
                Some((from, length)) if address <= *from + *length as u64 + MOST_BETWEEN => {
                    let longer = (end - *from) as usize;
                    total += longer.saturating_sub(*length);
                    *length = longer.max(*length);
                }
                _ => {
                    ranges.push((address, bytes.len()));
                    total += bytes.len();
                }
            }
            let (from, length) = *ranges.last()?;
            pieces.push((total - length + (address - from) as usize, bytes));
            if total > MOST_BYTES || ranges.len() > MOST_RANGES {
                return None;
            }
        }
        Some(Memo { at, thread, files, pages, ranges, pieces })
    }

    fn holds(&self, at: Waiting, buffer: &mut Vec<u8>) -> bool {
        let is_there =
            self.at == at && self.pages.is_none_or(|pages| self.files.read_pages() == Some(pages));
        is_there && self.read(buffer).is_some() && self.has_same(buffer)
    }

    fn has_same(&self, buffer: &[u8]) -> bool {
        self.pieces.iter().all(|(at, bytes)| buffer.get(*at..*at + bytes.len()) == Some(bytes))
    }

    fn read(&self, buffer: &mut Vec<u8>) -> Option<()> {
        buffer.resize(self.ranges.iter().map(|(_, length)| length).sum(), 0);
        // One range is read faster through the file.
        if let [(from, _)] = self.ranges[..] {
            return self.files.memory.read_exact_at(buffer, from).ok();
        }
        let vector =
            |address: *mut libc::c_void, length| libc::iovec { iov_base: address, iov_len: length };
        let into = vector(buffer.as_mut_ptr().cast(), buffer.len());
        let from: Vec<_> = self
            .ranges
            .iter()
            .map(|&(from, length)| vector(from as *mut libc::c_void, length))
            .collect();
        // SAFETY: the buffer has the length that is told; the other addresses are not ours.
        let got = unsafe {
            libc::process_vm_readv(
                self.thread as i32,
                &into,
                1,
                from.as_ptr(),
                from.len() as u64,
                0,
            )
        };
        (got == buffer.len() as isize).then_some(())
    }
}

/// The walks of one thread, that of the last first, and what came of each.
#[derive(Default)]
pub struct Memos {
    known: Vec<(Memo, u32)>,
    buffer: Vec<u8>,
}

impl Memos {
    pub fn find(&mut self, at: Waiting) -> Option<u32> {
        let buffer = &mut self.buffer;
        let found = self.known.iter().position(|(memo, _)| memo.holds(at, buffer))?;
        self.known[..=found].rotate_right(1);
        self.known.first().map(|(_, number)| *number)
    }

    pub fn keep(&mut self, memo: Memo, number: u32) {
        self.known.truncate(MOST - 1);
        self.known.insert(0, (memo, number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(seen: &[(u64, Vec<u8>)]) -> Option<Memo> {
        let watched = Seen::default();
        watched.begin();
        seen.iter().for_each(|(address, bytes)| watched.add(*address, bytes));
        let files = Arc::new(Files::open(std::process::id()).unwrap());
        Memo::new(AT, std::process::id(), files, None, &watched)
    }

    const AT: Waiting = Waiting { number: 1, stack: 16, address: 32 };

    fn piece(bytes: &[u8]) -> (u64, Vec<u8>) {
        (bytes.as_ptr() as u64, bytes.to_vec())
    }

    #[test]
    fn what_has_the_same_values_is_known_again() {
        let mut memory = vec![7u8; 9000];
        // Side by side, in each other, and further away.
        let all = [
            &memory[8..16],
            &memory[16..24],
            &memory[10..12],
            &memory[100..108],
            &memory[8000..8500],
        ];
        let seen: Vec<_> = all.into_iter().map(piece).collect();
        let memo = own(&seen).unwrap();
        assert_eq!(memo.ranges.len(), 2);
        let mut memos = Memos::default();
        memos.keep(memo, 5);
        assert_eq!(memos.find(AT), Some(5));
        assert_eq!(memos.find(Waiting { stack: 17, ..AT }), None);
        // What lies between was not read.
        memory[50] = 1;
        assert_eq!(memos.find(AT), Some(5));
        for at in [8, 23, 107, 8000, 8499] {
            memory[at] = 1;
            assert_eq!(memos.find(AT), None, "{at}");
            memory[at] = 7;
        }
        assert_eq!(memos.find(AT), Some(5));
        drop(memory);
        assert!(own(&[(1, vec![0; 8])]).is_some_and(|memo| !memo.holds(AT, &mut Vec::new())));
    }

    #[test]
    fn too_much_is_not_kept_and_the_oldest_goes() {
        let far = (0..65).map(|number| (number << 20, vec![0; 8])).collect::<Vec<_>>();
        assert!(own(&far).is_none() && own(&far[..64]).is_some());
        assert!(own(&[(0, vec![0; MOST_BYTES + 1])]).is_none());
        let memory = [3u8; 8];
        let mut memos = Memos::default();
        for number in 0..12 {
            let mut memo = own(&[piece(&memory)]).unwrap();
            memo.at.stack = number;
            memos.keep(memo, number as u32);
        }
        assert_eq!(memos.find(Waiting { stack: 3, ..AT }), None);
        assert_eq!(memos.find(Waiting { stack: 4, ..AT }), Some(4));
        assert_eq!(memos.known.len(), MOST);
    }
}
