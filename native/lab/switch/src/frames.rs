//! Ethernet frames in a stream, as QEMU's `-netdev socket` sends them: each behind its length in 4
//! bytes, big-endian.

use std::io;

pub const PREFIX: usize = 4;
/// Two addresses and a type: what is shorter is no frame.
pub const HEADER: usize = 14;
/// The most that QEMU sends or takes (its NET_BUFSIZE). Whoever announces more does not speak this
/// protocol.
pub const MAX_FRAME: usize = (64 << 10) + 4096;
/// Many small frames at once, and room for the largest.
const CAPACITY: usize = 256 << 10;

#[derive(Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// Takes in bytes, gives whole frames. It never holds more than its buffer.
pub struct Frames {
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { buffer: vec![0; CAPACITY].into_boxed_slice(), begin: 0, end: 0 }
    }
}

impl Frames {
    /// Let `read` put bytes behind those that are there; gives its count. There is always room when
    /// the frames that were there have been taken.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        let count = read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// The next whole frame with its prefix, if it is there.
    pub fn take(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let waiting = &self.buffer[self.begin..self.end];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME {
            return Err(TooLong(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.begin += PREFIX + length;
        Ok(Some(&waiting[..PREFIX + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(content: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(content);
        frame
    }

    /// Feed a stream in pieces; the frames without prefix, and why it ended early.
    fn read_all(stream: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Option<TooLong>) {
        let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), stream);
        let mut sizes = pieces.iter().cycle();
        while !rest.is_empty() {
            let wanted = *sizes.next().unwrap();
            let count = frames
                .fill(|room| {
                    assert!(!room.is_empty(), "no room: the reader would stand still");
                    let count = wanted.min(rest.len()).min(room.len());
                    room[..count].copy_from_slice(&rest[..count]);
                    Ok(count)
                })
                .unwrap();
            rest = &rest[count..];
            loop {
                match frames.take() {
                    Ok(Some(frame)) => found.push(frame[PREFIX..].to_vec()),
                    Ok(None) => break,
                    Err(trouble) => return (found, Some(trouble)),
                }
            }
        }
        (found, None)
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1600), 0..12),
            pieces in prop::collection::vec(1usize..5000, 1..20),
        ) {
            let stream: Vec<u8> = contents.iter().flat_map(|content| framed(content)).collect();
            prop_assert_eq!(read_all(&stream, &pieces), (contents, None));
        }
    }

    /// The first bytes say in which pieces the others come.
    #[test]
    fn any_bytes_are_read_without_harm() {
        bolero::check!(name = "frames").for_each(|input: &[u8]| {
            let (pieces, stream) = input.split_at(input.len().min(4));
            let pieces: Vec<usize> =
                pieces.iter().map(|&piece| 1 + 20 * usize::from(piece)).collect();
            let (found, trouble) = read_all(stream, &pieces);
            let taken: usize = found.iter().map(|frame| PREFIX + frame.len()).sum();
            assert!(taken <= stream.len());
            if let Some(TooLong(length)) = trouble {
                assert!(length > MAX_FRAME);
                let prefix = <[u8; PREFIX]>::try_from(&stream[taken..taken + PREFIX]).unwrap();
                assert_eq!(u32::from_be_bytes(prefix) as usize, length);
            }
        });
    }

    #[test]
    fn the_largest_frame_fits_behind_a_part_of_itself() {
        let large = vec![7; MAX_FRAME];
        let stream = [framed(&large), framed(&large), framed(b"small")].concat();
        for piece in [1 << 20, MAX_FRAME, 4097] {
            let (found, trouble) = read_all(&stream, &[piece]);
            assert_eq!(trouble, None);
            assert_eq!(found, [large.clone(), large.clone(), b"small".to_vec()]);
        }
    }

    #[test]
    fn one_byte_more_ends_the_stream() {
        let stream = framed(&vec![0; MAX_FRAME + 1]);
        assert_eq!(read_all(&stream, &[1 << 20]), (Vec::new(), Some(TooLong(MAX_FRAME + 1))));
    }
}
