//! The command line as dstat's users type it: `-cdn -D sda,total 1 10`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};
use diskproof_words::typed;

use crate::choices::Choices;
use crate::module::Kind;
use crate::modules::{self, KINDS};

/// Shortest and longest time between samples, seconds.
const DELAYS: std::ops::RangeInclusive<f64> = 0.01..=86_400.0;

/// dstat's default.
const DEFAULT: &[&str] = &["cpu", "disk", "net", "page", "sys"];

/// Letters that stand for several modules.
const SETS: &[(&str, char, &str, &[&str])] = &[
    ("all", 'a', "as -cdngy, which is the default", DEFAULT),
    ("vmstat", 'v', "as -pmgdsc", &["proc", "mem", "page", "disk", "swap", "cpu"]),
];

/// Values of these may be left out, which is the standard output.
const TO_STDOUT: [&str; 2] = ["--csv", "--json"];

/// What was asked for.
pub struct Wish {
    pub kinds: Vec<&'static Kind>,
    pub choices: Choices,
    pub count: Option<u64>,
    pub csv: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub look: Look,
    pub list: bool,
    pub quiet: bool,
    pub replay: Option<PathBuf>,
}

/// How it is shown in a terminal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    pub float: bool,
    pub no_colour: bool,
    pub no_headers: bool,
    pub clock: bool,
    pub epoch: bool,
}

/// Ends the program on --help, --version and bad usage (exit code 2).
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Wish {
    let matches =
        typed("monitor", command().try_get_matches_from(with_joined_values(arguments.collect())));
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Wish {
        kinds: chosen_kinds(&matches),
        choices: choices(&matches),
        count: matches.get_one::<u64>("count").copied(),
        csv: path("csv").or(path("output")),
        json: path("json"),
        look: Look {
            float: matches.get_flag("float"),
            no_colour: matches.get_flag("nocolor"),
            no_headers: matches.get_flag("noheaders"),
            clock: matches.get_flag("time"),
            epoch: matches.get_flag("epoch"),
        },
        list: matches.get_flag("list"),
        quiet: matches.get_flag("quiet"),
        replay: path("replay"),
    }
}

fn choices(matches: &ArgMatches) -> Choices {
    let list = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned();
    Choices {
        cpus: list("cpus").collect(),
        disks: list("disks").collect(),
        interrupts: list("interrupts").collect(),
        nets: list("nets").collect(),
        pids: matches.get_many::<i32>("pid").into_iter().flatten().copied().collect(),
        qmp: matches.get_flag("qmp"),
        programs: list("module").collect(),
        full: matches.get_flag("full"),
        delay: matches.get_one::<f64>("delay").copied().unwrap_or(1.0),
    }
}

/// The modules in the order in which they were typed, each once.
fn chosen_kinds(matches: &ArgMatches) -> Vec<&'static Kind> {
    let mut typed: Vec<(usize, &'static [&'static str])> = Vec::new();
    let rows = KINDS.iter().map(|kind| (kind.name, std::slice::from_ref(&kind.name)));
    for (name, members) in rows.chain(SETS.iter().map(|set| (set.0, set.3))) {
        if matches.value_source(name) == Some(ValueSource::CommandLine) {
            typed.extend(matches.index_of(name).map(|index| (index, members)));
        }
    }
    typed.sort_by_key(|(index, _)| *index);
    let programs = matches.contains_id("module");
    if typed.is_empty() && !programs {
        typed.push((0, DEFAULT));
    }
    let mut kinds: Vec<&'static Kind> = Vec::new();
    for kind in typed.iter().flat_map(|(_, names)| *names).filter_map(|name| modules::find(name)) {
        if !kinds.iter().any(|known| known.name == kind.name) {
            kinds.push(kind);
        }
    }
    if programs {
        kinds.push(&modules::PROGRAM);
    }
    kinds
}

/// `--csv FILE` as `--csv=FILE`; what follows is the delay when it is a number, and a module when
/// it is an option.
fn with_joined_values(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter().peekable();
    while let Some(mut argument) = rest.next() {
        if TO_STDOUT.iter().any(|option| argument == *option) {
            let value = rest.next_if(|next| {
                let text = next.to_string_lossy();
                text == "-" || !(text.starts_with('-') || text.parse::<f64>().is_ok())
            });
            argument.push("=");
            argument.push(value.unwrap_or_else(|| "-".into()));
        }
        joined.push(argument);
    }
    joined
}

