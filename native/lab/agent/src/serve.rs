//! Requests carried out, one after the other; what takes long goes to a thread.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use diskproof_wire::{Event, Exec, Poweroff, Read, Refusal, Request, Start};

use crate::channel::{Inbox, Outbox};
use crate::children::Children;
use crate::clocks::{monotonic_ns, realtime_ns};
use crate::disks::Drives;
use crate::failure::{Doing, Failure, Outcome};
use crate::jobs::Jobs;
use crate::modules::Modules;
use crate::power::{fatal, power_off};
use crate::{exec, files, mounts, uevents};

/// What the agent knows between requests.
pub struct Agent {
    outbox: Outbox,
    children: Arc<Children>,
    jobs: Jobs,
    modules: Modules,
    drives: Drives,
    /// The root's device once it is mounted.
    root: Option<String>,
    started: bool,
}

impl Agent {
    pub fn new(outbox: Outbox, children: Arc<Children>, modules: Modules) -> Self {
        Agent {
            outbox,
            children,
            jobs: Jobs::default(),
            modules,
            drives: Drives::new("/sys"),
            root: None,
            started: false,
        }
    }

    /// Until the host closes the channel.
    pub fn serve(&mut self, inbox: &mut Inbox) -> Outcome<()> {
        while let Some(request) = inbox.next()? {
            match request {
                Ok(request) if self.jobs.is_used(request.id()) => self.refuse(Refusal {
                    // Not the id itself: that would end the request which still uses it.
                    id: None,
                    why: format!("id {} is still in use", request.id()),
                })?,
                Ok(request) => self.answer(request)?,
                Err(refusal) => self.refuse(refusal)?,
            }
        }
        Ok(())
    }

    fn refuse(&self, refusal: Refusal) -> Outcome<()> {
        self.outbox.send(&Event::error(refusal.id, "request refused", refusal.why))
    }

    /// Carry out a request and send the event that ends it, unless a thread will.
    fn answer(&mut self, request: Request) -> Outcome<()> {
        let id = request.id();
        let done = Some(Event::Done { id });
        let last = match request {
            Request::Start(start) => self.start(&start).map(Some),
            Request::Exec(exec) => self.exec(exec).map(|()| None),
            Request::Kill(kill) => self.jobs.kill(kill.target, kill.signal).map(|()| done),
            Request::Read(read) => self.read(read).map(|()| None),
            Request::Write(write) => {
                self.require_root().and_then(|()| files::write_file(&write)).map(|()| done)
            }
            Request::Clock(_) => Ok(Some(read_clocks(id))),
            Request::Poweroff(poweroff) => self.power_off(&poweroff),
        };
        match last {
            Ok(Some(event)) => self.outbox.send(&event),
            Ok(None) => Ok(()),
            Err(Failure { what, why }) => self.outbox.send(&Event::error(Some(id), what, why)),
        }
    }

    fn start(&mut self, start: &Start) -> Outcome<Event> {
        if self.started {
            return Err(Failure::new("cannot start", "the guest has started already"));
        }
        let deadline = Instant::now() + Duration::from_millis(start.timeout_ms);
        self.modules.load(&start.modules)?;
        if self.root.is_none() {
            let device = format!("/dev/{}", self.require_drive(&start.root_serial, deadline)?);
            mounts::mount_root(&device)?;
            self.root = Some(device);
        }
        let disk = match &start.disk_serial {
            Some(serial) => Some(self.drives.describe(&self.require_drive(serial, deadline)?)?),
            None => None,
        };
        self.started = true;
        Ok(Event::Started { id: start.id, root: self.root.clone().unwrap_or_default(), disk })
    }

    fn require_drive(&self, serial: &str, deadline: Instant) -> Outcome<String> {
        uevents::wait_for(deadline, || Ok(self.drives.find(serial)))?.ok_or_else(|| {
            let why = format!("in time there was {}", self.drives.list());
            Failure::new(format!("no drive with serial {serial:?}"), why)
        })
    }

    fn require_root(&self) -> Outcome<()> {
        match self.root {
            Some(_) => Ok(()),
            None => Err(Failure::new("no root yet", "start comes first")),
        }
    }

    fn exec(&self, request: Exec) -> Outcome<()> {
        self.require_root()?;
        let job = self.jobs.enter(request.id);
        exec::run(request, job, &self.children, &self.outbox)
    }

    fn read(&self, request: Read) -> Outcome<()> {
        self.require_root()?;
        let job = self.jobs.enter(request.id);
        let outbox = self.outbox.clone();
        let read = move || {
            let event = match files::send_file(&request, &outbox) {
                Ok(()) => Event::Done { id: request.id },
                Err(Failure { what, why }) => Event::error(Some(request.id), what, why),
            };
            drop(job);
            outbox.send(&event).unwrap_or_else(|failure| fatal(&failure));
        };
        thread::Builder::new().spawn(read).doing(|| "cannot start a thread".to_owned())?;
        Ok(())
    }

    /// The answer comes first: after it there is nobody to give one.
    fn power_off(&self, request: &Poweroff) -> ! {
        if request.sync {
            rustix::fs::sync();
        }
        match self.outbox.send(&Event::Done { id: request.id }) {
            Ok(()) => power_off(),
            Err(failure) => fatal(&failure),
        }
    }
}

fn read_clocks(id: u64) -> Event {
    Event::Clock { id, monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns() }
}
