//! Standard Webhooks, as the specification's plugin and Svix's share it: the messages differ in their headers' names alone.

mod event;
mod message;

pub use message::Family;

use crate::config::{Item, Noted, Table};
use crate::json::is_pointer;
use crate::limits::{MATERIAL_MAX, NAME_BYTES_MAX};
use crate::{Disposition, Needs, PluginError, Request, Tolerance, Verdict};

/// What a route configures.
pub struct Config {
    secret: String,
    tolerance: Tolerance,
    material: Vec<String>,
}

impl Config {
    /// Reads `secret`, `tolerance` and `material`.
    ///
    /// # Errors
    /// When one of them is not as it should be.
    pub fn read(table: &Table<'_>) -> Result<Self, Noted> {
        let secret = table.text("secret");
        let tolerance = table.tolerance("5m");
        let material = table.optional("material", |item| pointers(&item));
        Ok(Self { secret: secret?, tolerance: tolerance?, material: material?.unwrap_or_default() })
    }

    /// The headers of both families, and the secret.
    pub fn needs(&self) -> Needs {
        Needs { headers: message::headers(), ..Needs::of([], &self.secret) }
    }

    /// Judges a message whose headers are of the first of `families` that is there.
    ///
    /// # Errors
    /// [`PluginError`] when the route grants no usable secret.
    pub fn verify(&self, request: &Request, families: &[Family]) -> Result<Verdict, PluginError> {
        message::verify(request, families, &self.secret, self.tolerance)
    }

    /// The event of a message that was verified.
    ///
    /// # Errors
    /// [`PluginError::Malformed`] for a body without the material that the route names.
    pub fn extract(&self, request: &Request, families: &[Family]) -> Result<Disposition, PluginError> {
        let id = message::id(request, families)?;
        event::read(id, &request.body, &self.material).map(|event| Disposition::Process(vec![event]))
    }
}

fn pointers(item: &Item<'_>) -> Result<Vec<String>, Noted> {
    let pointers = item.list(0, MATERIAL_MAX, |item| {
        let text = item.text()?;
        let right = is_pointer(text) && text.len() <= NAME_BYTES_MAX;
        right
            .then(|| text.to_owned())
            .ok_or_else(|| item.fault("must be a JSON pointer as in \"/data/id\", at most 256 bytes"))
    })?;
    let again =
        pointers.iter().enumerate().find(|(place, pointer)| pointers.iter().take(*place).any(|one| one == *pointer));
    match again {
        Some((_, pointer)) => Err(item.fault(format!("names {pointer} twice"))),
        None => Ok(pointers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read;

    #[test]
    fn every_fault_of_the_config_is_reported() {
        let faults = read(r#"{"tolerance_s":0,"material":["data"],"x":1}"#, Config::read).err();
        let places: Vec<_> = faults.unwrap().into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/tolerance_s", "/material/0", "/x"]);
        assert!(read(r#"{"secret":"a","material":["/a","/a"]}"#, Config::read).is_err());
        assert!(read(r#"{"secret":"a","tolerance_s":300}"#, Config::read).is_ok());
    }
}
