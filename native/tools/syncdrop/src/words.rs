//! What the server tells the main process, in one message.

use diskproof_supervise::StartError;

/// The command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub code: u32,
    /// Why it could not be executed; 0: it was.
    pub errno: i32,
    /// Processes that it left running.
    pub running: u32,
}

pub enum Told<'a> {
    Ended(Word),
    Failed(&'a StartError),
}

/// As it is heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Ended(Word),
    /// The reason, and whether the host cannot do it.
    Failed(String, bool),
}

pub const LONGEST: usize = 1024;

impl Told<'_> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Told::Ended(word) => {
                bytes.push(b'e');
                bytes.extend(word.code.to_ne_bytes());
                bytes.extend(word.errno.to_ne_bytes());
                bytes.extend(word.running.to_ne_bytes());
            }
            Told::Failed(error) => {
                bytes.push(if matches!(error, StartError::Forbidden(_)) { b'f' } else { b's' });
                bytes.extend(error.to_string().bytes().take(LONGEST - 1));
            }
        }
        bytes
    }
}

impl Heard {
    /// None when the server died without a word.
    pub fn from_bytes(bytes: &[u8]) -> Option<Heard> {
        let (kind, rest) = bytes.split_first()?;
        if *kind != b'e' {
            return Some(Heard::Failed(String::from_utf8_lossy(rest).into_owned(), *kind == b'f'));
        }
        let word = |place: usize| rest.get(place..place + 4).and_then(|four| four.try_into().ok());
        Some(Heard::Ended(Word {
            code: u32::from_ne_bytes(word(0)?),
            errno: i32::from_ne_bytes(word(4)?),
            running: u32::from_ne_bytes(word(8)?),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let word = Word { code: 137, errno: 2, running: 3 };
        assert_eq!(Heard::from_bytes(&Told::Ended(word).to_bytes()), Some(Heard::Ended(word)));
        let told = Told::Failed(&StartError::NoCommand).to_bytes();
        assert_eq!(
            Heard::from_bytes(&told),
            Some(Heard::Failed("no command is given".into(), false))
        );
        assert_eq!(Heard::from_bytes(b""), None);
        assert_eq!(Heard::from_bytes(b"e123"), None);
    }
}
