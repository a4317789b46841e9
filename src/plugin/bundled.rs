//! The plugins that come inside the binary. Their sources are in `plugins/`; `scripts/build-plugins` makes the components.

/// The names of the bundled plugins.
pub const NAMES: &[&str] = &[
    "adyen",
    "braintree",
    "checkout-com",
    "cloudevents",
    "flutterwave",
    "github",
    "gocardless",
    "json",
    "midtrans",
    "mollie",
    "paypal",
    "paystack",
    "razorpay",
    "shopify",
    "slack",
    "square",
    "standard-webhooks",
    "stripe",
    "svix",
    "twilio",
    "xendit",
];

/// The component of a bundled plugin.
pub fn bundled(name: &str) -> Option<&'static [u8]> {
    match name {
        "adyen" => Some(include_bytes!("../../plugins/dist/adyen.wasm")),
        "braintree" => Some(include_bytes!("../../plugins/dist/braintree.wasm")),
        "checkout-com" => Some(include_bytes!("../../plugins/dist/checkout-com.wasm")),
        "cloudevents" => Some(include_bytes!("../../plugins/dist/cloudevents.wasm")),
        "flutterwave" => Some(include_bytes!("../../plugins/dist/flutterwave.wasm")),
        "github" => Some(include_bytes!("../../plugins/dist/github.wasm")),
        "gocardless" => Some(include_bytes!("../../plugins/dist/gocardless.wasm")),
        "json" => Some(include_bytes!("../../plugins/dist/json.wasm")),
        "midtrans" => Some(include_bytes!("../../plugins/dist/midtrans.wasm")),
        "mollie" => Some(include_bytes!("../../plugins/dist/mollie.wasm")),
        "paypal" => Some(include_bytes!("../../plugins/dist/paypal.wasm")),
        "paystack" => Some(include_bytes!("../../plugins/dist/paystack.wasm")),
        "razorpay" => Some(include_bytes!("../../plugins/dist/razorpay.wasm")),
        "shopify" => Some(include_bytes!("../../plugins/dist/shopify.wasm")),
        "slack" => Some(include_bytes!("../../plugins/dist/slack.wasm")),
        "square" => Some(include_bytes!("../../plugins/dist/square.wasm")),
        "standard-webhooks" => Some(include_bytes!("../../plugins/dist/standard-webhooks.wasm")),
        "stripe" => Some(include_bytes!("../../plugins/dist/stripe.wasm")),
        "svix" => Some(include_bytes!("../../plugins/dist/svix.wasm")),
        "twilio" => Some(include_bytes!("../../plugins/dist/twilio.wasm")),
        "xendit" => Some(include_bytes!("../../plugins/dist/xendit.wasm")),
        _ => None,
    }
}
