//! The ways to force data to disk.
