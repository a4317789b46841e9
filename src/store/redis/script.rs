//! Scripts, and what is handed to the one that writes.

use std::borrow::Cow;
use std::time::Duration;

use redis::{Cmd, cmd};

use crate::idempotency::record::Status;
use crate::idempotency::{Draft, Expect, Fence, Lease, State, Ttl};
use crate::store::codec::{self, COLUMNS};

use super::names::NAME;

/// The longest lease or life, 100 years: later moments would no longer be exact in the doubles that Lua computes with.
const SPAN_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// Whether a record in this state stands in its tenant's index: all that somebody may still have to look after.
pub(super) fn is_open(status: Status) -> bool {
    !matches!(status, Status::Succeeded | Status::Alias)
}

/// A script and its name on the server.
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    pub(super) fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    pub(super) fn by_hash(&self, keys: &[&str], args: &[Cow<'_, [u8]>]) -> Cmd {
        command("EVALSHA", &self.hash, keys, args)
    }

    pub(super) fn by_source(&self, keys: &[&str], args: &[Cow<'_, [u8]>]) -> Cmd {
        command("EVAL", &self.source, keys, args)
    }
}

fn command(verb: &str, script: &str, keys: &[&str], args: &[Cow<'_, [u8]>]) -> Cmd {
    let mut command = cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys);
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// The arguments of `swap.lua`, in its order.
pub(super) fn swap_args<'a>(
    expect: Expect,
    draft: &Draft,
    content: &'a codec::Columns,
    (name, namespace): (&'a str, &'a str),
) -> Vec<Cow<'a, [u8]>> {
    let (lease, fence, status) = match expect {
        Expect::Absent => ("absent", String::new(), ""),
        Expect::At { revision, lease } => {
            let lease = match lease {
                Lease::Live => "live",
                Lease::Over => "over",
                Lease::Any => "any",
            };
            (lease, revision.fence.to_string(), revision.status.as_str())
        }
    };
    let floor = match draft.fence {
        Fence::Next { floor } => floor.to_string(),
        Fence::Keep => String::new(),
    };
    let (ttl, least) = match draft.ttl {
        Ttl::AtLeast(ttl) => (ttl, "1"),
        Ttl::Exactly(ttl) => (ttl, "0"),
    };
    let ends = if draft.state == State::Processing { "0" } else { "1" };
    let stale = COLUMNS.iter().filter(|name| !STAMPED.contains(name) && content.iter().all(|(set, _)| set != *name));
    let stale = stale.collect::<Vec<_>>();

    let mut args = Vec::with_capacity(64);
    args.push(borrowed(lease));
    args.push(owned(fence));
    args.push(borrowed(status));
    args.push(owned(floor));
    args.push(owned(draft.lease.map_or_else(String::new, micros)));
    args.push(owned(micros(ttl)));
    args.push(borrowed(least));
    args.push(borrowed(ends));
    args.push(borrowed(if is_open(draft.state.status()) { "1" } else { "0" }));
    args.push(borrowed(namespace));
    args.push(owned(stale.len().to_string()));
    args.extend(stale.into_iter().map(|name| borrowed(name)));
    args.extend([borrowed(NAME), borrowed(name)]);
    for (name, cell) in content {
        args.extend([borrowed(name), Cow::Borrowed(cell.as_bytes())]);
    }
    args
}

/// What the script writes or clears by its own clock.
const STAMPED: [&str; 5] = ["fence", "started_at", "finished_at", "lease_until", "expires_at"];

fn borrowed(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}

fn owned(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}

fn micros(span: Duration) -> String {
    span.min(SPAN_MAX).as_micros().to_string()
}
