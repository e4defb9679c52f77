//! Residency of file pages: cachestat(2), or mincore(2) where the kernel is older.
