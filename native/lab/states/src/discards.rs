//! Discards that a device may carry out in part.

use crate::content::Store;
use crate::failure::{Failure, Result};
use crate::trace::{Change, Event, Trace, What};

/// Bytes that a device discards whole, and how many such clusters one discard may have.
const CLUSTERS: std::ops::RangeInclusive<u64> = 512..=1 << 30;
const MAX_CLUSTERS: u64 = 1 << 16;

impl Store {
    /// The same, when a device may carry out some clusters of a discard; None: it is whole.
    pub fn with_discards(mut self, granularity: Option<u64>) -> Result<Store> {
        if let Some(cluster) = granularity {
            let why = |why| Failure::new("reading the discard granularity", why);
            check(&self.trace, cluster).map_err(why)?;
        }
        self.trace.discard_granularity = granularity;
        Ok(self)
    }
}

fn check(trace: &Trace, cluster: u64) -> std::result::Result<(), String> {
    if !cluster.is_power_of_two() || !CLUSTERS.contains(&cluster) {
        return Err(format!("{cluster} bytes are none"));
    }
    if cluster < trace.sector {
        return Err(format!("it is less than a sector, which has {} bytes", trace.sector));
    }
    let is_too_long = |event: &Event| match event.what {
        What::Change(Change::Zero { length, .. }) => length / cluster > MAX_CLUSTERS,
        _ => false,
    };
    match trace.events.iter().position(is_too_long) {
        Some(at) => {
            let why = "has more than 65,536 clusters; choose a larger granularity";
            Err(format!("the discard of record {} {why}", at + 1))
        }
        None => Ok(()),
    }
}
