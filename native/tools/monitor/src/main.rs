//! What this host does, a line at a time: in a terminal, as CSV, as JSON lines.
//!
//! A [`module::Module`] has columns with names that stay and gives a value for each at every tick;
//! `modules::KINDS` is the table of them. The files of /proc and /sys that they share stay open and
//! are read once a tick ([`files::Files`]), below a root that may be a recorded tree.
//! [`watch::Watch`] waits, looks and writes; [`output::Output`] is a terminal, CSV or JSON.
//!
//! A new module: one file in `modules/`, one row in `KINDS`, one paragraph in docs/monitor.md.
//! - `open(&mut Setup)` chooses its columns once and shares its files:
//!   `setup.files.share("proc/stat")`.
//! - `sample(&mut self, files, now, row)` parses `files.text(id)` with [`scan`], keeps what it
//!   needs for the next time and pushes one `f64` a column; [`counter`] has the differences;
//!   `now.span` is the time since the last.
//! - A number of things that changes while watching (VMs) is `row_table` and `rows`.
//! - Options with a value are a field of [`choices::Choices`] and an `Arg` in `command_line`.

mod choices;
mod command_line;
mod counter;
mod files;
mod module;
mod modules;
mod output;
mod own_cost;
mod pace;
mod scan;
mod watch;

use std::env;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::command_line::Wish;
use crate::files::Files;
use crate::module::{Module, Refusal, Setup};
use crate::output::{csv::Csv, json::Json, say, terminal::Terminal, Output};
use crate::own_cost::OwnMemory;
use crate::watch::{Clock, End, Watch, WriteError};

const DONE: u8 = 0;
/// Recording broke off.
const FELL_SHORT: u8 = 1;
const USAGE: u8 = 2;
const HOST_CANNOT: u8 = 3;

fn main() -> ExitCode {
    diskproof_session::take_over();
    let wish = command_line::parse(env::args_os());
    ExitCode::from(watch(&wish).unwrap_or_else(|(code, refusal)| {
        complain(&refusal);
        code
    }))
}

/// The exit code, or with one what went wrong.
fn watch(wish: &Wish) -> Result<u8, (u8, Refusal)> {
    if wish.list {
        // Who reads only the first lines has what they wanted.
        let _ = io::stdout().write_all(list(wish).as_bytes());
        return Ok(DONE);
    }
    let clock = open_clock(wish)?;
    let mut files = Files::new(clock.first_root());
    let modules = open_modules(wish, &mut files).map_err(|refusal| (USAGE, refusal))?;
    let outputs = open_outputs(wish).map_err(|refusal| (USAGE, refusal))?;
    let started = Instant::now();
    let mut watch = Watch::new(files, modules, outputs, wish.choices.delay, clock);
    let end = watch.run(wish.count);
    let code = code_of(end, wish, watch.shown)?;
    if !wish.quiet && wish.replay.is_none() {
        tell_own_cost(watch.shown, started.elapsed().as_secs_f64());
    }
    Ok(code)
}

fn open_clock(wish: &Wish) -> Result<Clock, (u8, Refusal)> {
    match &wish.replay {
        Some(folder) => {
            diskproof_session::begin(&[]);
            Clock::replay(folder).map_err(|error| {
                (USAGE, cannot("replay", folder, &error.to_string(), "name a folder of moments"))
            })
        }
        None => Clock::live(wish.choices.delay).map_err(|error| {
            let refusal = Refusal {
                what: "signals cannot be waited for".to_owned(),
                why: error.to_string(),
                hint: "is signalfd forbidden here?".to_owned(),
            };
            (HOST_CANNOT, refusal)
        }),
    }
}

fn open_modules(wish: &Wish, files: &mut Files) -> Result<Vec<Box<dyn Module>>, Refusal> {
    let mut setup = Setup { files, choices: &wish.choices };
    let modules =
        wish.kinds.iter().map(|kind| (kind.open)(&mut setup)).collect::<Result<Vec<_>, _>>()?;
    if modules.iter().filter(|module| module.row_table().is_some()).count() > 1 {
        return Err(Refusal {
            what: "two modules with rows of their own".to_owned(),
            why: "a line can have one table below it".to_owned(),
            hint: "start the monitor twice".to_owned(),
        });
    }
    Ok(modules)
}

