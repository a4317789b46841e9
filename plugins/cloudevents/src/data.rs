//! An event's data as bytes that are equal when the values are: members in any order, numbers in any spelling.

use onceward_plugin::json::{self, Malformed, Node};

/// Deeper values count as they are written: what is compared by value must not need a deep stack.
const DEPTH_MAX: usize = 16;

/// Bytes that stand for a value.
pub(crate) fn canonical(node: &Node<'_>) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Vec::new();
    write(node, 0, &mut bytes)?;
    Ok(bytes)
}

/// Every value starts with its kind and its length, so that no two of them can be read as others.
fn write(node: &Node<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
    match node {
        Node::Text(text) => put(out, b's', text),
        Node::Number(token) => match json::canonical(token) {
            Some(number) => put(out, b'n', &number),
            None => put(out, b'w', token),
        },
        Node::Bool(true) => out.push(b't'),
        Node::Bool(false) => out.push(b'f'),
        Node::Null => out.push(b'0'),
        Node::Object(written) | Node::Array(written) if depth == DEPTH_MAX => put(out, b'w', written),
        Node::Array(written) => {
            let items = json::items(written)?;
            put(out, b'a', &items.len().to_string());
            for item in items {
                let [value] = json::find(item.as_bytes(), [""])?;
                write(value.as_ref().unwrap_or(&Node::Null), depth + 1, out)?;
            }
        }
        Node::Object(written) => {
            let mut members = json::members(written)?;
            // Members of one name stay in their order: which of them counts is the reader's guess.
            members.sort_by(|one, two| one.0.cmp(&two.0));
            put(out, b'o', &members.len().to_string());
            for (name, value) in &members {
                put(out, b's', name);
                write(value, depth + 1, out)?;
            }
        }
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<u8> {
        let [node] = json::find(text.as_bytes(), [""]).unwrap();
        canonical(&node.unwrap()).unwrap()
    }

    #[test]
    fn equal_values_are_equal_bytes() {
        assert_eq!(of(r#"{"a":1.0,"b":["\u00e9",null]}"#), of(r#"{ "b" : ["é",null], "a":1e0 }"#));
        for (one, two) in [
            (r#"["ab","c"]"#, r#"["a","bc"]"#),
            (r#"[[1],2]"#, r#"[[1,2]]"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":null}"#, "{}"),
            ("9007199254740993", "9007199254740992"),
        ] {
            assert_ne!(of(one), of(two), "{one} {two}");
        }
    }

    #[test]
    fn deep_values_are_read_to_a_depth() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(100), "]".repeat(100));
        assert_ne!(of(&nested("1")), of(&nested("2")));
        assert_ne!(of(&nested("1")), of(&nested("1.0")));
    }
}
