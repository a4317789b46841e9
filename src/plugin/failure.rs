//! How a plugin call fails: the kinds that metrics, logs and policies know.

use std::fmt;

/// A call that gave no answer. The guest is gone; the next call gets a fresh one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} in {stage}: {detail}")]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// Where.
    pub stage: Stage,
    /// For the log: no control characters, at most about 1 KiB. It may hold the guest's own words.
    pub detail: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, stage: Stage, detail: impl fmt::Display) -> Self {
        Self { kind, stage, detail: printable(&detail.to_string(), DETAIL_MAX) }
    }
}

/// Bytes kept of a guest's free text.
pub(super) const DETAIL_MAX: usize = 1024;

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The guest trapped: a panic, a bad access, a stack overflow.
    GuestTrap,
    /// It used up its fuel.
    OutOfFuel,
    /// It ran longer than its wall budget.
    Timeout,
    /// It asked for more memory or table than it may have.
    MemoryLimit,
    /// It returned more than it may.
    OutputLimit,
    /// It said itself that it cannot answer.
    PluginError(PluginFault),
    /// It returned what no plugin may return.
    Contract,
    /// All of the host's slots are taken; not the plugin's fault.
    HostBusy,
    /// The host itself failed; not the plugin's fault.
    Host,
}

impl FailureKind {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GuestTrap => "guest-trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::Timeout => "timeout",
            Self::MemoryLimit => "memory-limit",
            Self::OutputLimit => "output-limit",
            Self::PluginError(_) => "plugin-error",
            Self::Contract => "contract",
            Self::HostBusy => "host-busy",
            Self::Host => "host",
        }
    }
}

impl FailureKind {
    /// What a sender is told, who may be anybody.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::GuestTrap => "The plugin broke off. Nothing was forwarded or stored. Send the request again.",
            Self::OutOfFuel => "The plugin used up its fuel. Nothing was forwarded or stored. Send the request again.",
            Self::Timeout => "The plugin took too long. Nothing was forwarded or stored. Send the request again.",
            Self::MemoryLimit => {
                "The plugin wanted more memory than it may have. Nothing was forwarded or stored. Send the request again."
            }
            Self::OutputLimit => {
                "The plugin returned more than it may. Nothing was forwarded or stored. Send the request again."
            }
            Self::PluginError(_) => {
                "The plugin says that it cannot read this request. Nothing was forwarded or stored. Send the request again."
            }
            Self::Contract => {
                "The plugin returned what no plugin may return. Nothing was forwarded or stored. Send the request again."
            }
            Self::HostBusy => "Too many plugins run now. Nothing was forwarded or stored. Send the request again.",
            Self::Host => "The plugin could not be run. Nothing was forwarded or stored. Send the request again.",
        }
    }

    /// Whether the version is to blame: not the request, and not the host.
    pub const fn is_the_versions(self) -> bool {
        match self {
            Self::GuestTrap
            | Self::OutOfFuel
            | Self::Timeout
            | Self::MemoryLimit
            | Self::OutputLimit
            | Self::Contract
            | Self::PluginError(PluginFault::Misconfigured | PluginFault::Internal) => true,
            Self::PluginError(PluginFault::Malformed | PluginFault::Unsupported | PluginFault::Unavailable)
            | Self::HostBusy
            | Self::Host => false,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PluginError(fault) => write!(f, "plugin-error {}", fault.as_str()),
            other => f.write_str(other.as_str()),
        }
    }
}

/// The errors a plugin reports of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PluginFault {
    /// The request is not what this sender sends: the sender's fault.
    Malformed,
    /// The route's config or secrets are wrong.
    Misconfigured,
    /// A request of a kind this plugin does not know.
    Unsupported,
    /// Something it needs is not there yet: the sender should retry.
    Unavailable,
    /// Its own fault.
    Internal,
}

impl PluginFault {
    /// The word of the interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Misconfigured => "misconfigured",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// Which part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Making the instance, its start function included.
    Instantiate,
    /// Asking what it is, once a load.
    Describe,
    /// Checking a route's config.
    Examine,
    /// Checking the sender.
    Verify,
    /// Reading the events.
    Extract,
}

impl Stage {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instantiate => "instantiate",
            Self::Describe => "describe",
            Self::Examine => "examine-config",
            Self::Verify => "verify",
            Self::Extract => "extract",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A guest's text as a log may show it: control characters escaped, so that no line or terminal code can be forged; cut at
/// `max` bytes.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(max));
    for character in text.chars() {
        let before = safe.len();
        // Beside the control characters proper, those that reorder or hide what a reader sees.
        if character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
        if safe.len() > max {
            safe.truncate(before);
            safe.push('…');
            break;
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::printable;

    /// A guest's words cannot forge a log line or drive a terminal.
    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\r\nb\u{1b}[2J\u{202e}\0", 100), r"a\r\nb\u{1b}[2J\u{202e}\u{0}");
        assert_eq!(printable("Zahlung über 5 €", 100), "Zahlung über 5 €");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(printable("ééé", 5), "éé…");
        assert_eq!(printable("a\n", 2), "a…");
    }
}
