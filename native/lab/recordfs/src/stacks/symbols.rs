//! The source of the addresses of a log: looked up once it has ended, by a process of its own that
//! has no rights left. Programs are strangers, and so is what they say of themselves.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use diskproof_rights::CapabilitySet;
use diskproof_wire::crash_log::{
    Address, Frame, Header, Operation, Place, Reader, MAX_FRAMES, MAX_NAME, MAX_TEXT,
};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{set_parent_process_death_signal, Signal};

use super::debug_file::Debug;
use super::perf_map::PerfMap;
use super::Module;

/// The word that makes this program the one that looks up.
pub const WORD: &str = "--look-up-symbols";
/// How long is waited for it, and what it may answer.
const MOST_TIME: Duration = Duration::from_secs(20);
const MOST_ANSWER: u64 = 64 << 20;
/// Memory of who looks up, and bytes of a file that is read.
const MOST_MEMORY: u64 = 2 << 30;
const MOST_FILE: u64 = 512 << 20;
/// Functions that one address may be in, each inlined into the next.
const MOST_INLINED: usize = 8;

/// Tells each line that is found to `tell`, until the time is up.
pub fn look_up(
    modules: &[Module],
    addresses: &[Address],
    mut tell: impl FnMut(&Operation<'_>),
) -> io::Result<()> {
    let mut question = File::from(memfd_create("addresses", MemfdFlags::CLOEXEC)?);
    ask(modules, addresses, BufWriter::new(&question))?;
    question.rewind()?;
    let mut child = Command::new("/proc/self/exe")
        .arg(WORD)
        .stdin(question)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stream = child.stdout.take();
    let (said, hear) = channel();
    std::thread::Builder::new().name("symbols".into()).spawn(move || {
        let mut answer = Vec::new();
        let _ = stream.map(|stream| stream.take(MOST_ANSWER).read_to_end(&mut answer));
        let _ = said.send(answer);
    })?;
    let in_time = hear.recv_timeout(MOST_TIME);
    let _ = child.kill();
    // What it had written until then counts.
    let answer = in_time.or_else(|_| hear.recv()).unwrap_or_default();
    child.wait()?;
    let Ok(mut lines) = Reader::new(&answer[..]) else { return Ok(()) };
    while let Ok(Some(line)) = lines.next_record() {
        if matches!(line.operation, Operation::Line { .. }) {
            tell(&line.operation);
        }
    }
    Ok(())
}

/// Records as in a log, one after the other.
struct Records<W> {
    stream: W,
    count: u64,
}

impl<W: Write> Records<W> {
    fn begin(mut stream: W) -> io::Result<Records<W>> {
        let header =
            Header { sector: 512, block: 512, file_system: 0, monotonic_ns: 0, realtime_ns: 0 };
        stream.write_all(&header.encode())?;
        Ok(Records { stream, count: 0 })
    }

    fn add(&mut self, operation: &Operation<'_>) -> io::Result<()> {
        self.count += 1;
        let (sequence, zero) = (self.count, 0);
        let place =
            Place { sequence, begin_ns: zero, end_ns: zero, file: zero, caller: 0, error: 0 };
        self.stream.write_all(&Frame::new(operation).pieces(&place, &mut Vec::new()).concat())
    }
}

fn ask(modules: &[Module], addresses: &[Address], stream: impl Write) -> io::Result<()> {
    let mut records = Records::begin(stream)?;
    for Module { inode, build_id, path } in modules {
        let (inode, build_id, path) = (*inode, build_id.into(), path.into());
        records.add(&Operation::Module { inode, build_id, path })?;
    }
    for frames in addresses.chunks(MAX_FRAMES) {
        records.add(&Operation::Stack { frames: frames.to_vec() })?;
    }
    records.stream.flush()
}

/// What the process does that `look_up` starts.
pub fn serve() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut questions = Vec::new();
    let mut reader = Reader::new(BufReader::new(io::stdin())).map_err(io::Error::other)?;
    while let Some(record) = reader.next_record().map_err(io::Error::other)? {
        match record.operation {
            Operation::Module { inode, build_id, path } => {
                let (build_id, path) = (build_id.into_owned(), path.into_owned());
                questions.push((Module { inode, build_id, path }, Vec::new()));
            }
            Operation::Stack { frames } => {
                for frame in frames {
                    let module = (frame.module as usize).checked_sub(1);
                    let module = module.and_then(|at| questions.get_mut(at));
                    module.into_iter().for_each(|(_, asked)| asked.push(frame));
                }
            }
            _ => {}
        }
    }
    // Whoever recorded may read it, and so may they learn of it.
    let asked = questions.into_iter().filter(|(_, asked)| !asked.is_empty());
    let opened: Vec<_> = asked.map(|(module, asked)| (open(&module), module, asked)).collect();
    diskproof_rights::keep(CapabilitySet::empty())?;
    diskproof_rights::limit(MOST_MEMORY)?;
    let mut answer = Records::begin(BufWriter::new(io::stdout()))?;
    for (file, module, asked) in opened {
        let Some(bytes) = file.and_then(|file| read(file).ok()) else { continue };
        answer_for(&module, &bytes, &asked, &mut answer)?;
        answer.stream.flush()?;
    }
    Ok(())
}

