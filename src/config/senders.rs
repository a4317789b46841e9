//! What the senders of the bundled plugins do: how long they wait, how long they try again, what they count as success, and what
//! becomes of an endpoint that keeps failing. `lint` holds routes against it, and docs/providers.md shows it as a table.
//!
//! Invariant: only what a source says stands here; what is not published is absent, and nothing is concluded from it.

use std::time::Duration;

/// One sender.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The bundled plugin that reads it.
    pub plugin: &'static str,
    /// How long it goes on sending an event that is not taken; zero where it never tries again by itself.
    pub retries_for: Option<Duration>,
    /// How long it waits for an answer. Where a range is published, its lower end.
    pub waits: Option<Duration>,
    /// What it counts as taken.
    pub success: Success,
    /// What it does when an event is refused for good.
    pub lasting: Lasting,
    /// Where this is said. "recalled" marks what was not found in writing.
    pub source: &'static str,
}

/// Which statuses a sender counts as taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// 200 to 299.
    Any2xx,
    /// These alone.
    Only(&'static [u16]),
}

/// What becomes of an endpoint where one event is refused on every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// The event is given up, if anything is; nothing worse is known.
    GivesUp,
    /// More than the one event suffers; the text goes on after the sender's name.
    Harms(&'static str),
    /// This status ends the subscription at once.
    EndsAt(u16),
}

impl Success {
    /// Whether an answer with this status ends the retries.
    pub fn counts(self, status: u16) -> bool {
        match self {
            Self::Any2xx => (200..300).contains(&status),
            Self::Only(statuses) => statuses.contains(&status),
        }
    }
}

/// The sender that a bundled plugin reads, where it is one sender and something is known of it.
pub fn sender(plugin: &str) -> Option<&'static Sender> {
    SENDERS.iter().find(|sender| sender.plugin == plugin)
}

const fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

const fn minutes(count: u64) -> Option<Duration> {
    Some(Duration::from_mins(count))
}

const fn hours(count: u64) -> Option<Duration> {
    Some(Duration::from_hours(count))
}

/// Where nothing is known yet: the rest of a row that says little.
const UNKNOWN: Sender = Sender {
    plugin: "",
    retries_for: None,
    waits: None,
    success: Success::Any2xx,
    lasting: Lasting::GivesUp,
    source: "",
};

/// All of them, by name. `json` reads anybody and has no row.
pub const SENDERS: &[Sender] = &[
    Sender {
        plugin: "adyen",
        retries_for: hours(30 * 24),
        waits: seconds(10),
        lasting: Lasting::Harms("holds back every event behind it"),
        source: "docs.adyen.com/development-resources/webhooks/troubleshoot.json",
        ..UNKNOWN
    },
    Sender { plugin: "braintree", retries_for: hours(24), waits: seconds(30), source: "third parties", ..UNKNOWN },
    Sender {
        plugin: "checkout-com",
        retries_for: hours(30),
        source: "www.checkout.com/docs/developer-resources/event-notifications, retries by third parties",
        ..UNKNOWN
    },
    Sender {
        plugin: "cloudevents",
        success: Success::Only(&[200, 201, 202, 204]),
        source: "the CloudEvents specification's HTTP webhook profile",
        ..UNKNOWN
    },
    Sender {
        plugin: "flutterwave",
        retries_for: minutes(90),
        waits: seconds(60),
        success: Success::Only(&[200]),
        source: "the provider's documentation, a copy",
        ..UNKNOWN
    },
    Sender {
        plugin: "github",
        retries_for: Some(Duration::ZERO),
        waits: seconds(10),
        source: "github/docs, content/webhooks/using-webhooks; no retries: recalled",
        ..UNKNOWN
    },
    Sender { plugin: "gocardless", waits: seconds(10), source: "recalled", ..UNKNOWN },
    Sender {
        plugin: "midtrans",
        retries_for: hours(6),
        source: "docs.midtrans.com/docs/https-notification-webhooks",
        ..UNKNOWN
    },
    Sender {
        plugin: "mollie",
        retries_for: hours(26),
        waits: seconds(15),
        success: Success::Only(&[200]),
        lasting: Lasting::Harms("blocks the webhook after repeated failure"),
        source: "docs.mollie.com/reference/webhooks, by third parties",
    },
    Sender { plugin: "paypal", retries_for: hours(3 * 24), source: "the provider's documentation", ..UNKNOWN },
    Sender {
        plugin: "paystack",
        // Four attempts, 3 minutes apart, come before the 72 hours of hourly ones.
        retries_for: minutes(72 * 60 + 12),
        waits: seconds(30),
        success: Success::Only(&[200]),
        source: "the provider's documentation, copies; the wait is test mode's",
        ..UNKNOWN
    },
    Sender {
        plugin: "razorpay",
        retries_for: hours(24),
        waits: seconds(5),
        lasting: Lasting::Harms("disables the webhook after 24 h of failures"),
        source: "razorpay/markdown-docs, webhooks/best-practices",
        ..UNKNOWN
    },
    Sender {
        plugin: "shopify",
        retries_for: hours(4),
        waits: seconds(5),
        lasting: Lasting::Harms("deletes the subscription after 8 failures in a row"),
        source: "shopify.dev/docs/apps/build/webhooks",
        ..UNKNOWN
    },
    Sender { plugin: "slack", retries_for: minutes(6), waits: seconds(3), source: "third parties", ..UNKNOWN },
    Sender {
        plugin: "square",
        retries_for: hours(24),
        source: "developer.squareup.com/docs/webhooks/troubleshooting",
        ..UNKNOWN
    },
    Sender {
        plugin: "standard-webhooks",
        retries_for: hours(3 * 24),
        waits: seconds(15),
        lasting: Lasting::EndsAt(410),
        source: "the Standard Webhooks specification; each sender chooses, 3 days is the longest known",
        ..UNKNOWN
    },
    Sender {
        plugin: "stripe",
        retries_for: hours(3 * 24),
        source: "docs.stripe.com/webhooks; by hand an event can be sent again for 30 days",
        ..UNKNOWN
    },
    Sender {
        plugin: "svix",
        // 5 s, 5 and 30 min, 2, 5, 10 and 10 h, rounded up.
        retries_for: hours(28),
        waits: seconds(15),
        lasting: Lasting::EndsAt(410),
        source: "the provider's published sources and the Standard Webhooks specification",
        ..UNKNOWN
    },
    Sender { plugin: "twilio", source: "nothing confirmed", ..UNKNOWN },
    Sender {
        plugin: "xendit",
        source: "docs.xendit.co/webhook/delivery-attempts-and-retries: six attempts, the last ones unpublished",
        ..UNKNOWN
    },
];
