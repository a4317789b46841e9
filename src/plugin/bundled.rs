//! The plugins that come inside the binary. Their sources are in `plugins/`; `scripts/build-plugins` makes the components.

/// The names of the bundled plugins.
pub const NAMES: &[&str] = &[
    "cloudevents",
    "flutterwave",
    "github",
    "json",
    "paypal",
    "paystack",
    "shopify",
    "slack",
    "standard-webhooks",
    "stripe",
    "svix",
    "twilio",
];

/// The component of a bundled plugin.
pub fn bundled(name: &str) -> Option<&'static [u8]> {
    match name {
        "cloudevents" => Some(include_bytes!("../../plugins/dist/cloudevents.wasm")),
        "flutterwave" => Some(include_bytes!("../../plugins/dist/flutterwave.wasm")),
        "github" => Some(include_bytes!("../../plugins/dist/github.wasm")),
        "json" => Some(include_bytes!("../../plugins/dist/json.wasm")),
        "paypal" => Some(include_bytes!("../../plugins/dist/paypal.wasm")),
        "paystack" => Some(include_bytes!("../../plugins/dist/paystack.wasm")),
        "shopify" => Some(include_bytes!("../../plugins/dist/shopify.wasm")),
        "slack" => Some(include_bytes!("../../plugins/dist/slack.wasm")),
        "standard-webhooks" => Some(include_bytes!("../../plugins/dist/standard-webhooks.wasm")),
        "stripe" => Some(include_bytes!("../../plugins/dist/stripe.wasm")),
        "svix" => Some(include_bytes!("../../plugins/dist/svix.wasm")),
        "twilio" => Some(include_bytes!("../../plugins/dist/twilio.wasm")),
        _ => None,
    }
}
