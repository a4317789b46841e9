//! A strict reading of a request's bytes: the one plain way to write it, and nothing else.

use crate::support::upstream::Hit;

/// What of a request is not the one plain way; nothing for a good one.
pub fn faults(hit: &Hit) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |what: &str| faults.push(what.to_owned());
    let Some(head) = hit.head.strip_suffix(b"\r\n\r\n") else { return vec!["the head has no end".to_owned()] };
    let mut lines = head.split(|&byte| byte == b'\n').enumerate().peekable();
    let mut fields: Vec<(String, String)> = Vec::new();
    while let Some((at, line)) = lines.next() {
        // The last line's end was taken off with the empty line.
        let line = if lines.peek().is_some() { line.strip_suffix(b"\r") } else { Some(line) };
        let Some(line) = line else {
            fault("a line ends without CR");
            continue;
        };
        let plain = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        if !line.iter().all(plain) {
            fault("a control character");
        }
        let text = String::from_utf8_lossy(line);
        if at == 0 {
            let words: Vec<&str> = text.split(' ').collect();
            if !matches!(words.as_slice(), ["POST", target, "HTTP/1.1"] if target.starts_with('/')) {
                fault("the request line");
            }
        } else if let Some((name, value)) = text.split_once(':').filter(|(name, _)| is_token(name)) {
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
        } else {
            fault("a line that is no field");
        }
    }
    let of = |name: &str| fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect();
    let (hosts, lengths, codings): (Vec<&str>, Vec<&str>, Vec<&str>) =
        (of("host"), of("content-length"), of("transfer-encoding"));
    if hosts.len() != 1 {
        fault("not one Host");
    }
    if !codings.is_empty() || lengths != [hit.body.len().to_string()] {
        fault("not one plain length");
    }
    if hit.surplus > 0 {
        fault("bytes behind the body");
    }
    faults
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[test]
fn only_the_plain_way_passes() {
    let read = |head: &str, surplus: usize| {
        faults(&Hit { head: head.as_bytes().to_vec(), body: b"abc".to_vec(), surplus, ..Hit::default() })
    };
    assert_eq!(read("POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n", 0), Vec::<String>::new());
    for (head, surplus) in [
        ("POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n", 1),
        ("POST /a HTTP/1.1\nHost: b\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST  /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: +3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\nHost: c\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost : b\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\n x: y\r\nContent-Length: 3\r\n\r\n", 0),
        ("POST /a HTTP/1.1\r\nHost: b\r\nX: y\rz\r\nContent-Length: 3\r\n\r\n", 0),
    ] {
        assert_ne!(read(head, surplus), Vec::<String>::new(), "{head:?}");
    }
}
