//! Frames from port to port until all have hung up.

use crate::addresses::{is_group, Address, Addresses};
use crate::frames::{Frames, HEADER, PREFIX};
use crate::port::{End, Port};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

pub struct Switch {
    readers: Vec<Frames>,
    fabric: Fabric,
    tell: fn(usize, &Port, &End),
}

impl Switch {
    /// `tell` hears of each port that ends.
    pub fn new(sockets: Vec<OwnedFd>, tell: fn(usize, &Port, &End)) -> Self {
        let readers = sockets.iter().map(|_| Frames::default()).collect();
        let ports = sockets.into_iter().map(|socket| Some(Port::new(socket))).collect();
        Self { readers, fabric: Fabric { ports, addresses: Addresses::default() }, tell }
    }

    pub fn run(&mut self) -> io::Result<()> {
        while self.fabric.ports.iter().any(Option::is_some) {
            for index in self.wait_readable()? {
                let outcome = self.forward(index);
                self.close_on_error(index, outcome);
            }
            for index in 0..self.fabric.ports.len() {
                let outcome = self.fabric.ports[index].as_mut().map_or(Ok(()), Port::flush);
                self.close_on_error(index, outcome);
            }
        }
        Ok(())
    }

    /// Ports with something to read, a hang-up included; comes back with none when one can be
    /// written to.
    fn wait_readable(&self) -> io::Result<Vec<usize>> {
        let open = |(index, port): (usize, &'_ Option<Port>)| port.as_ref().map(|_| index);
        let indices: Vec<usize> = self.fabric.ports.iter().enumerate().filter_map(open).collect();
        let mut polled: Vec<PollFd<'_>> =
            self.fabric.ports.iter().flatten().map(interest).collect();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let ready = indices.into_iter().zip(&polled);
        Ok(ready.filter(|(_, fd)| fd.revents().intersects(readable)).map(|(i, _)| i).collect())
    }

    /// Take in what a guest has sent, and queue it where it belongs.
    fn forward(&mut self, index: usize) -> Result<(), End> {
        let Some(port) = &self.fabric.ports[index] else { return Ok(()) };
        let reader = &mut self.readers[index];
        port.receive(reader)?;
        while let Some(frame) = reader.take()? {
            self.fabric.deliver(index, frame);
        }
        Ok(())
    }

    fn close_on_error(&mut self, index: usize, outcome: Result<(), End>) {
        let Err(end) = outcome else { return };
        if let Some(port) = self.fabric.ports[index].take() {
            (self.tell)(index, &port, &end);
            self.fabric.addresses.forget(index);
        }
    }
}

/// The ports that have not ended, and who is behind which.
struct Fabric {
    ports: Vec<Option<Port>>,
    addresses: Addresses,
}

impl Fabric {
    fn deliver(&mut self, source: usize, frame: &[u8]) {
        if let Some(port) = &mut self.ports[source] {
            port.count.from += 1;
        }
        let Some((target, sender)) = read_addresses(&frame[PREFIX..]) else { return };
        self.addresses.learn(sender, source);
        let known = if is_group(&target) { None } else { self.addresses.find(&target) };
        for (index, port) in self.ports.iter_mut().enumerate() {
            let wanted = known.is_none_or(|known| known == index) && index != source;
            if let (true, Some(port)) = (wanted, port) {
                port.queue(frame);
            }
        }
    }
}

fn interest(port: &Port) -> PollFd<'_> {
    let writable = if port.has_queue() { PollFlags::OUT } else { PollFlags::empty() };
    PollFd::new(port, PollFlags::IN | writable)
}

/// Receiver and sender of a frame; nothing of one that is too short.
fn read_addresses(frame: &[u8]) -> Option<(Address, Address)> {
    let (target, rest) = frame.get(..HEADER)?.split_first_chunk()?;
    Some((*target, *rest.first_chunk()?))
}
