//! Lines for flame graphs: `process;call;file NUMBER`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::options::Folded;
use crate::tally::Tally;

/// The numbers of all lines add up to those of the trace: nanoseconds, or calls.
pub fn render_folded(tally: &Tally, what: Folded) -> String {
    let mut stacks = BTreeMap::<String, u64>::new();
    for (group, sums) in &tally.groups {
        let parts = [&*group.process, group.call.name(), &*group.file].map(render_frame);
        let number = match what {
            Folded::Time => sums.total,
            Folded::Calls => sums.calls,
        };
        *stacks.entry(parts.join(";")).or_default() += number;
    }
    let mut text = String::new();
    for (stack, number) in stacks {
        let _ = writeln!(text, "{stack} {number}");
    }
    text
}

/// A frame holds neither the separator of frames nor the end of the line.
fn render_frame(text: &str) -> String {
    text.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect()
}
