//! `diskproof-tree`: a tree of files that comes out the same for the same seed, to copy and to
//! compare.
//!
//! Exit: 0 done; 1 the tree differs from what its numbers say; 2 wrong usage; 3 the host cannot do
//! it.

#![forbid(unsafe_code)]

mod cache;
mod checking;
mod making;
mod options;
mod shape;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::options::{parse_options, Command, Options, USAGE};
use crate::shape::Tree;

const DIFFERS: u8 = 1;
const WRONG_USAGE: u8 = 2;
const FAILED: u8 = 3;
const MAX_LINES: usize = 20;

fn main() -> ExitCode {
    let options = match parse_options(lexopt::Parser::from_env()) {
        Ok(Some(options)) => options,
        Ok(None) => {
            // Who reads no further has seen enough.
            let _ = write!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("diskproof-tree: {error}\n{USAGE}");
            return WRONG_USAGE.into();
        }
    };
    act(&options).unwrap_or_else(|error| {
        eprintln!("diskproof-tree: {error}");
        FAILED.into()
    })
}

fn act(options: &Options) -> io::Result<ExitCode> {
    let (folder, seed) = (&options.folder, options.shape.seed);
    let tree = options.shape.grow();
    let began = Instant::now();
    let mut wrong = 0;
    let more = match options.command {
        Command::Make => making::make(folder, &tree, seed).map(|()| String::new())?,
        Command::Check => {
            let found = checking::check_tree(folder, &tree, seed);
            found.iter().take(MAX_LINES).for_each(|line| eprintln!("{line}"));
            wrong = found.len();
            format!(",\"wrong\":{wrong}")
        }
        Command::Cache { drop } => {
            if drop {
                cache::drop_cached(folder, &tree)?;
            }
            format!(",\"cached\":{}", cache::count_cached(folder, &tree)?)
        }
    };
    let summary = render_summary(options, &tree, began.elapsed().as_secs_f64(), &more);
    writeln!(io::stdout(), "{summary}")?;
    Ok(if wrong > 0 { DIFFERS.into() } else { ExitCode::SUCCESS })
}

/// Numbers only, so that nothing needs escaping.
fn render_summary(options: &Options, tree: &Tree, seconds: f64, more: &str) -> String {
    let largest = tree.files.iter().map(|file| file.size).max().unwrap_or(0);
    format!(
        "{{\"files\":{},\"folders\":{},\"bytes\":{},\"largest\":{largest},\"depth\":{},\
         \"seed\":{},\"seconds\":{seconds:.6}{more}}}",
        options.shape.files,
        tree.folders.len(),
        options.shape.bytes,
        options.shape.depth,
        options.shape.seed,
    )
}
