//! Names of files and threads, kept in the page: asked for once, and again when they may have
//! changed.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use diskproof_bare::syscall;
use diskproof_random::{mix, STEP};

use crate::page::{Page, FILES, MOST_TEXT, NO_TEXT, TEXTS, TEXT_HEAD};

/// A file may get another name; it is seen after so long.
const FRESH_MS: u32 = 50;
/// Slots that a file may be in.
const PROBES: usize = 8;

/// Keep a text; its place, or `NO_TEXT` when there is no room.
fn keep(page: &Page, key: u64, text: &[u8]) -> u32 {
    let words = (TEXT_HEAD + text.len().div_ceil(8)) as u64;
    let most = (TEXTS - TEXT_HEAD) as u64;
    // Looked at first: the count may not run away.
    if page.texts_used.0.load(Relaxed) + words > most {
        return NO_TEXT;
    }
    let before = page.texts_used.0.fetch_add(words, Relaxed);
    if before + words > most {
        return NO_TEXT;
    }
    let place = before as usize + TEXT_HEAD;
    page.texts[place].store(key, Relaxed);
    page.texts[place + 1].store(text.len() as u64, Relaxed);
    for (index, chunk) in text.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        page.texts[place + TEXT_HEAD + index].store(u64::from_le_bytes(word), Relaxed);
    }
    place as u32
}

fn has_key(page: &Page, place: u32, key: u64) -> bool {
    place != NO_TEXT && page.texts.get(place as usize).is_some_and(|word| word.load(Relaxed) == key)
}

fn is_kept(page: &Page, place: u32, key: u64, text: &[u8]) -> bool {
    let place = place as usize;
    let end = place + TEXT_HEAD + text.len().div_ceil(8);
    if place == NO_TEXT as usize || end > TEXTS {
        return false;
    }
    page.texts[place].load(Relaxed) == key
        && page.texts[place + 1].load(Relaxed) == text.len() as u64
        && text.chunks(8).enumerate().all(|(index, chunk)| {
            let word = page.texts[place + TEXT_HEAD + index].load(Relaxed).to_le_bytes();
            word[..chunk.len()] == *chunk
        })
}

/// This thread's name, kept anew if it is not the one at `before`.
pub fn keep_thread_name(page: &Page, before: u32) -> u32 {
    const GET_NAME: i64 = 16;
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes, the last of which is a NUL.
    unsafe { syscall::call(syscall::PRCTL, [GET_NAME, name.as_mut_ptr() as i64, 0, 0, 0, 0]) };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    if is_kept(page, before, 0, &name[..length]) {
        return before;
    }
    keep(page, 0, &name[..length])
}

/// The name of an open file; `NO_TEXT` where it cannot be found out.
pub fn find_file(page: &Page, fd: i32, now: u64) -> u32 {
    let Some(key) = identify(fd) else { return NO_TEXT };
    let now = (now / 1_000_000) as u32;
    let first = key as usize % FILES;
    for probe in 0..PROBES {
        let slot = &page.files[(first + probe) % FILES];
        let owner = slot.key.load(Acquire);
        if owner == 0 && slot.key.compare_exchange(0, key, AcqRel, Acquire).is_err() {
            continue;
        }
        if owner == 0 || owner == key {
            let known = slot.known.load(Acquire);
            let (place, asked) = (known as u32, (known >> 32) as u32);
            if now.wrapping_sub(asked) < FRESH_MS && has_key(page, place, key) {
                return place;
            }
            let place = ask(page, fd, key, place);
            slot.known.store(u64::from(place) | u64::from(now) << 32, Release);
            return place;
        }
    }
    // Another file gives way. Whoever reads both halves meanwhile sees it at the text's own key.
    page.files[first].key.store(key, Release);
    let place = ask(page, fd, key, NO_TEXT);
    page.files[first].known.store(u64::from(place) | u64::from(now) << 32, Release);
    place
}

fn ask(page: &Page, fd: i32, key: u64, before: u32) -> u32 {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    write_number(fd as u32, &mut link[14..]);
    let mut text = [0_u8; MOST_TEXT];
    let words = [link.as_ptr() as i64, text.as_mut_ptr() as i64, MOST_TEXT as i64, 0, 0, 0];
    // SAFETY: a string with its NUL; the kernel writes at most the buffer.
    let length = unsafe { syscall::call(syscall::READLINK, words) };
    match usize::try_from(length).ok().and_then(|length| text.get(..length)) {
        Some(name) if is_kept(page, before, key, name) => before,
        Some(name) => keep(page, key, name),
        None => NO_TEXT,
    }
}

fn write_number(number: u32, to: &mut [u8]) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in to.iter_mut().take(digits).rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Device, inode number and time of birth, mixed; never 0. The number of a removed file is soon
/// given to another.
fn identify(fd: i32) -> Option<u64> {
    const INODE_BIRTH: i64 = 0x100 | 0x800;
    let seen = syscall::statx(fd, c"", INODE_BIRTH)?;
    let born = seen.born[0].rotate_left(32) ^ (seen.born[1] & 0xffff_ffff);
    let device = u64::from(seen.device_minor) << 32 | u64::from(seen.device_major);
    let mixed = [device, seen.inode, born]
        .into_iter()
        .fold(0, |sum, word| mix((sum ^ word).wrapping_add(STEP)));
    Some(mixed | 1)
}

/// The inode number of /proc/self/ns/pid.
pub fn read_pid_namespace() -> Option<u64> {
    const INODE: i64 = 0x100;
    syscall::statx(syscall::AT_FDCWD, c"/proc/self/ns/pid", INODE).map(|seen| seen.inode)
}
