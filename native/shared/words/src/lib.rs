//! How the tools speak of what was typed and of what the kernel refuses: as diskproof's verbs do.

#![forbid(unsafe_code)]

use std::{io, process};

use clap::error::Result;

const WRONG_USAGE: i32 = 2;

/// What was typed. Ends the program on --help and --version, and with code 2 where it cannot be
/// understood. `verb`: as diskproof calls the tool.
pub fn typed<Options>(verb: &str, parsed: Result<Options>) -> Options {
    parsed.unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        eprintln!("{}", mistake(verb, &error.render().to_string()));
        process::exit(WRONG_USAGE)
    })
}

/// Clap's words without its usage: what is wrong, tips, and where there is more.
fn mistake(verb: &str, told: &str) -> String {
    let told = told.split("\n\nUsage:").next().unwrap_or_default();
    let told = told.split("\n\nFor more information").next().unwrap_or_default();
    let mut parts = told.trim_start_matches("error: ").split("\n\n");
    let line = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = parts.next().map(line).unwrap_or_default();
    let tips: String = parts.map(|part| format!("\n  {}", line(part))).collect();
    format!("diskproof: {what}{tips}\n  `diskproof {verb} --help` tells more")
}

/// Why, without the number that the standard library puts after it.
pub fn plain_reason(error: &io::Error) -> String {
    let why = error.to_string();
    why.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::{mistake, plain_reason};

    #[test]
    fn a_mistake_is_told_as_by_all_verbs() {
        let tool = || Command::new("tool").arg(Arg::new("top").long("top").num_args(1));
        let told = |tool: Command, words: &[&str]| {
            let error = tool.try_get_matches_from(words).unwrap_err();
            mistake("sync tool", &error.render().to_string())
        };
        let unknown = told(tool(), &["tool", "--topp", "3"]);
        let more = "\n  `diskproof sync tool --help` tells more";
        assert_eq!(unknown, format!("diskproof: unexpected argument '--topp' found{more}"));
        let needs = tool().arg(Arg::new("COMMAND").required(true));
        assert_eq!(
            told(needs, &["tool"]),
            format!(
                "diskproof: the following required arguments were not provided: <COMMAND>{more}"
            )
        );
    }

    #[test]
    fn a_reason_has_no_number() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain_reason(&error), "No such file or directory");
    }
}
