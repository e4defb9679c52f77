//! What a process writes of code that it made itself (`/tmp/perf-PID.map`): Node with
//! `--perf-basic-prof`, Python from 3.12 on with `-X perf`, others.

use super::symbols::Source;

/// Symbols that are kept.
const MOST: usize = 1 << 20;

pub struct PerfMap<'a> {
    /// From, to and name, by address; of what overlaps the later one counts.
    symbols: Vec<(u64, u64, &'a [u8])>,
}

impl<'a> PerfMap<'a> {
    /// `START SIZE NAME` a line, both in hexadecimal.
    pub fn parse(text: &'a [u8]) -> PerfMap<'a> {
        let lines = text.split(|&byte| byte == b'\n');
        let mut symbols: Vec<_> = lines.filter_map(parse_line).take(MOST).collect();
        // Stable: code that was thrown away stands before what took its place.
        symbols.sort_by_key(|(from, ..)| *from);
        PerfMap { symbols }
    }

    pub fn find(&self, address: u64) -> Option<Source> {
        let inside = address.checked_sub(1)?;
        let at = self.symbols.partition_point(|(from, ..)| *from <= inside).checked_sub(1)?;
        let (_, to, name) = self.symbols.get(at)?;
        (inside < *to).then(|| source(&String::from_utf8_lossy(name)))
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (from, size) = (number()?, number()?);
    let name = words.next()?.trim_ascii();
    (!name.is_empty()).then_some((from, from.checked_add(size)?, name))
}

/// `py::FUNCTION:FILE` is Python's, `KIND:FUNCTION FILE:LINE:COLUMN` is V8's; the line is where the
/// function begins. Anything else is a name.
fn source(name: &str) -> Source {
    if let Some((function, file)) = name.strip_prefix("py::").and_then(|rest| rest.split_once(':'))
    {
        return Source { function: function.into(), file: file.into(), line: 0 };
    }
    let v8 = || {
        let (function, place) = name.split_once(' ')?;
        let (place, column) = place.rsplit_once(':')?;
        let (file, line) = place.rsplit_once(':')?;
        column.parse::<u32>().ok()?;
        let function = function.split_once(':').map_or(function, |(_, function)| function);
        let function = function.trim_start_matches(['~', '*', '^', '+']).into();
        Some(Source { function, file: file.into(), line: line.parse().ok()? })
    };
    v8().unwrap_or_else(|| Source { function: name.into(), ..Source::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_python_v8_and_others_are_read() {
        let text = b"1000 10 py::save:/srv/app.py\n2000 20 JS:~store /srv/a b.js:12:7\n\
                     0x3000 8 Builtin: x\nnonsense\n1000 8 py::newer:/srv/other.py\n";
        let map = PerfMap::parse(text);
        let told = |address| map.find(address).map(|one| (one.function, one.file, one.line));
        assert_eq!(told(0x1005), Some(("newer".into(), "/srv/other.py".into(), 0)));
        assert_eq!(told(0x2020), Some(("store".into(), "/srv/a b.js".into(), 12)));
        assert_eq!(told(0x3001), Some(("Builtin: x".into(), String::new(), 0)));
        assert_eq!((told(0x1000), told(0x2021), told(0)), (None, None, None));
    }

    #[test]
    fn any_text_is_read() {
        bolero::check!().for_each(|text: &[u8]| {
            let map = PerfMap::parse(text);
            for (from, to, _) in &map.symbols {
                let _ = (map.find(*from), map.find(*to));
            }
        });
    }
}
