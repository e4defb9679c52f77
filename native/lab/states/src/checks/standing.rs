//! A judge that stays: a line in names a state, a line out is its verdict. What a program does at
//! its start is done once then, not for each state.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::child::{keep_front, Ended, Program};

/// Bytes of a line; the rest of a longer one is passed over.
const MAX_LINE: u64 = 64 << 10;
/// For a program to be gone that has closed its streams.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Start it in a thread that lives as long as it shall.
pub struct Standing {
    program: Program,
    questions: ChildStdin,
    answers: Receiver<Line>,
    complaints: Receiver<String>,
}

/// A line, and what came with it behind it.
struct Line {
    text: String,
    behind: String,
}

/// What came of a question.
pub enum Answer {
    Said(String),
    /// It did not answer in time.
    Late,
    /// It has ended instead.
    Gone(Ended),
}

impl Standing {
    /// In a folder that is no state's: those come and go.
    pub fn start(mut command: Command, folder: &Path) -> io::Result<Standing> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Program::start_in(&mut command, folder)?;
        let (stdin, stdout, stderr) = program.streams();
        let questions = stdin.ok_or(io::ErrorKind::BrokenPipe)?;
        let (answers, complaints) = (read_lines(stdout)?, keep_front(stderr)?);
        Ok(Standing { program, questions, answers, complaints })
    }

    /// Asks about a state. An answer that nobody asked for belongs to no state: an error.
    pub fn ask(&mut self, question: &str, limit: Duration) -> io::Result<Answer> {
        if let Ok(line) = self.answers.try_recv() {
            return Err(unasked(&line.text));
        }
        if self.questions.write_all(question.as_bytes()).is_err() {
            return Ok(Answer::Gone(self.end()?));
        }
        match self.answers.recv_timeout(limit) {
            Ok(line) if !line.behind.is_empty() => Err(unasked(&line.behind)),
            Ok(line) => Ok(Answer::Said(line.text)),
            Err(RecvTimeoutError::Timeout) => Ok(Answer::Late),
            Err(RecvTimeoutError::Disconnected) => Ok(Answer::Gone(self.end()?)),
        }
    }

    fn end(&mut self) -> io::Result<Ended> {
        let stderr = self.complaints.recv_timeout(LAST_WORDS).unwrap_or_default();
        let status: Option<ExitStatus> = self.program.wait(LAST_WORDS)?;
        Ok(Ended { status, stdout: String::new(), stderr })
    }
}

fn unasked(answer: &str) -> io::Error {
    let answer: String = answer.chars().take(200).collect();
    io::Error::other(format!("it answers where nothing was asked: {answer}"))
}

/// The lines of a pipe, one at a time; nobody reads ahead of who asks.
fn read_lines(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<Line>> {
    let (tell, told) = sync_channel(1);
    let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
    std::thread::Builder::new().name("answers".into()).spawn(move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            let is_whole = line.ends_with(b"\n");
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if !is_whole && skip_line(&mut lines).is_err() {
                return;
            }
            let behind = String::from_utf8_lossy(lines.buffer()).trim().to_owned();
            if tell.send(Line { text, behind }).is_err() {
                return;
            }
        }
    })?;
    Ok(told)
}

fn skip_line(lines: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        let (used, found) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        lines.consume(used);
        if found {
            return Ok(());
        }
    }
}
