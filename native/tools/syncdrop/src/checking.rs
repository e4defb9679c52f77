//! `--check`: every known way tried under ourselves, with the options that were given.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use diskproof_sync_ways::{check as try_ways, render_json, render_table, Probes, Setup, Way};

use crate::options::Options;
use crate::Refusal;

/// The exit code: 0 all that is promised holds, 1 not so, 3 nothing can be proved here.
pub fn check(options: &Options) -> Result<u8, Refusal> {
    diskproof_session::begin(&[]);
    let mut json = crate::open_json(options)?;
    let probes = Probes::find().map_err(Refusal::host)?;
    let prefix = prefix(options)?;
    let report = try_ways(&Setup {
        prefix: &prefix,
        folder: options.dir.as_deref().unwrap_or(Path::new("/var/tmp")),
        promised: &|way| is_promised(options, way),
        probes: &probes,
    })
    .map_err(Refusal::host)?;
    let written = match &mut json {
        Some(file) => file.write_line(&render_json(&report)),
        None => io::stdout().write_all(render_table(&report).as_bytes()),
    };
    written.map_err(|error| Refusal::host(format!("the result cannot be written: {error}")))?;
    Ok(report.exit_code())
}

/// How a program is started under us.
fn prefix(options: &Options) -> Result<Vec<OsString>, Refusal> {
    let mut words: Vec<OsString> = vec![std::env::current_exe()?.into(), "--quiet".into()];
    if options.preload {
        words.push("--preload".into());
    }
    if options.strict {
        words.push("--strict".into());
    }
    words.push("--".into());
    Ok(words)
}

/// io_uring is left alone unless that is asked for; a library alone does not reach into the C
/// library's own thread, nor into programs that do not load it.
fn is_promised(options: &Options, way: &Way) -> bool {
    let beyond_library = ["aio_fsync", "static-fsync", "instruction-fsync"].contains(&way.id);
    if way.id.starts_with("io_uring") {
        options.strict
    } else {
        !(options.preload && beyond_library)
    }
}
