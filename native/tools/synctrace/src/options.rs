//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Parser, ValueEnum};

const EXAMPLES: &str = "Examples:
  sync trace -- apt-get install -y hello     what does dpkg wait for?
  sync trace -p 4711                         until Ctrl-C or its end
  sync trace --json -o out.json -- ./test    for programs
  sync trace --folded time -o out.folded -- make check; flamegraph.pl out.folded

Mechanisms, the best first:
  tracepoints  root or CAP_PERFMON; 1 to 5 us a call; stops nothing
  preload      anybody's own commands; below 1 us a call; a library in programs
               that are linked dynamically, and ptrace for the others
  ptrace       anybody's own; 15 to 40 us a call; with -p at every system call

Exit code: the command's own; 126 or 127 when it cannot be run; 2 wrong usage;
3 the host does not allow it.";

/// How long a program waits for its data to reach the disk: each fsync and its like, by process,
/// call and file
#[derive(Debug, Parser)]
#[command(name = "diskproof-sync-trace", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(group(ArgGroup::new("what").required(true).args(["pid", "command"])))]
pub struct Options {
    /// Watch a running process and what it starts
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// How to see the calls; the best one that works here unless given
    #[arg(long, value_enum)]
    pub by: Option<Mechanism>,
    /// See O_SYNC, O_DSYNC and RWF_DSYNC writes too; slows every write
    #[arg(long)]
    pub writes: bool,
    /// Write a JSON object
    #[arg(long)]
    pub json: bool,
    /// Write `process;call;file NUMBER` lines: nanoseconds, or how many calls
    #[arg(long, value_enum, conflicts_with = "json", value_name = "WHAT")]
    pub folded: Option<Folded>,
    /// Write there; else to stderr, or with -p to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show histograms so often while it runs, 0 for never; 1 on a terminal, else 0
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=86_400))]
    pub every: Option<u32>,
    /// Files to show
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub top: usize,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mechanism {
    Tracepoints,
    /// A library in the programs, and ptrace for those without it
    Preload,
    Ptrace,
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Tracepoints => "tracepoints",
            Mechanism::Preload => "preload",
            Mechanism::Ptrace => "ptrace",
        }
    }

    /// Waits for the disk that it cannot see; with why nothing sees what it does not reach.
    pub fn not_seen(self, unreached: Option<&str>, writes: bool) -> Vec<String> {
        let mut not_seen = vec!["io_uring and aio fsyncs".to_owned()];
        if !writes {
            not_seen.push("O_SYNC and O_DSYNC writes".to_owned());
        }
        if self == Mechanism::Tracepoints {
            not_seen.push("calls of 32-bit programs".to_owned());
        }
        if let Some(why) = unreached {
            not_seen.push(format!("programs without the library: {why}"));
        }
        not_seen
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Folded {
    /// Nanoseconds in the call
    Time,
    /// Number of calls
    Calls,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_process_or_a_command_and_not_both() {
        let parse = |words: &[&str]| Options::try_parse_from([&["x"], words].concat());
        assert!(parse(&["-p", "1"]).is_ok());
        assert!(parse(&["--", "ls", "-l", "--json"]).is_ok());
        assert!(parse(&["-p", "1", "--", "ls"]).is_err());
        assert!(parse(&[]).is_err());
        assert!(parse(&["-p", "0"]).is_err());
    }
}
