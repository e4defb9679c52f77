//! The states that a crash could have left of a recorded directory: built from its log, checked,
//! and made small.
//!
//! `docs/crash-model.md` says what a crash may do, and how the states are looked for.

pub mod alone;
mod ancestors;
pub mod causes;
pub mod checks;
pub mod choice;
pub mod combinations;
pub mod content;
mod copied;
pub mod counters;
pub mod cut;
mod cut_blocks;
mod dentries;
pub mod discards;
pub mod equal;
pub mod explore;
pub mod failure;
pub mod fault;
pub mod found;
pub mod image;
mod in_place;
pub mod judge;
pub mod minimise;
pub mod mounting;
mod never_logged;
pub mod operation;
pub mod order;
pub mod plan;
pub mod profile;
mod ranges;
pub mod reads;
pub mod report;
pub mod request;
pub mod rights;
pub mod rules;
pub mod run;
mod settling;
pub mod shard;
pub mod sharing;
pub mod show;
pub mod sizes;
pub mod snapshot;
pub mod source_place;
pub mod state;
pub mod trace;
pub mod tree;
mod tree_log;
pub mod unsynced;
pub mod view;
