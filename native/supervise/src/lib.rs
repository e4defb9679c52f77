//! Commands under a seccomp filter with user notification.
