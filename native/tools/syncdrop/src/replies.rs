//! How the server's process answers the main one, in one message.

use diskproof_supervise::StartError;

/// How the command ended, and what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    pub code: u32,
    /// Why it could not be executed; 0: it was.
    pub errno: i32,
    /// Processes that it left running.
    pub running: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Ended(CommandEnd),
    Failed {
        why: String,
        /// The host does not allow it.
        forbidden: bool,
    },
}

pub const LONGEST: usize = 1024;

impl Reply {
    pub fn failed(error: &StartError) -> Reply {
        let forbidden = matches!(error, StartError::Forbidden(_));
        Reply::Failed { why: error.to_string(), forbidden }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Reply::Ended(end) => {
                bytes.push(b'e');
                bytes.extend(end.code.to_ne_bytes());
                bytes.extend(end.errno.to_ne_bytes());
                bytes.extend(end.running.to_ne_bytes());
            }
            Reply::Failed { why, forbidden } => {
                bytes.push(if *forbidden { b'f' } else { b's' });
                bytes.extend(why.bytes().take(LONGEST - 1));
            }
        }
        bytes
    }

    /// Gives None when the server died without a reply.
    pub fn from_bytes(bytes: &[u8]) -> Option<Reply> {
        let (kind, rest) = bytes.split_first()?;
        if *kind != b'e' {
            let why = String::from_utf8_lossy(rest).into_owned();
            return Some(Reply::Failed { why, forbidden: *kind == b'f' });
        }
        let field = |place: usize| rest.get(place..place + 4).and_then(|four| four.try_into().ok());
        Some(Reply::Ended(CommandEnd {
            code: u32::from_ne_bytes(field(0)?),
            errno: i32::from_ne_bytes(field(4)?),
            running: u32::from_ne_bytes(field(8)?),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_comes_out_of_its_bytes() {
        let ended = Reply::Ended(CommandEnd { code: 137, errno: 2, running: 3 });
        for reply in [ended, Reply::failed(&StartError::NoCommand)] {
            assert_eq!(Reply::from_bytes(&reply.to_bytes()), Some(reply));
        }
        assert_eq!(Reply::from_bytes(b""), None);
        assert_eq!(Reply::from_bytes(b"e123"), None);
    }
}
