//! The command line.

use std::path::PathBuf;

use lexopt::prelude::*;

use crate::shape::{Shape, MAX_BYTES, MAX_DEPTH, MAX_FILES};

pub const USAGE: &str = "\
diskproof-tree COMMAND FOLDER --files N --bytes B [--depth N] [--seed N]
  make   make the tree in an empty folder
  check  read all of it: names, sizes, contents, and that nothing else is there
  cache  count what of it the page cache holds; with --drop, drop it first
  --files N   files, 1 to 1000000; one of 200 is big
  --bytes B   bytes in all of them together
  --depth N   levels of folders, 1 to 32 (5)
  --seed N    another tree of the same size (1)
Prints one line of JSON. Exit: 0 done, 1 the tree differs, 2 wrong usage, 3 the host cannot do it.
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Make,
    Check,
    Cache { drop: bool },
}

#[derive(Debug)]
pub struct Options {
    pub command: Command,
    pub folder: PathBuf,
    pub shape: Shape,
}

/// The options of a command line, None when it asks for help. The error says what is wrong.
pub fn parse_options(mut parser: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut command, mut folder, mut drop) = (None, None, false);
    let (mut files, mut bytes, mut depth, mut seed) = (None, None, 5, 1);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("files") => files = Some(number(&mut parser, "files", 1, MAX_FILES)?),
            Long("bytes") => bytes = Some(number(&mut parser, "bytes", 0, MAX_BYTES)?),
            Long("depth") => depth = number(&mut parser, "depth", 1, MAX_DEPTH)?,
            Long("seed") => seed = number(&mut parser, "seed", 0, u64::MAX)?,
            Long("drop") => drop = true,
            Short('h') | Long("help") => return Ok(None),
            Value(word) if command.is_none() => command = Some(read_command(&word.string()?)?),
            Value(path) if folder.is_none() => folder = Some(PathBuf::from(path)),
            _ => return Err(argument.unexpected()),
        }
    }
    let mut command = command.ok_or("which command? make, check or cache")?;
    if drop {
        match command {
            Command::Cache { .. } => command = Command::Cache { drop },
            _ => return Err("--drop goes with cache".into()),
        }
    }
    let shape = Shape {
        seed,
        files: files.ok_or("--files is missing")?,
        bytes: bytes.ok_or("--bytes is missing")?,
        depth,
    };
    Ok(Some(Options { command, folder: folder.ok_or("which folder?")?, shape }))
}

fn read_command(word: &str) -> Result<Command, lexopt::Error> {
    match word {
        "make" => Ok(Command::Make),
        "check" => Ok(Command::Check),
        "cache" => Ok(Command::Cache { drop: false }),
        _ => Err(format!("unknown command {word:?}: make, check or cache").into()),
    }
}

fn number(
    parser: &mut lexopt::Parser,
    name: &str,
    low: u64,
    high: u64,
) -> Result<u64, lexopt::Error> {
    let value: u64 = parser.value()?.parse()?;
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(format!("--{name} {value}: must be {low} to {high}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        let words = line.split_whitespace();
        parse_options(lexopt::Parser::from_args(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_line_is_read() {
        let options = parse("cache t --files 3 --bytes=10 --drop").unwrap().unwrap();
        assert_eq!(options.command, Command::Cache { drop: true });
        assert_eq!(options.folder, PathBuf::from("t"));
        assert_eq!((options.shape.files, options.shape.bytes), (3, 10));
        assert_eq!((options.shape.depth, options.shape.seed), (5, 1));
        assert!(parse("make --help").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, what) in [
            ("", "which command"),
            ("make", "--files is missing"),
            ("make --files 3", "--bytes is missing"),
            ("make --files 3 --bytes 4", "which folder"),
            ("grow t --files 3 --bytes 4", "unknown command"),
            ("make t --files 0 --bytes 4", "must be 1 to 1000000"),
            ("make t --files 3 --bytes -4", "cannot parse"),
            ("make t --files 3 --bytes 4 --depth 33", "must be 1 to 32"),
            ("make t --files 3 --bytes 4 --drop", "goes with cache"),
            ("make t u --files 3 --bytes 4", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
