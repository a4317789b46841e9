//! The classic webhook: a form with an object's id.

use onceward_plugin::{Request, form, header};

pub(crate) const CONTENT_TYPE: &str = "content-type";

/// Whether the request is a form with one readable id.
pub(crate) fn is_ping(request: &Request) -> bool {
    let Ok(Some(kind)) = header::one(&request.headers, CONTENT_TYPE) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        && matches!(form::find(&request.body, ["id"]), Ok([Some(id)]) if !id.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use onceward_plugin::Header;

    use super::*;

    #[test]
    fn a_ping_is_a_form_with_an_id() {
        let form = "application/x-www-form-urlencoded";
        for (kind, body, expected) in [
            (form, "id=tr_1", true),
            ("Application/X-WWW-Form-Urlencoded; charset=utf-8", "a=b&id=tr_1", true),
            (form, "id=", false),
            (form, "id=a&id=b", false),
            (form, r#"{"id":"event_1"}"#, false),
            ("application/json", "id=tr_1", false),
        ] {
            let request = Request {
                method: "POST".to_owned(),
                scheme: "https".to_owned(),
                authority: "hooks.example".to_owned(),
                path: "/".to_owned(),
                query: None,
                params: Vec::new(),
                headers: vec![Header { name: CONTENT_TYPE.to_owned(), value: kind.as_bytes().to_vec() }],
                body: body.as_bytes().to_vec(),
                received_at_ms: 0,
                client_certificate: None,
            };
            assert_eq!(is_ping(&request), expected, "{kind} {body}");
        }
    }
}
