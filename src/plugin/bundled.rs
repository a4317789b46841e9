//! The plugins that come inside the binary. Their sources are in `plugins/`; `scripts/build-plugins` makes the components.

/// The names of the bundled plugins.
pub const NAMES: &[&str] = &["json", "standard-webhooks", "stripe"];

/// The component of a bundled plugin.
pub fn bundled(name: &str) -> Option<&'static [u8]> {
    match name {
        "json" => Some(include_bytes!("../../plugins/dist/json.wasm")),
        "standard-webhooks" => Some(include_bytes!("../../plugins/dist/standard-webhooks.wasm")),
        "stripe" => Some(include_bytes!("../../plugins/dist/stripe.wasm")),
        _ => None,
    }
}