/// A file, and nothing that blocks or leads elsewhere.
fn open(module: &Module) -> Option<File> {
    let path = std::str::from_utf8(&module.path).ok().map(Path::new)?;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let facts = file.metadata().ok()?;
    // Without a build id it is known by its number.
    let is_same = module.inode == 0 || !module.build_id.is_empty() || facts.ino() == module.inode;
    (facts.is_file() && facts.len() <= MOST_FILE && is_same).then_some(file)
}

pub fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn answer_for(
    module: &Module,
    bytes: &[u8],
    asked: &[Address],
    answer: &mut Records<impl Write>,
) -> io::Result<()> {
    let mut add = |address, source: Source| answer.add(&source.line_of(address));
    if module.inode == 0 {
        let map = PerfMap::parse(bytes);
        for address in asked {
            map.find(address.offset).map_or(Ok(()), |source| add(*address, source))?;
        }
        return Ok(());
    }
    let Some(debug) = Debug::load(bytes, &module.build_id) else { return Ok(()) };
    let separate = debug.read_separate();
    let further = separate.as_deref().and_then(|bytes| Debug::load(bytes, &module.build_id));
    for address in asked {
        let found = further.as_ref().map_or(Vec::new(), |debug| debug.find_lines(address.offset));
        let found = if found.is_empty() { debug.find_lines(address.offset) } else { found };
        for source in found.into_iter().take(MOST_INLINED) {
            add(*address, source)?;
        }
    }
    Ok(())
}

/// Where something is in its source; `line` 0 and no file where only a symbol is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub function: String,
    pub file: String,
    pub line: u32,
}

impl Source {
    /// As a log takes it.
    pub fn line_of(self, address: Address) -> Operation<'static> {
        let function = Cow::Owned(cut(self.function, MAX_NAME).into_bytes());
        let file = Cow::Owned(cut(self.file, MAX_TEXT).into_bytes());
        Operation::Line { address, line: self.line, function, file }
    }
}

fn cut(mut text: String, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.retain(|letter| letter != '\0');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_is_cut_to_what_a_log_takes() {
        assert_eq!(cut("a\0bäö".into(), 4), "ab");
        assert_eq!(cut("short".into(), 255), "short");
    }

    #[test]
    fn a_pipe_a_link_and_another_file_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, link, pipe] = ["plain", "link", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&plain, "text").unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let number = plain.metadata().unwrap().ino();
        let opens = |path: &Path, inode| {
            let path = path.to_str().unwrap().as_bytes().to_vec();
            open(&Module { inode, build_id: Vec::new(), path }).is_some()
        };
        assert!(opens(&plain, number) && !opens(&plain, number + 1));
        assert!(!opens(&link, 0) && !opens(&pipe, 0) && !opens(folder.path(), 0));
    }
}
