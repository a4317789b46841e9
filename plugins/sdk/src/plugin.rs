//! The trait a plugin implements, and the glue between it and the component's exports.

use crate::config::{Noted, Table};
use crate::{Disposition, Needs, PluginError, Request, Verdict};

/// A plugin: what it is called, what it reads from its config, how it verifies a request and what it finds in it.
///
/// The gateway makes a fresh instance for a request, or one that no longer remembers the last one: keep no state in statics.
pub trait Plugin: 'static {
    /// The route's `plugin_config`, read and checked.
    type Config: 'static;

    /// The plugin's name, for people.
    const NAME: &'static str;
    /// Its version, for people and for records.
    const VERSION: &'static str;
    /// Names the meaning of the keys. Change it only when old keys must not match new ones: a change makes every event new.
    const KEY_NAMESPACE: &'static str = "";
    /// JSON Schema of the config.
    const CONFIG_SCHEMA: Option<&'static str> = None;

    /// Reads the config.
    ///
    /// # Errors
    /// [`Noted`], which the table's readers hand out for each fault that they have written down. Call all readers first and
    /// use `?` afterwards, so that every fault is reported at once.
    fn configure(table: &Table<'_>) -> Result<Self::Config, Noted>;

    /// What this plugin needs from the gateway under this config: only the headers named here reach [`Self::verify`].
    fn needs(config: &Self::Config) -> Needs;

    /// Says whether the sender is genuine.
    ///
    /// # Errors
    /// [`PluginError`] for what is no verdict on the sender: a missing secret, a certificate that is not there yet.
    fn verify(request: &Request, config: &Self::Config) -> Result<Verdict, PluginError>;

    /// Names the events in a request that [`Self::verify`] called verified, or unsigned where the route allows it.
    ///
    /// # Errors
    /// [`PluginError::Malformed`] for a body that cannot be read, which the sender gets as a 400.
    fn extract(request: &Request, config: &Self::Config) -> Result<Disposition, PluginError>;
}

/// Makes a [`Plugin`] the component's exports.
///
/// Does nothing on other targets than Wasm, so that a plugin's unit tests run on the machine that builds it.
#[macro_export]
macro_rules! export_plugin {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::onceward::plugin::{extractor, meta, verifier};

            struct Component;

            ::std::thread_local! {
                static SEEN: ::core::cell::RefCell<Option<$crate::glue::Seen<$plugin>>> =
                    const { ::core::cell::RefCell::new(None) };
            }

            impl meta::Guest for Component {
                fn describe() -> meta::Descriptor {
                    $crate::glue::describe::<$plugin>()
                }

                fn examine_config(config: String) -> Result<meta::Needs, Vec<meta::Fault>> {
                    $crate::glue::examine::<$plugin>(&config)
                }
            }

            impl verifier::Guest for Component {
                fn verify(
                    request: verifier::Request,
                    config: String,
                ) -> Result<verifier::Verdict, verifier::PluginError> {
                    // Forgotten first: an instance may be used again, and a refused request must not leave an older one behind.
                    SEEN.take();
                    let (verdict, seen) = $crate::glue::verify::<$plugin>(request, &config)?;
                    SEEN.set(seen);
                    Ok(verdict)
                }
            }

            impl extractor::Guest for Component {
                fn extract() -> Result<extractor::Disposition, extractor::PluginError> {
                    $crate::glue::extract::<$plugin>(SEEN.take())
                }
            }

    $crate::bindings::export_component!(Component with_types_in $crate::bindings);
        };
    };
}