/// A file beside the display, the standard output in its place.
fn open_outputs(wish: &Wish) -> Result<Vec<Box<dyn Output>>, Refusal> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    let mut outputs: Vec<Box<dyn Output>> = Vec::new();
    match (is_stdout(&wish.csv), is_stdout(&wish.json)) {
        (true, true) => {
            return Err(Refusal {
                what: "CSV and JSON both go to the standard output".to_owned(),
                why: "nobody could read them there".to_owned(),
                hint: "name a file for one of them: --csv FILE".to_owned(),
            })
        }
        (false, false) => {
            let terminal = Terminal::open(wish.look);
            outputs.push(Box::new(terminal.map_err(|e| cannot_write(Path::new("-"), &e))?));
        }
        _ => {}
    }
    if let Some(path) = &wish.csv {
        outputs.push(Box::new(Csv::open(path).map_err(|error| cannot_write(path, &error))?));
    }
    if let Some(path) = &wish.json {
        outputs.push(Box::new(Json::open(path).map_err(|error| cannot_write(path, &error))?));
    }
    Ok(outputs)
}

/// Ctrl-C ends a watch without end as it is meant to be ended, and one with a count early.
fn code_of(end: Result<End, WriteError>, wish: &Wish, shown: u64) -> Result<u8, (u8, Refusal)> {
    match end {
        Ok(End::Done | End::ReaderGone) => Ok(DONE),
        Ok(End::Signal(_)) if wish.count.is_none() => Ok(DONE),
        Ok(End::Signal(signal)) => Ok(128 + u8::try_from(signal).unwrap_or(0)),
        // The reader has what it wanted.
        Err(failed) if failed.error.kind() == ErrorKind::BrokenPipe => Ok(DONE),
        Err(failed) => {
            let refusal = Refusal {
                what: format!("cannot write to {}", failed.to),
                why: failed.error.to_string(),
                hint: format!("{shown} samples were written before; make room and start again"),
            };
            Err((FELL_SHORT, refusal))
        }
    }
}

/// Every module that can be opened here, with its columns.
fn list(wish: &Wish) -> String {
    let mut files = Files::new("/");
    let mut text = String::new();
    for kind in modules::KINDS {
        let short = kind.short.map_or("   ".to_owned(), |letter| format!("-{letter},"));
        text += &format!("{short} --{:<12} {}\n", kind.name, kind.help);
        let mut setup = Setup { files: &mut files, choices: &wish.choices };
        match (kind.open)(&mut setup) {
            Ok(module) => text += &list_columns(module.as_ref()),
            Err(refusal) => text += &format!("      {}\n", refusal.what),
        }
    }
    text
}

fn list_columns(module: &dyn Module) -> String {
    let rows = module.row_table().map(|table| &table.columns);
    let columns =
        module.groups().iter().flat_map(|group| &group.columns).chain(rows.into_iter().flatten());
    columns.map(|column| format!("      {} [{}]\n", column.name, column.unit.name())).collect()
}

fn tell_own_cost(shown: u64, lasted: f64) {
    let cpu = 100.0 * own_cost::cpu_seconds() / lasted;
    let memory = OwnMemory::open().resident() / (1 << 20) as f64;
    say(&format!(
        "{shown} samples in {lasted:.1} s; it took {cpu:.2} % of one CPU and {memory:.1} MiB itself"
    ));
}

fn cannot(verb: &str, path: &Path, why: &str, hint: &str) -> Refusal {
    Refusal {
        what: format!("cannot {verb} {}", path.display()),
        why: why.to_owned(),
        hint: hint.to_owned(),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Refusal {
    cannot("write to", path, &error.to_string(), "name a file in a folder that you may write to")
}

fn complain(refusal: &Refusal) {
    let Refusal { what, why, hint } = refusal;
    say(&format!("{what}\n  {why}\n  {hint}"));
}
