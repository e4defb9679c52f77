//! What the threads of a mechanism tell the main thread.

use crate::event::Event;

#[derive(Debug)]
pub enum Message {
    Events(Vec<Event>),
    /// So many calls happened and were not seen.
    Lost(u64),
}
