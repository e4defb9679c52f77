//! TARGET on the command line: a path, or `nbd+unix:///EXPORT?socket=PATH`.

use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPlace {
    Path(PathBuf),
    Nbd { export: String, socket: PathBuf },
}

/// NBD's bound on a name.
const MAX_NAME: usize = 4096;

impl FromStr for TargetPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("nbd+unix://") else {
            return Ok(TargetPlace::Path(text.into()));
        };
        let parts = rest.split_once("?socket=").ok_or("it has no ?socket=PATH")?;
        let (export, socket) = (decode(parts.0.strip_prefix('/').unwrap_or(parts.0))?, parts.1);
        if export.len() > MAX_NAME {
            return Err("the export's name is too long".into());
        }
        Ok(TargetPlace::Nbd { export, socket: decode(socket)?.into() })
    }
}

/// Percent-encoded bytes, which must make UTF-8.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let value = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(value.ok_or("a % without two hexadecimal digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_uris() {
        assert_eq!("/dev/vdb".parse(), Ok(TargetPlace::Path("/dev/vdb".into())));
        let nbd = |export: &str, socket: &str| {
            Ok(TargetPlace::Nbd { export: export.into(), socket: socket.into() })
        };
        assert_eq!("nbd+unix:///disk?socket=/tmp/a%20b".parse(), nbd("disk", "/tmp/a b"));
        assert_eq!("nbd+unix:///?socket=nbd.sock".parse(), nbd("", "nbd.sock"));
        for bad in ["nbd+unix:///disk", "nbd+unix:///%zz?socket=a", "nbd+unix:///%e?socket=%+1"] {
            assert!(bad.parse::<TargetPlace>().is_err(), "{bad}");
        }
    }
}
