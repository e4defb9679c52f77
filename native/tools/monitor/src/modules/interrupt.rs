//! `-i`: interrupts, each line of /proc/interrupts that is wanted.

use crate::choices::TOTAL;
use crate::counter::{change, ratio};
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

/// Without a wish the lines that have counted most; with `--full` no more than these.
const BUSIEST: usize = 3;
const MOST: usize = 64;

struct Line<'a> {
    /// `98`, `NMI`
    key: &'a [u8],
    /// Sum over the processors.
    count: u64,
    /// `PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0`
    what: &'a [u8],
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    scan::lines(text).filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let key = scan::words(&line[..colon]).next()?;
        let mut rest = &line[colon + 1..];
        let mut count = 0u64;
        // As many numbers as there are processors, then words.
        loop {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            let Some(number) = scan::whole_number(&rest[..end]) else { break };
            count = count.wrapping_add(number);
            rest = &rest[end..];
        }
        Some(Line { key, count, what: rest })
    })
}

struct Interrupts {
    file: FileId,
    /// Keys of the lines (`total` is /proc/stat's sum), and their last count.
    shown: Vec<(Vec<u8>, Option<u64>)>,
    stat: FileId,
    groups: Vec<Group>,
}

pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let (file, stat) = (setup.files.share("proc/interrupts"), setup.files.share("proc/stat"));
    let text = setup.files.text(file);
    let keys = match (setup.choices.interrupts.as_slice(), setup.choices.full) {
        ([], false) => busiest(text, BUSIEST),
        ([], true) => busiest(text, MOST),
        (asked, _) => without_doubles(asked.iter().map(|name| find(text, name)))?,
    };
    let columns = keys.iter().map(|key| {
        let name = scan::name(key);
        Column::new(format!("interrupts.{name}"), name, Unit::PerSecond)
    });
    let columns = columns.collect();
    let shown = keys.into_iter().map(|key| (key, None)).collect();
    Ok(Box::new(Interrupts { file, shown, stat, groups: vec![Group::new("interrupts", columns)] }))
}

/// Two names may find one line.
fn without_doubles(
    found: impl Iterator<Item = Result<Vec<u8>, Refusal>>,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for key in found {
        let key = key?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// In the order of the file.
fn busiest(text: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut counted: Vec<(usize, Line<'_>)> =
        lines(text).enumerate().filter(|(_, line)| line.count > 0).collect();
    counted.sort_by_key(|(_, line)| std::cmp::Reverse(line.count));
    counted.truncate(most);
    counted.sort_by_key(|(at, _)| *at);
    counted.iter().map(|(_, line)| line.key.to_vec()).collect()
}

/// A line by its key, or by a word of its description or a part of it.
fn find(text: &[u8], name: &str) -> Result<Vec<u8>, Refusal> {
    let is_part = |line: &Line<'_>| String::from_utf8_lossy(line.what).contains(name);
    let found = lines(text)
        .find(|line| line.key == name.as_bytes())
        .or_else(|| lines(text).find(|line| !name.is_empty() && is_part(line)));
    match found {
        _ if name == TOTAL => Ok(TOTAL.as_bytes().to_vec()),
        Some(line) => Ok(line.key.to_vec()),
        None => Err(Refusal {
            what: format!("there is no interrupt {name:?}"),
            why: "no line of /proc/interrupts has it as its number or in its description".into(),
            hint: "see /proc/interrupts, or ask for total".into(),
        }),
    }
}

impl Module for Interrupts {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        let first = row.len();
        row.resize(first + self.shown.len(), f64::NAN);
        let total =
            scan::value_of(files.text(self.stat), b"intr").map(|count| (TOTAL.as_bytes(), count));
        let counted = lines(files.text(self.file)).map(|line| (line.key, line.count));
        let mut seen = vec![false; self.shown.len()];
        for (key, count) in counted.chain(total) {
            let Some(at) = self.shown.iter().position(|(known, _)| known == key) else { continue };
            let last = self.shown[at].1.replace(count);
            seen[at] = true;
            if let Some(last) = last {
                row[first + at] = ratio(change(last, count), now.span);
            }
        }
        for ((_, last), seen) in self.shown.iter_mut().zip(seen) {
            *last = last.filter(|_| seen);
        }
    }
}
