//! `-n` and `--net-packets`: network devices.

use crate::choices::TOTAL;
use crate::counter::{change, ratio};
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

/// /proc/net/dev: numbers of a line at which receiving and sending start, 8 each.
type Numbers = [u64; 16];

/// What is shown of a device: name, label, unit, number of the line.
type Field = (&'static str, &'static str, Unit, usize);

const BYTES: &[Field] =
    &[("receive", "recv", Unit::BytesPerSecond, 0), ("send", "send", Unit::BytesPerSecond, 8)];
const PACKETS: &[Field] = &[
    ("packets_received", "#recv", Unit::PerSecond, 1),
    ("packets_sent", "#send", Unit::PerSecond, 9),
];

struct Net {
    dev: FileId,
    shown: Vec<String>,
    /// The line before, by device.
    last: Vec<(Vec<u8>, Numbers)>,
    now: Vec<(Vec<u8>, Numbers)>,
    fields: &'static [Field],
    groups: Vec<Group>,
}

pub fn open_bytes(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "net", BYTES)
}

pub fn open_packets(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "pkt", PACKETS)
}

fn open(
    setup: &mut Setup<'_>,
    title: &str,
    fields: &'static [Field],
) -> Result<Box<dyn Module>, Refusal> {
    let dev = setup.files.share("proc/net/dev");
    let there: Vec<String> =
        devices(setup.files.text(dev)).map(|(name, _)| scan::name(name)).collect();
    let shown = setup.choices.choose("network device", &setup.choices.nets, &there)?;
    let groups = shown.iter().map(|name| group(title, name, fields)).collect();
    Ok(Box::new(Net { dev, shown, last: Vec::new(), now: Vec::new(), fields, groups }))
}

fn group(title: &str, device: &str, fields: &[Field]) -> Group {
    let prefix = if device == TOTAL { "net".to_owned() } else { format!("net.{device}") };
    let column =
        |&(name, label, unit, _): &Field| Column::new(format!("{prefix}.{name}"), label, unit);
    Group::new(format!("{title}/{device}"), fields.iter().map(column).collect())
}

fn devices(text: &[u8]) -> impl Iterator<Item = (&[u8], Numbers)> {
    scan::lines(text).filter_map(|line| {
        let colon = line.iter().rposition(|&byte| byte == b':')?;
        let name = scan::words(&line[..colon]).next()?;
        let (numbers, count) = scan::numbers::<16>(&line[colon + 1..]);
        (count == 16).then_some((name, numbers))
    })
}

/// Devices that pass on what another one counts as well, by how their names start; and the
/// loopback.
const PASSED_ON: [&[u8]; 9] =
    [b"bond", b"team", b"br", b"virbr", b"docker", b"veth", b"vnet", b"tap", b"ifb"];

fn is_in_total(name: &[u8]) -> bool {
    // eth0.7 is a VLAN on eth0.
    name != b"lo" && !name.contains(&b'.') && !PASSED_ON.iter().any(|start| name.starts_with(start))
}

impl Net {
    /// Rate of one number of the devices that are asked for and were there at both ends.
    fn rate(&self, shown: &str, at: usize, span: f64) -> f64 {
        let wanted = |name: &[u8]| match shown {
            TOTAL => is_in_total(name),
            _ => name == shown.as_bytes(),
        };
        let changes =
            self.now.iter().filter(|(name, _)| wanted(name)).filter_map(|(name, after)| {
                let (_, before) = self.last.iter().find(|(known, _)| known == name)?;
                Some(change(before[at], after[at]))
            });
        changes.reduce(|sum, part| sum + part).map_or(f64::NAN, |sum| ratio(sum, span))
    }
}

impl Module for Net {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        std::mem::swap(&mut self.last, &mut self.now);
        self.now.clear();
        let text = files.text(self.dev);
        self.now.extend(devices(text).map(|(name, numbers)| (name.to_vec(), numbers)));
        for shown in &self.shown {
            row.extend(self.fields.iter().map(|field| self.rate(shown, field.3, now.span)));
        }
    }
}
