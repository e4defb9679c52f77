//! The command line.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use diskproof_wire::ledger::{Geometry, MAX_SLOTS, SLOT};

use crate::place::TargetPlace;
use crate::target::Durable;

/// Writes numbered records and tells after a crash which of those that were acknowledged are lost.
#[derive(Parser)]
#[command(name = "diskproof-ledger", version)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Write a ledger to a block device, a file, or nbd+unix:///EXPORT?socket=PATH
    Write(WriteTo),
    /// Write a ledger as files of a directory: made, synced, renamed, the directory synced
    WriteFiles(WriteFiles),
    /// Tell what of a ledger on a disk is lost
    Verify(Verify),
    /// Tell what of a ledger in a directory is lost
    VerifyFiles(Verify),
}

#[derive(Args)]
pub struct WriteTo {
    pub target: TargetPlace,
    /// Where the ledger begins, in bytes
    #[arg(long, default_value_t = 0)]
    pub offset: u64,
    /// Go through the page cache, without O_DIRECT
    #[arg(long)]
    pub buffered: bool,
    /// Make a new file of so many bytes
    #[arg(long, value_name = "BYTES")]
    pub create: Option<u64>,
    #[command(flatten)]
    pub how: Write,
}

#[derive(Args)]
pub struct WriteFiles {
    pub folder: PathBuf,
    #[command(flatten)]
    pub how: Write,
}

#[derive(Args)]
pub struct Write {
    /// Records that the ledger holds before it begins anew
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=MAX_SLOTS))]
    pub slots: u64,
    /// Scatter the records; 0 writes in order
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Records under way at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Records from one flush to the next
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub flush_every: u64,
    /// What makes a record durable
    #[arg(long, value_enum, default_value_t = Durable::Flush)]
    pub durable: Durable,
    /// End after so many records
    #[arg(long, required_unless_present = "seconds", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    pub records: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<Duration>,
    /// Records a second at most
    #[arg(long, value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Where acknowledgements go: - (standard output), a descriptor, a file or a Unix socket; may
    /// be repeated
    #[arg(long, default_value = "-", value_name = "-|FD|PATH")]
    pub acks: Vec<String>,
    /// Seconds that an NBD server may take to answer
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub patience: u64,
}

#[derive(Args)]
pub struct Verify {
    pub target: TargetPlace,
    /// Records up to this one must be there
    #[arg(long, required_unless_present = "acks", conflicts_with = "acks")]
    pub acknowledged: Option<u64>,
    /// Take what must be there from acknowledgements in a file
    #[arg(long, value_name = "FILE")]
    pub acks: Option<PathBuf>,
    /// Of the ledger with this id (16 hexadecimal digits); without it, of the last one
    #[arg(long, value_parser = parse_id)]
    pub id: Option<u64>,
    /// Print all that was found
    #[arg(long)]
    pub json: bool,
    /// Seconds that an NBD server may take to answer
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub patience: u64,
}

impl WriteTo {
    /// The ledger that fits a target of `size` bytes.
    pub fn geometry(&self, size: u64) -> io::Result<Geometry> {
        if self.offset % SLOT as u64 != 0 {
            return Err(io::Error::other(format!("--offset must be a multiple of {SLOT}")));
        }
        let room = size.saturating_sub(self.offset) / SLOT as u64;
        if room < self.how.slots {
            let slots = self.how.slots;
            let why = format!("the target has room for {room} slots there, not for {slots}");
            return Err(io::Error::other(why));
        }
        self.how.geometry(self.offset)
    }
}

impl Write {
    pub fn geometry(&self, offset: u64) -> io::Result<Geometry> {
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        Ok(Geometry { id: u64::from_le_bytes(id), offset, slots: self.slots, seed: self.seed })
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    (duration <= Duration::from_secs(7 * 24 * 3600))
        .then_some(duration)
        .ok_or("a week at most".into())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().map_err(|error| error.to_string())?;
    (1e-3..=1e9).contains(&rate).then_some(rate).ok_or("it is from 0.001 to 1e9".into())
}

fn parse_id(text: &str) -> Result<u64, String> {
    let sound = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = sound.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    id.ok_or("it is 16 hexadecimal digits".into())
}
