//! What a QEMU's command line says of its guest.

use std::path::PathBuf;

/// A name is shown in terminals and becomes a part of column names.
const LONGEST_NAME: usize = 64;

/// What we take from the arguments. All of it is foreign: any process may call itself QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// From `-name`, or else the UUID.
    pub name: Option<String>,
    /// `-machine none`: a QEMU that is only asked what it can do.
    pub no_machine: bool,
    /// Sockets on which QMP is served, as the arguments name them.
    pub qmp: Vec<PathBuf>,
}

/// Read `/proc/PID/cmdline`: arguments that end in a NUL each.
pub fn parse_command_line(text: &[u8]) -> CommandLine {
    let arguments: Vec<String> =
        text.split(|&byte| byte == 0).map(|each| String::from_utf8_lossy(each).into()).collect();
    let mut found = CommandLine::default();
    let (mut uuid, mut sockets, mut monitors) = (None, Vec::new(), Vec::new());
    for pair in arguments.windows(2) {
        let value = pair[1].as_str();
        match option_name(&pair[0]) {
            Some("name") => found.name = property(value, "guest"),
            Some("uuid") => uuid = Some(value.to_owned()),
            Some("machine" | "M") => {
                found.no_machine |= property(value, "type").as_deref() == Some("none");
            }
            Some("qmp" | "qmp-pretty") => found.qmp.extend(unix_socket(value)),
            Some("chardev") => sockets.extend(served_chardev(value)),
            Some("mon") => monitors.extend(control_monitor(value)),
            _ => {}
        }
    }
    let served = sockets.into_iter().filter(|(id, _)| monitors.contains(id));
    found.qmp.extend(served.map(|(_, path)| path));
    found.name = found.name.or(uuid).map(|name| plain_name(&name)).filter(|name| !name.is_empty());
    found
}

/// `-name` and `--name` are the same to QEMU.
fn option_name(argument: &str) -> Option<&str> {
    argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))
}

/// `a=1,b=x,,y` as pairs; a comma in a value is written twice. What has no `=` has an empty key.
fn properties(value: &str) -> Vec<(String, String)> {
    let (mut parts, mut part, mut characters) =
        (Vec::new(), String::new(), value.chars().peekable());
    while let Some(character) = characters.next() {
        if character != ',' {
            part.push(character);
        } else if characters.next_if_eq(&',').is_some() {
            part.push(',');
        } else {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    let pair = |part: String| match part.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (String::new(), part),
    };
    parts.into_iter().map(pair).collect()
}

/// The value of a key, which may be left out at the first place.
fn property(value: &str, key: &str) -> Option<String> {
    let pairs = properties(value);
    let first = pairs.first().filter(|(name, _)| name.is_empty()).map(|(_, value)| value.clone());
    pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone()).or(first)
}

/// The path of `unix:PATH,server=on`.
fn unix_socket(value: &str) -> Option<PathBuf> {
    let (key, rest) = properties(value.strip_prefix("unix:")?).into_iter().next()?;
    let path = if key.is_empty() { rest } else { format!("{key}={rest}") };
    Some(path.into()).filter(|_| is_server(value))
}

/// Id and path of `socket,id=ID,path=PATH,server=on`.
fn served_chardev(value: &str) -> Option<(String, PathBuf)> {
    let pairs = properties(value);
    let of = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    if pairs.first()?.1 != "socket" || !is_server(value) {
        return None;
    }
    Some((of("id")?, of("path")?.into()))
}

/// The chardev of a monitor that speaks QMP.
fn control_monitor(value: &str) -> Option<String> {
    let control = properties(value).contains(&("mode".to_owned(), "control".to_owned()));
    property(value, "chardev").filter(|_| control)
}

/// `server`, `server=on` or `server=yes`; without it QEMU is the client.
fn is_server(value: &str) -> bool {
    properties(value).iter().any(|(key, value)| match key.as_str() {
        "" => value == "server",
        key => key == "server" && matches!(value.as_str(), "on" | "yes" | "true" | "y"),
    })
}

/// Without what would break a terminal or a table.
fn plain_name(name: &str) -> String {
    let plain = |character: char| {
        if character.is_control() || character == ',' || character == '"' {
            '_'
        } else {
            character
        }
    };
    name.trim().chars().take(LONGEST_NAME).map(plain).collect()
}

#[cfg(test)]
mod tests;
