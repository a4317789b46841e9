//! What a plugin wants of a document, asked for by pointer.

use super::{Malformed, Node, Pointers, find_all};
use crate::{Field, PluginError};

/// The values at a list of pointers.
pub struct Fields<'a, 'p> {
    pointers: Vec<&'p str>,
    nodes: Vec<Option<Node<'a>>>,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// Reads what is at `pointers` in one pass.
    ///
    /// # Errors
    /// As [`find_all`].
    pub fn read(document: &'a [u8], pointers: Vec<&'p str>) -> Result<Self, Malformed> {
        let nodes = find_all(document, &Pointers::new(&pointers))?;
        Ok(Self { pointers, nodes })
    }

    /// What is at `pointer`, which was asked for.
    pub fn node(&self, pointer: &str) -> Option<&Node<'a>> {
        let place = self.pointers.iter().position(|known| *known == pointer)?;
        self.nodes.get(place)?.as_ref()
    }

    /// A text there that is not blank.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.node(pointer)?.text().filter(|text| !text.trim().is_empty())
    }

    /// A text there that an event cannot be without.
    ///
    /// # Errors
    /// [`PluginError::Malformed`] when it is absent, blank or no text.
    pub fn required(&self, pointer: &str) -> Result<&str, PluginError> {
        self.text(pointer).ok_or_else(|| PluginError::Malformed(format!("there is no text at {pointer}")))
    }

    /// Those of `pointers` that a value is at, as material named by its pointer. An object or array in a value's place counts as
    /// absent: refusing it would lose events of kinds yet to come.
    pub fn material(&self, pointers: &[&str]) -> Vec<Field> {
        let value = |pointer: &str| Some(Field::new(pointer, self.node(pointer)?.scalar()?));
        pointers.iter().filter_map(|pointer| value(pointer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn what_is_there_is_given_and_nothing_else() {
        let body = br#"{"id":"a","blank":" ","n":1.50,"o":{},"null":null}"#;
        let fields = Fields::read(body, vec!["/id", "/blank", "/n", "/o", "/null", "/gone"]).unwrap();
        assert_eq!(fields.required("/id"), Ok("a"));
        assert_eq!(["/blank", "/n", "/gone", "/never"].map(|pointer| fields.text(pointer)), [None; 4]);
        assert!(matches!(fields.required("/blank"), Err(PluginError::Malformed(_))));
        assert_eq!(
            fields.material(&["/n", "/o", "/null", "/gone"]),
            [Field::new("/n", Value::Number("1.50".to_owned())), Field::new("/null", Value::Null)]
        );
    }
}
