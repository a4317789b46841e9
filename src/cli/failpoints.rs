//! Points in the journey where a test kills or stops the process. Only in builds with the feature `failpoints`.
//!
//! | point | where |
//! |---|---|
//! | `claim.before` | the body is whole, nothing is claimed |
//! | `claim.after` | the claim stands, no byte is sent |
//! | `forward.sent` | the request is at the upstream, its answer is not whole |
//! | `forward.answered` | the answer is whole, its outcome is not written |
//! | `finalise.after` | the outcome is written, nothing is answered |
//! | `reply.mid` | a large answer is with its sender but for its last part |
//! | `certificates.dial` | a certificate's host is looked up; `dial:ADDRESS` has that dialled instead |

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// Names the points and what they do: `claim.after=kill@3, forward.answered=stop` kills at the third time that a delivery
/// passes the first point, and stops (SIGSTOP) at the first time that one passes the second.
pub const VARIABLE: &str = "ONCEWARD_FAILPOINTS";

/// Arms what the environment names.
pub fn arm() {
    #[expect(clippy::disallowed_methods, reason = "no part of the configuration, and of no release build")]
    let Ok(points) = std::env::var(VARIABLE) else { return };
    for point in points.split(',') {
        if let Err(fault) = arm_one(point.trim()) {
            // Before the log is set up; a test that names no point must not pass for that.
            let _ = writeln!(io::stderr(), "{VARIABLE}: {point}: {fault}");
            std::process::exit(2);
        }
    }
}

fn arm_one(point: &str) -> Result<(), String> {
    let (name, action) = point.split_once('=').ok_or("write NAME=kill or NAME=stop")?;
    if let Some(address) = action.strip_prefix("dial:") {
        return fail::cfg(name, &format!("return({address})"));
    }
    let (action, at) = action.split_once('@').unwrap_or((action, "1"));
    let at: usize = at.parse().map_err(|_| "a number stands after @")?;
    let signal = match action {
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        _ => return Err("the actions are kill, stop and dial:ADDRESS".to_owned()),
    };
    let passed = AtomicUsize::new(0);
    fail::cfg_callback(name, move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == at {
            raise(signal);
        }
    })
}

/// The signal reaches the process a moment after the call: nothing may pass the point meanwhile.
fn raise(signal: Signal) {
    let _ = kill_process(getpid(), signal);
    std::thread::park_timeout(Duration::from_millis(100));
}
