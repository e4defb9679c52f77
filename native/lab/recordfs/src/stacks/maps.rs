//! `/proc/PID/maps`: what lies where in a process.

/// Mappings that are looked at; a process may have 65,530.
const MOST: usize = 1 << 17;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub from: u64,
    pub to: u64,
    pub is_executable: bool,
    pub is_private: bool,
    /// Of its file.
    pub offset: u64,
    pub device: (u32, u32),
    /// 0 for memory of no file.
    pub inode: u64,
    pub path: Vec<u8>,
}

/// Those lines that are as the kernel writes them, in its order: by address.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).take(MOST).collect()
}

/// `FROM-TO rwxp OFFSET MAJOR:MINOR INODE   PATH`
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let at = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(at);
        rest = behind.get(1..).unwrap_or_default();
        std::str::from_utf8(word).ok()
    };
    let (range, rights, offset, device, inode) = (word()?, word()?, word()?, word()?, word()?);
    let number = |text| u64::from_str_radix(text, 16).ok();
    let short = |text| u32::from_str_radix(text, 16).ok();
    let (from, to) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let rights = <&[u8; 4]>::try_from(rights.as_bytes()).ok()?;
    Some(Mapping {
        from: number(from)?,
        to: number(to)?,
        is_executable: rights[2] == b'x',
        is_private: rights[3] == b'p',
        offset: number(offset)?,
        device: (short(major)?, short(minor)?),
        inode: inode.parse().ok()?,
        path: rest.trim_ascii_start().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a b\n\
                     7f00-8000 rw-s 00000000 00:00 0 \nnonsense\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        let (file, bare) = (&found[0], &found[1]);
        assert_eq!((file.from, file.to, file.offset), (0x400000, 0x452000, 0x1000));
        assert!(file.is_executable && file.is_private && !bare.is_private);
        assert_eq!(
            (file.device, file.inode, &file.path[..]),
            ((8, 2), 173521, &b"/usr/bin/a b"[..])
        );
        assert_eq!((bare.inode, bare.path.len()), (0, 0));
        let own = parse(&std::fs::read("/proc/self/maps").unwrap());
        let here = lines_of_the_kernel_are_read as *const () as u64;
        assert!(own.iter().any(|one| (one.from..one.to).contains(&here) && one.is_executable));
    }

    #[test]
    fn any_text_is_read() {
        bolero::check!().for_each(|text: &[u8]| {
            let _ = parse(text);
        });
    }
}
