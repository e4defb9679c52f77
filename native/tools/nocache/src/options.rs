//! The command line.

use clap::{Parser, ValueEnum};
use std::ffi::OsString;

/// Run a command that leaves the page cache as it was: what was cached stays, what the command
/// brought in leaves.
///
/// Pages leave while the command runs (behind readers and writers) and when it has ended; its exit
/// code passes through. Files that are still being written then are finished by a process in the
/// background, without a flush.
#[derive(Debug, Parser)]
#[command(
    name = "diskproof-nocache",
    version,
    after_help = "Examples:\n  diskproof nocache -- tar cf /backup/home.tar /home\n  \
        diskproof nocache -v -- cp big.img /mnt\n  \
        diskproof nocache --strategy cgroup --memory 512M -- make"
)]
pub struct Options {
    /// How pages are kept out
    #[arg(long, value_enum, default_value_t = Strategy::Files, value_name = "STRATEGY")]
    pub strategy: Strategy,

    /// Limit of the memory cgroup, the command's own memory included: bytes, or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub memory: u64,

    /// End only when all that was written is on its way out of the cache too
    #[arg(long)]
    pub wait: bool,

    /// A report as one line of JSON on stderr (waits as --wait does)
    #[arg(long)]
    pub json: bool,

    /// One line on stderr at the end (waits as --wait does)
    #[arg(short, long)]
    pub verbose: bool,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Follow each file that is opened: exact, and without root
    Files,
    /// A memory cgroup of its own, emptied at the end: needs root or a delegated cgroup
    Cgroup,
}

impl Options {
    /// Whether the command's end waits for its writes.
    pub fn waits(&self) -> bool {
        self.wait || self.json || self.verbose
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 1 << 10),
        Some(number) if text.ends_with('M') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes
        .filter(|&bytes| bytes >= 1 << 20)
        .ok_or_else(|| "a size of at least 1M, such as 512M".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_a_floor() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2097152"), Ok(2 << 20));
        for bad in ["", "M", "1K", "-1M", "99999999999999G", "1T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_follows_the_command_belongs_to_it() {
        let words = ["nocache", "-v", "tar", "--json", "-c"];
        let options = Options::try_parse_from(words).unwrap();
        assert_eq!(options.command, ["tar", "--json", "-c"]);
        assert!(options.verbose && !options.json);
    }
}
