//! As much XML as a notification is made of: elements, attributes that nobody reads, text. A document type is refused, and with it
//! every entity but the five that need none.

/// An element with no element inside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The names from the root to it, with `/` between.
    pub(crate) path: String,
    /// What it says.
    pub(crate) text: String,
}

/// The deepest nesting that is read.
const DEPTH_MAX: usize = 32;

/// The leaves of a document, in their order.
pub(crate) fn leaves(document: &str) -> Result<Vec<Leaf>, &'static str> {
    let mut reader =
        Reader { leaves: Vec::new(), open: Vec::new(), text: String::new(), is_leaf: false, has_root: false };
    let mut rest = document;
    while let Some((text, markup)) = rest.split_once('<') {
        reader.text(text)?;
        rest = reader.markup(markup)?;
    }
    reader.text(rest)?;
    match (reader.open.is_empty(), reader.has_root) {
        (true, true) => Ok(reader.leaves),
        (false, _) => Err("an element has no end"),
        (true, false) => Err("there is no element"),
    }
}

struct Reader<'a> {
    leaves: Vec<Leaf>,
    /// The names of the elements that are open.
    open: Vec<&'a str>,
    /// The text of the innermost one.
    text: String,
    /// Whether no element has come inside it.
    is_leaf: bool,
    has_root: bool,
}

impl<'a> Reader<'a> {
    fn text(&mut self, text: &str) -> Result<(), &'static str> {
        if self.open.is_empty() && !text.trim().is_empty() {
            return Err("text outside of the root element");
        }
        unescape(text, &mut self.text)
    }

    /// Reads what follows a `<`, and gives what comes after it.
    fn markup(&mut self, markup: &'a str) -> Result<&'a str, &'static str> {
        if let Some(comment) = markup.strip_prefix("!--") {
            return after(comment, "-->").map(|(_, rest)| rest);
        }
        if let Some(section) = markup.strip_prefix("![CDATA[") {
            let (text, rest) = after(section, "]]>")?;
            self.text.push_str(text);
            return Ok(rest);
        }
        if markup.starts_with('!') {
            return Err("a document type");
        }
        if markup.starts_with('?') {
            return after(markup, "?>").map(|(_, rest)| rest);
        }
        if let Some(end) = markup.strip_prefix('/') {
            let (name, rest) = after(end, ">")?;
            self.close(name.trim_end())?;
            return Ok(rest);
        }
        let (tag, rest) = start_tag(markup)?;
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split(char::is_whitespace).next().unwrap_or_default();
        self.begin(name)?;
        if is_empty {
            self.close(name)?;
        }
        Ok(rest)
    }

    fn begin(&mut self, name: &'a str) -> Result<(), &'static str> {
        if name.is_empty() || name.contains(['/', '=', '"', '\'']) {
            return Err("a tag has no name");
        }
        if self.open.is_empty() && self.has_root {
            return Err("two root elements");
        }
        if self.open.len() == DEPTH_MAX {
            return Err("more than 32 levels");
        }
        self.open.push(name);
        self.has_root = true;
        self.is_leaf = true;
        self.text.clear();
        Ok(())
    }

    fn close(&mut self, name: &str) -> Result<(), &'static str> {
        if self.open.last() != Some(&name) {
            return Err("an end tag that nothing began");
        }
        if self.is_leaf {
            self.leaves.push(Leaf { path: self.open.join("/"), text: std::mem::take(&mut self.text) });
        }
        self.open.pop();
        self.is_leaf = false;
        self.text.clear();
        Ok(())
    }
}

fn after<'a>(text: &'a str, end: &str) -> Result<(&'a str, &'a str), &'static str> {
    text.split_once(end).ok_or("markup has no end")
}

/// A start tag up to its `>`, which may also stand in an attribute's quotes.
fn start_tag(markup: &str) -> Result<(&str, &str), &'static str> {
    let mut quote = None;
    for (at, byte) in markup.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => {
                let (tag, rest) = markup.split_at_checked(at).ok_or("markup has no end")?;
                return Ok((tag, rest.strip_prefix('>').unwrap_or(rest)));
            }
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'<') => return Err("a tag inside a tag"),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    Err("markup has no end")
}

fn unescape(text: &str, into: &mut String) -> Result<(), &'static str> {
    let mut rest = text;
    while let Some((plain, reference)) = rest.split_once('&') {
        into.push_str(plain);
        let (name, after) = reference.split_once(';').ok_or("a reference has no end")?;
        into.push(character(name).ok_or("a reference to no known character")?);
        rest = after;
    }
    into.push_str(rest);
    Ok(())
}

fn character(name: &str) -> Option<char> {
    let code = match name {
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "amp" => return Some('&'),
        "quot" => return Some('"'),
        "apos" => return Some('\''),
        _ => name.strip_prefix('#')?,
    };
    let code = match code.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => code.parse(),
    };
    code.ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(document: &str) -> Vec<(String, String)> {
        leaves(document).unwrap().into_iter().map(|leaf| (leaf.path, leaf.text)).collect()
    }

    #[test]
    fn leaves_have_paths_and_texts() {
        let document =
            "<?xml version=\"1.0\"?>\n<!-- <x> -->\n<a>\n <b c='>' d=\"'\">1 &lt;&#38;&#x3e; <![CDATA[<&>]]></b>
            <e/><f g=\"true\" /><h><i>2</i> </h >\n</a>\n";
        let expected = [("a/b", "1 <&> <&>"), ("a/e", ""), ("a/f", ""), ("a/h/i", "2")];
        assert_eq!(pairs(document), expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for wrong in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a></a><b></b>",
            "<a></a>x",
            "<!DOCTYPE a><a></a>",
            "<a>&unknown;</a>",
            "<a>&amp</a>",
            "<a>&#x110000;</a>",
            "<a b=\"></a>",
            "<a <b></b></a>",
            "< a></a>",
            "<!-- <a></a>",
            "<a><![CDATA[</a>",
        ] {
            assert!(leaves(wrong).is_err(), "{wrong}");
        }
        assert!(leaves(&"<a>".repeat(1000)).is_err());
    }
}
