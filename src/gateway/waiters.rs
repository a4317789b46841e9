//! Duplicates that wait for a running event's answer: woken by the core that finishes it, bounded in number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most duplicates of one event that wait at once; a sender's storm gets its in-flight answer instead.
const PER_KEY_MAX: usize = 64;

/// Most that wait at once for one tenant's events.
const PER_TENANT_MAX: usize = 1024;

/// Who waits for what. Shared by all cores of a process; a plain lock, held for a map look-up only.
#[derive(Clone, Default)]
pub struct Waiters {
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    keys: HashMap<[u8; 32], Line>,
    tenants: HashMap<String, usize>,
}

#[derive(Default)]
struct Line {
    waiting: usize,
    done: Arc<Notify>,
}

/// A place in line; given up when dropped.
pub struct Waiter {
    waiters: Waiters,
    key: [u8; 32],
    tenant: String,
    /// Told when the event ends on this process.
    pub done: Arc<Notify>,
}

impl Waiters {
    /// A place in line for an event, or none when the line is full.
    pub fn enter(&self, tenant: &str, key: [u8; 32]) -> Option<Waiter> {
        let mut lines = self.lock();
        let of_tenant = lines.tenants.get(tenant).copied().unwrap_or(0);
        let line = lines.keys.entry(key).or_default();
        if line.waiting >= PER_KEY_MAX || of_tenant >= PER_TENANT_MAX {
            if line.waiting == 0 {
                lines.keys.remove(&key);
            }
            return None;
        }
        line.waiting += 1;
        let done = Arc::clone(&line.done);
        lines.tenants.insert(tenant.to_owned(), of_tenant + 1);
        Some(Waiter { waiters: self.clone(), key, tenant: tenant.to_owned(), done })
    }

    /// Wakes all who wait for an event.
    pub fn wake(&self, key: &[u8; 32]) {
        if let Some(line) = self.lock().keys.get(key) {
            line.done.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        // The maps hold counts only: after a panic elsewhere they are still right.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut lines = self.waiters.lock();
        if let Some(line) = lines.keys.get_mut(&self.key) {
            line.waiting -= 1;
            if line.waiting == 0 {
                lines.keys.remove(&self.key);
            }
        }
        if let Some(count) = lines.tenants.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                lines.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_turns_away_and_a_place_given_up_is_free_again() {
        let waiters = Waiters::default();
        let mut line: Vec<_> = (0..PER_KEY_MAX).map(|_| waiters.enter("t", [1; 32]).unwrap()).collect();
        assert!(waiters.enter("t", [1; 32]).is_none());
        assert!(waiters.enter("t", [2; 32]).is_some(), "another event has its own line");
        line.pop();
        assert!(waiters.enter("t", [1; 32]).is_some());
        drop(line);
        assert!(waiters.lock().keys.is_empty() && waiters.lock().tenants.is_empty());
    }

    #[test]
    fn a_tenant_cannot_take_all_places() {
        let waiters = Waiters::default();
        let key = |at: usize| std::array::from_fn(|byte| if byte < 8 { at.to_be_bytes()[byte] } else { 0 });
        let _held: Vec<_> = (0..PER_TENANT_MAX).map(|at| waiters.enter("loud", key(at)).unwrap()).collect();
        assert!(waiters.enter("loud", key(PER_TENANT_MAX)).is_none());
        assert!(waiters.enter("quiet", key(PER_TENANT_MAX)).is_some());
    }
}
