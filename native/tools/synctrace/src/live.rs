//! The picture while the program runs: drawn anew in place on a terminal, else one below the other.

use crate::clock;
use crate::quantities::{render_count, render_percent, render_time};
use crate::report::render_histograms;
use crate::session::{Screen, Session};

pub struct Live {
    screen: Screen,
    /// Between two pictures, in ns.
    period: u64,
    next: u64,
    /// Lines of the last picture, to go back over.
    lines: usize,
}

impl Live {
    pub fn new(screen: Screen, seconds: u32) -> Live {
        let period = u64::from(seconds) * 1_000_000_000;
        Live { screen, period, next: clock::now() + period, lines: 0 }
    }

    pub fn draw(&mut self, session: &Session) {
        let now = clock::now();
        if now < self.next {
            return;
        }
        self.next = now + self.period;
        let text = render_picture(session);
        if self.screen.is_terminal() {
            self.erase();
            self.lines = text.lines().count();
        }
        self.screen.write(&text);
    }

    /// Make room for what is drawn next.
    pub fn erase(&mut self) {
        if self.lines > 0 {
            self.screen.write(&format!("\x1b[{}A\x1b[J", self.lines));
            self.lines = 0;
        }
    }
}

fn render_picture(session: &Session) -> String {
    let sums = &session.tally.sums;
    let share = render_percent(session.tally.busy.total(), session.wall());
    format!(
        "{}: {} calls, {} in them, {share} of the time with one in flight\n{}",
        render_time(session.wall()),
        render_count(sums.calls),
        render_time(sums.total),
        render_histograms(&session.tally, 2),
    )
}
