//! What the library tells of the files it opened: nobody waits for us meanwhile.

use crate::door::Message;
use rustix::net::{
    recvmsg, socketpair, sockopt, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage,
    RecvFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An opened file.
#[derive(Debug)]
pub struct Opened {
    pub file: OwnedFd,
    /// 0 when it has no number here.
    pub process: u32,
    /// Pages that were cached before: all it had, or none.
    pub cached: u64,
}

/// Both ends of the socket: what programs tell waits in it, in the order in which it was told.
pub struct OpenedFiles {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl OpenedFiles {
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        sockopt::set_socket_passcred(&ours, true)?; // the kernel names the sender
        Ok(Self { ours, theirs })
    }

    pub fn theirs(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    /// None when nothing waits. What is no message of the library's is passed over.
    pub fn take(&self) -> Option<Opened> {
        loop {
            match self.receive() {
                Ok(Some(opened)) => return Some(opened),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    fn receive(&self) -> rustix::io::Result<Option<Opened>> {
        let mut word = [0; size_of::<Message>()];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let length = recvmsg(&self.ours, &mut [IoSliceMut::new(&mut word)], &mut control, flags)?;
        let (mut file, mut process) = (None, 0);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => file = descriptors.next(),
                RecvAncillaryMessage::ScmCredentials(sender) => {
                    process = u32::try_from(sender.pid.as_raw_pid()).unwrap_or(0);
                }
                _ => {}
            }
        }
        let whole = length.bytes == word.len();
        let cached = Message::from_ne_bytes(word);
        Ok(file.filter(|_| whole).map(|file| Opened { file, process, cached }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{send, sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::IoSlice;

    fn tell(opens: &OpenedFiles, word: &[u8], file: &impl AsFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(opens.theirs(), &[IoSlice::new(word)], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn files_come_in_their_order_with_who_opened_them() {
        let opens = OpenedFiles::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for cached in [7_u64, 0] {
            tell(&opens, &cached.to_ne_bytes(), &file);
        }
        let first = opens.take().unwrap();
        assert_eq!((first.cached, first.process), (7, std::process::id()));
        let seen = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        assert_eq!(seen(&first.file), seen(&file.into()));
        assert_eq!(opens.take().unwrap().cached, 0);
        assert!(opens.take().is_none());
    }

    #[test]
    fn what_the_library_never_sends_is_passed_over() {
        let opens = OpenedFiles::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for word in [&b""[..], b"short", &[1; 100]] {
            send(opens.theirs(), word, SendFlags::empty()).unwrap();
        }
        tell(&opens, b"short", &file);
        tell(&opens, &3_u64.to_ne_bytes(), &file);
        assert_eq!(opens.take().unwrap().cached, 3);
        assert!(opens.take().is_none());
    }
}