fn command() -> Command {
    Command::new("diskproof-monitor")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .about("Shows what this host's CPUs, disks, flushes, memory, network and VMs do, a line at a time")
        .after_help(EXAMPLES)
        .args(KINDS.iter().map(kind_arg))
        .args(SETS.iter().map(|(name, short, help, _)| switch(name, help).short(*short)))
        .args(list_args())
        .args(look_args())
        .args(output_args())
        .arg(
            Arg::new("delay")
                .value_name("DELAY")
                .help("Seconds between lines, from 0.01 [default: 1]")
                .value_parser(parse_delay),
        )
        .arg(
            Arg::new("count")
                .value_name("COUNT")
                .help("Number of lines [default: until Ctrl-C]")
                .value_parser(value_parser!(u64).range(1..)),
        )
}

const EXAMPLES: &str = "Examples:
  diskproof-monitor -cdn 1 10              CPU, disk and network, ten lines
  diskproof-monitor -t -x -D vda           iostat's columns, flushes among them
  diskproof-monitor --flush --psi 0.1      flush rate and latency, ten times a second
  diskproof-monitor -a --full              each CPU, disk and network device
  diskproof-monitor -cd --csv run.csv      also into a file; --csv alone is the standard output";

fn parse_delay(text: &str) -> Result<f64, String> {
    let delay = text.parse::<f64>().map_err(|_| "no number of seconds".to_owned())?;
    if DELAYS.contains(&delay) {
        Ok(delay)
    } else {
        Err(format!("{} to {} seconds are possible", DELAYS.start(), DELAYS.end()))
    }
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue).overrides_with(name)
}

fn kind_arg(kind: &Kind) -> Arg {
    let arg = switch(kind.name, kind.help).help_heading("Modules");
    match kind.short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

fn list_args() -> Vec<Arg> {
    let list = |id: &'static str, short, example, help| {
        Arg::new(id)
            .short(short)
            .value_name(example)
            .help(help)
            .value_delimiter(',')
            .action(ArgAction::Append)
            .help_heading("Which")
    };
    vec![
        list("cpus", 'C', "0,3,total", "Processors for -c"),
        list("disks", 'D', "sda,total", "Disks or partitions, for all that has to do with disks"),
        list("interrupts", 'I', "98,eth0", "Interrupts for -i: number, name, or part of a name"),
        list("nets", 'N', "eth0,total", "Network devices for -n"),
        Arg::new("pid")
            .long("pid")
            .value_name("PID")
            .help("A process for --process; may be given again")
            .value_parser(value_parser!(i32).range(1..))
            .action(ArgAction::Append)
            .help_heading("Which"),
        switch("qmp", "Ask QEMUs whose QMP socket is free for their guests' flushes, for --vm")
            .help_heading("Which"),
        Arg::new("module")
            .long("module")
            .value_name("COMMAND")
            .help("Columns of a program of yours that writes JSON lines; may be given again")
            .action(ArgAction::Append)
            .help_heading("Which"),
        switch("full", "Each CPU, disk, network device and interrupt, not their total")
            .short('f')
            .help_heading("Which"),
    ]
}

fn look_args() -> Vec<Arg> {
    let args = [
        switch("time", "Time of day before each line").short('t'),
        switch("epoch", "Seconds since 1970 before each line").short('T'),
        switch("float", "Show fractions"),
        switch("nocolor", "No colours").alias("bw").alias("blackonwhite"),
        switch("noheaders", "Show the header once"),
        switch("noupdate", "Accepted for dstat's sake: a line is never shown before it is due"),
        switch("quiet", "No last line with the monitor's own cost").short('q'),
    ];
    args.map(|arg| arg.help_heading("Look")).to_vec()
}

fn output_args() -> Vec<Arg> {
    let file = |id: &'static str, help| {
        Arg::new(id)
            .long(id)
            .value_name("FILE")
            .help(help)
            .value_parser(value_parser!(PathBuf))
            .help_heading("Output")
    };
    vec![
        file("csv", "CSV into FILE beside the display; without FILE in its place"),
        file("json", "JSON lines into FILE beside the display; without FILE in its place"),
        file("output", "As --csv FILE").conflicts_with("csv"),
        switch("list", "The modules and their columns, and end").help_heading("Output"),
        file("replay", "Samples from a folder of recorded moments").hide(true),
        Arg::new("version")
            .long("version")
            .short('V')
            .help("Print the version")
            .action(ArgAction::Version),
    ]
}
