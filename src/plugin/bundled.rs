//! The plugins that come inside the binary. Their sources are in `plugins/`; `scripts/build-plugins` makes the components.

/// The names of the bundled plugins.
pub const NAMES: &[&str] = &[
    "adyen",
    "braintree",
    "checkout-com",
    "gocardless",
    "json",
    "midtrans",
    "mollie",
    "razorpay",
    "square",
    "standard-webhooks",
    "stripe",
    "xendit",
];

/// The component of a bundled plugin.
pub fn bundled(name: &str) -> Option<&'static [u8]> {
    match name {
        "adyen" => Some(include_bytes!("../../plugins/dist/adyen.wasm")),
        "braintree" => Some(include_bytes!("../../plugins/dist/braintree.wasm")),
        "checkout-com" => Some(include_bytes!("../../plugins/dist/checkout-com.wasm")),
        "gocardless" => Some(include_bytes!("../../plugins/dist/gocardless.wasm")),
        "json" => Some(include_bytes!("../../plugins/dist/json.wasm")),
        "midtrans" => Some(include_bytes!("../../plugins/dist/midtrans.wasm")),
        "mollie" => Some(include_bytes!("../../plugins/dist/mollie.wasm")),
        "razorpay" => Some(include_bytes!("../../plugins/dist/razorpay.wasm")),
        "square" => Some(include_bytes!("../../plugins/dist/square.wasm")),
        "standard-webhooks" => Some(include_bytes!("../../plugins/dist/standard-webhooks.wasm")),
        "stripe" => Some(include_bytes!("../../plugins/dist/stripe.wasm")),
        "xendit" => Some(include_bytes!("../../plugins/dist/xendit.wasm")),
        _ => None,
    }
}
