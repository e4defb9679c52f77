//! The watch itself: wait, look, write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::ClockId;

use diskproof_session::Signals;
use rustix::process::Signal;

use crate::files::Files;
use crate::module::{Module, Moment};
use crate::output::{Output, Sample, Sheet};
use crate::own_cost::seconds;
use crate::pace::{Pace, Tick, SIGNALS};

/// Where moments come from.
pub enum Clock {
    Live(Pace, Signals),
    /// Folders with a recorded tree each, the last first.
    Replay(Vec<PathBuf>),
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All lines were shown, or the recording is over.
    Done,
    ReaderGone,
    Signal(i32),
}

/// What fails while watching: writing, and to where.
#[derive(Debug)]
pub struct WriteError {
    pub to: String,
    pub error: io::Error,
}

pub struct Watch {
    pub files: Files,
    pub modules: Vec<Box<dyn Module>>,
    pub outputs: Vec<Box<dyn Output>>,
    pub sheet: Sheet,
    pub clock: Clock,
    /// Lines that were written.
    pub shown: u64,
    row: Vec<f64>,
    last: f64,
}

impl Clock {
    pub fn live(delay: f64) -> io::Result<Clock> {
        let signals = Signals::block(&SIGNALS)?;
        Ok(Clock::Live(Pace::new(Duration::from_secs_f64(delay)), signals))
    }

    /// Every folder in `folder`, by name; each holds `proc/`, perhaps `sys/`, and `moment`: two
    /// numbers, the seconds of CLOCK_MONOTONIC and of CLOCK_REALTIME.
    pub fn replay(folder: &Path) -> io::Result<Clock> {
        let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        let mut moments: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        moments.retain(|path| path.is_dir());
        moments.sort();
        moments.reverse();
        Ok(Clock::Replay(moments))
    }

    /// The root of the first moment.
    pub fn first_root(&self) -> PathBuf {
        match self {
            Clock::Live(..) => "/".into(),
            Clock::Replay(moments) => moments.last().cloned().unwrap_or_default(),
        }
    }
}

impl Watch {
    pub fn new(
        files: Files,
        modules: Vec<Box<dyn Module>>,
        outputs: Vec<Box<dyn Output>>,
        delay: f64,
        clock: Clock,
    ) -> Watch {
        let groups = modules.iter().flat_map(|module| module.groups().to_vec()).collect();
        let row_table = modules.iter().find_map(|module| module.row_table().cloned());
        let sheet = Sheet::new(groups, row_table, delay);
        let (shown, row, last) = (0, Vec::new(), f64::NAN);
        Watch { files, modules, outputs, sheet, clock, shown, row, last }
    }

    /// Until `count` lines are shown, somebody ends it, or nobody reads.
    pub fn run(&mut self, count: Option<u64>) -> Result<End, WriteError> {
        self.look_first();
        self.each_output(|output, sheet| output.start(sheet))?;
        while count.is_none_or(|count| self.shown < count) {
            match self.wait() {
                Ok(Tick::Due) => self.show()?,
                Ok(Tick::Arrived(Signal::WINCH)) => {
                    self.outputs.iter_mut().for_each(|output| output.resize());
                }
                Ok(Tick::Arrived(signal)) => return Ok(End::Signal(signal.as_raw())),
                Ok(Tick::ReaderGone) => return Ok(End::ReaderGone),
                Err(error) => return Err(WriteError { to: "the clock".to_owned(), error }),
            }
            if matches!(&self.clock, Clock::Replay(moments) if moments.is_empty()) {
                break;
            }
        }
        Ok(End::Done)
    }

    /// Where the counters start.
    fn look_first(&mut self) {
        if let Clock::Replay(moments) = &mut self.clock {
            moments.pop();
        }
        self.look();
    }

    fn wait(&mut self) -> io::Result<Tick> {
        match &mut self.clock {
            Clock::Live(pace, signals) => pace.wait(&io::stdout(), signals),
            Clock::Replay(moments) => {
                if let Some(next) = moments.pop() {
                    self.files.move_root(next);
                }
                Ok(Tick::Due)
            }
        }
    }

    fn show(&mut self) -> Result<(), WriteError> {
        let now = self.look();
        let values = std::mem::take(&mut self.row);
        let sample =
            |modules: &[Box<dyn Module>], outputs: &mut [Box<dyn Output>], sheet: &Sheet| {
                let rows = modules.iter().find(|module| module.row_table().is_some());
                let rows = rows.map_or(&[][..], |module| module.rows());
                let sample = Sample { now, values: &values, rows };
                outputs.iter_mut().try_for_each(|output| {
                    output
                        .sample(sheet, &sample)
                        .map_err(|error| WriteError { to: output.name(), error })
                })
            };
        sample(&self.modules, &mut self.outputs, &self.sheet)?;
        self.row = values;
        self.shown += 1;
        Ok(())
    }

    /// Read all files, and have each module append its values to the row.
    fn look(&mut self) -> Moment {
        let (monotonic, time) = self.moment();
        let now = Moment { monotonic, time, span: monotonic - self.last };
        self.last = monotonic;
        self.files.read_all();
        self.row.clear();
        let mut width = 0;
        for module in &mut self.modules {
            module.sample(&self.files, now, &mut self.row);
            width += module.groups().iter().map(|group| group.columns.len()).sum::<usize>();
            // One that gives too few or too many does not shift the others.
            self.row.resize(width, f64::NAN);
        }
        now
    }

    fn moment(&self) -> (f64, f64) {
        match &self.clock {
            Clock::Live(..) => (seconds(ClockId::Monotonic), seconds(ClockId::Realtime)),
            Clock::Replay(_) => recorded_moment(self.files.root()),
        }
    }

    fn each_output(
        &mut self,
        mut act: impl FnMut(&mut dyn Output, &Sheet) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        for output in &mut self.outputs {
            act(output.as_mut(), &self.sheet)
                .map_err(|error| WriteError { to: output.name(), error })?;
        }
        Ok(())
    }
}

fn recorded_moment(root: &Path) -> (f64, f64) {
    let text = fs::read_to_string(root.join("moment")).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(f64::NAN));
    (numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN))
}
