//! What was asked for on the command line, as far as modules need to know it.

use crate::module::Refusal;

/// Lists are empty when nothing was asked for: the module chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// `-C 0,3,total`
    pub cpus: Vec<String>,
    /// `-D sda,total`
    pub disks: Vec<String>,
    /// `-I 98,eth0,total`
    pub interrupts: Vec<String>,
    /// `-N eth0,total`
    pub nets: Vec<String>,
    /// `--pid 7`, for the module `process`
    pub pids: Vec<i32>,
    /// `--qmp`: ask virtual machines for their guests' flushes
    pub qmp: bool,
    /// `--module COMMAND`
    pub programs: Vec<String>,
    /// `--full`: each of them rather than the total
    pub full: bool,
    /// Seconds between samples
    pub delay: f64,
}

impl Choices {
    /// Which of the `kind`s that are there are shown: those `asked` for, with `--full` each, else
    /// their total.
    pub fn choose(
        &self,
        kind: &str,
        asked: &[String],
        there: &[String],
    ) -> Result<Vec<String>, Refusal> {
        if asked.is_empty() {
            let all = self.full && !there.is_empty();
            return Ok(if all { there.to_vec() } else { vec![TOTAL.to_owned()] });
        }
        for name in asked {
            if name != TOTAL && !there.contains(name) {
                return Err(Refusal {
                    what: format!("there is no {kind} {name:?}"),
                    why: format!("this host has {}", shown(there)),
                    hint: format!("name one of these, or {TOTAL}"),
                });
            }
        }
        Ok(without_doubles(asked))
    }
}

/// The name of all of them together.
pub const TOTAL: &str = "total";

fn shown(names: &[String]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        1..=12 => names.join(", "),
        more => format!("{}, and {} more", names[..12].join(", "), more - 12),
    }
}

fn without_doubles(names: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if !once.contains(name) {
            once.push(name.clone());
        }
    }
    once
}
