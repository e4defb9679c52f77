//! Numbers and names in a payload, little-endian.

use std::borrow::Cow;

use super::operation::{Address, Name};

/// Bytes of a name: of a file, an attribute, a function.
pub const MAX_NAME: usize = 255;

/// Takes fields from the front of a payload; None when it is too short.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Two bytes of length, then so many bytes, at most 255.
    pub fn bytes(&mut self) -> Option<Name<'a>> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        self.take(length.into()).filter(|bytes| bytes.len() <= MAX_NAME).map(Cow::Borrowed)
    }

    /// The same; never NUL in it.
    pub fn name(&mut self) -> Option<Name<'a>> {
        self.bytes().filter(|name| is_name(name))
    }

    pub fn address(&mut self) -> Option<Address> {
        Some(Address { module: self.u32()?, offset: self.u64()? })
    }

    /// The name of a directory's entry: replaying a hostile log must not leave the directory.
    pub fn file_name(&mut self) -> Option<Name<'a>> {
        self.name().filter(|name| is_file_name(name))
    }

    pub fn rest(&mut self) -> Name<'a> {
        Cow::Borrowed(std::mem::take(&mut self.0))
    }
}

fn is_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME && !name.contains(&0)
}

pub(super) fn is_file_name(name: &[u8]) -> bool {
    !name.is_empty() && is_name(name) && !name.contains(&b'/') && name != b"." && name != b".."
}

/// The front of a payload, being written.
#[derive(Default)]
pub(super) struct Front(pub Vec<u8>);

impl Front {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn address(self, value: Address) -> Self {
        self.u32(value.module).u64(value.offset)
    }

    /// File names are 255 bytes at most, so the length never saturates.
    pub fn name(mut self, name: &[u8]) -> Self {
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(&name[..length.into()]);
        self
    }
}
