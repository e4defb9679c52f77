//! A stream of acknowledgements cut into lines.

/// Collects the line that is not ended yet; one longer than the bound comes in pieces.
pub struct AckLines {
    max: usize,
    line: Vec<u8>,
}

impl AckLines {
    pub fn new(max: usize) -> Self {
        AckLines { max, line: Vec::new() }
    }

    /// Take the next bytes, give the lines that they end.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                lines.push(self.take());
                continue;
            }
            if self.line.len() == self.max {
                lines.push(self.take());
            }
            self.line.push(byte);
        }
        lines
    }

    /// The stream has ended: a last line without newline counts.
    pub fn end(&mut self) -> Vec<String> {
        if self.line.is_empty() {
            Vec::new()
        } else {
            vec![self.take()]
        }
    }

    fn take(&mut self) -> String {
        let line = std::mem::take(&mut self.line);
        String::from_utf8(line)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_bad_bytes_and_the_last_line() {
        let mut lines = AckLines::new(4);
        assert_eq!(lines.push(b"1\n\n12345"), ["1", "", "1234"]);
        assert_eq!(lines.push(b"\n\xff\nend"), ["5", "\u{fffd}"]);
        assert_eq!(lines.end(), ["end"]);
        assert!(lines.end().is_empty());
    }

    proptest! {
        #[test]
        fn short_lines_come_as_they_were_written(texts in prop::collection::vec("[^\n]{0,8}", 0..9), cut: prop::sample::Index) {
            let stream: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let cut = cut.index(stream.len() + 1);
            let mut lines = AckLines::new(64);
            let mut got = lines.push(&stream.as_bytes()[..cut]);
            got.extend(lines.push(&stream.as_bytes()[cut..]));
            prop_assert_eq!(got, texts);
            prop_assert!(lines.end().is_empty());
        }
    }
}
