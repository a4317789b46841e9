//! Which certificates are to be fetched: each URL once at a time, and not again right after it failed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

/// URLs that wait for their turn. What does not fit is asked for again by the next delivery.
const QUEUED_MAX: usize = 16;
/// URLs that are known to be under way or to have failed. Anybody can name URLs of an allowed host.
const NAMED_MAX: usize = 256;
/// How long a URL that failed is left alone.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The end that asks.
#[derive(Debug)]
pub(super) struct Wanted {
    to: mpsc::Sender<String>,
    named: Mutex<HashMap<String, Attempt>>,
    ended: watch::Sender<u64>,
}

/// The end that fetches: the URLs, in the order in which they were asked for. It ends with the certificates.
pub type Asked = mpsc::Receiver<String>;

#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    UnderWay,
    Failed(Instant),
}

impl Wanted {
    pub(super) fn new() -> (Self, Asked) {
        let (to, asked) = mpsc::channel(QUEUED_MAX);
        (Self { to, named: Mutex::default(), ended: watch::Sender::new(0) }, asked)
    }

    /// Whether it is under way now.
    pub(super) fn ask(&self, url: &str) -> bool {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, attempt| match attempt {
            Attempt::UnderWay => true,
            Attempt::Failed(at) => at.elapsed() < AGAIN_AFTER,
        });
        match named.get(url) {
            Some(attempt) => *attempt == Attempt::UnderWay,
            None if named.len() >= NAMED_MAX || self.to.try_send(url.to_owned()).is_err() => false,
            None => {
                named.insert(url.to_owned(), Attempt::UnderWay);
                true
            }
        }
    }

    pub(super) fn ended(&self, url: &str, is_kept: bool) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.remove(url);
        if !is_kept {
            named.insert(url.to_owned(), Attempt::Failed(Instant::now()));
        }
        drop(named);
        self.ended.send_modify(|count| *count += 1);
    }

    fn is_fetching(&self) -> bool {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.values().any(|attempt| *attempt == Attempt::UnderWay)
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        Arrivals { ended: self.ended.subscribe() }
    }
}

/// The end of fetches, from a moment on.
#[derive(Debug)]
pub struct Arrivals {
    ended: watch::Receiver<u64>,
}

impl Arrivals {
    /// Whether a fetch ended since, or ends within `patience`, while `certificates` wait for one.
    pub async fn come(mut self, certificates: &super::Certificates, patience: Duration) -> bool {
        if self.ended.has_changed().unwrap_or(false) {
            return true;
        }
        if !certificates.wanted.as_ref().is_some_and(Wanted::is_fetching) {
            return false;
        }
        tokio::time::timeout(patience, self.ended.changed()).await.is_ok_and(|changed| changed.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_asked_for_once_at_a_time_and_not_right_after_it_failed() {
        let (wanted, mut asked) = Wanted::new();
        assert!(wanted.ask("a") && wanted.ask("a") && wanted.ask("b"));
        assert_eq!((asked.try_recv().unwrap(), asked.try_recv().unwrap()), ("a".to_owned(), "b".to_owned()));
        assert!(asked.try_recv().is_err());
        wanted.ended("a", false);
        assert!(!wanted.ask("a"), "it failed a moment ago");
        wanted.ended("b", true);
        assert!(!wanted.is_fetching());
        assert!(wanted.ask("b"), "it was kept, and is wanted again");
    }

    #[test]
    fn what_anybody_names_is_bounded() {
        let (wanted, mut asked) = Wanted::new();
        for url in 0..10_000 {
            if wanted.ask(&url.to_string()) {
                assert_eq!(asked.try_recv().unwrap(), url.to_string());
                wanted.ended(&url.to_string(), false);
            }
        }
        assert_eq!(wanted.named.lock().unwrap().len(), NAMED_MAX);
        let (wanted, _asked) = Wanted::new();
        assert_eq!((0..100).filter(|url| wanted.ask(&url.to_string())).count(), QUEUED_MAX);
    }
}
