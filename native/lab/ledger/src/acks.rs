//! Where acknowledgements go: to standard output, a descriptor, a file or a Unix socket.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use diskproof_wire::ledger::Acknowledgement;

use crate::target::named;

/// All places that hear of each acknowledgement, in this order.
pub struct Acks(Vec<Box<dyn Write>>);

impl Acks {
    #[cfg(test)]
    pub fn new(places: Vec<Box<dyn Write>>) -> Acks {
        Acks(places)
    }

    /// `-` is standard output, a number a descriptor, anything else a path.
    pub fn open(places: &[String]) -> io::Result<Acks> {
        places.iter().map(|place| open_place(place)).collect::<io::Result<_>>().map(Acks)
    }

    /// One line, one write.
    pub fn put(&mut self, told: &Acknowledgement) -> io::Result<()> {
        let line = format!("{told}\n");
        for place in &mut self.0 {
            place.write_all(line.as_bytes())?;
            place.flush()?;
        }
        Ok(())
    }
}

fn open_place(place: &str) -> io::Result<Box<dyn Write>> {
    if place == "-" {
        return Ok(Box::new(io::stdout()));
    }
    if let Ok(number) = place.parse::<RawFd>() {
        return open_descriptor(number).map_err(|error| named(format!("--acks {place}"), error));
    }
    let path = Path::new(place);
    let is_socket = path.metadata().is_ok_and(|found| found.file_type().is_socket());
    let open = || -> io::Result<Box<dyn Write>> {
        if is_socket {
            return Ok(Box::new(UnixStream::connect(path)?));
        }
        Ok(Box::new(OpenOptions::new().append(true).create(true).open(path)?))
    };
    open().map_err(|error| named(place, error))
}

fn open_descriptor(number: RawFd) -> io::Result<Box<dyn Write>> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: borrowed only to be duplicated at once; the kernel says EBADF if it is not open.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(Box::new(std::fs::File::from(given.try_clone_to_owned()?)))
}
