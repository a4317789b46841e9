//! Who may see what, and how the API answers.

use serde_json::{Value, json};

use super::rig::{OPS, OTHER, Rig, T, place};
use crate::journey::rig::{event, is_problem};
use crate::support::client::{exchange, get, request, send};

/// Every token on every path: a tenant's own is answered, another's is not there, and without a token nothing is.
#[tokio::test]
async fn the_authorisation_matrix() {
    let rig = Rig::start("").await;
    assert_eq!(rig.pay(&event("a", 1)).await.status, 200);
    // What the token of tenant t, of tenant other, and of the operator gets.
    let rows = [
        ("GET", "/v1/routes".to_owned(), [200, 200, 200]),
        ("GET", "/v1/openapi.json".to_owned(), [200, 200, 200]),
        ("GET", "/v1/tenants/t/events".to_owned(), [200, 404, 200]),
        ("GET", "/v1/tenants/other/events".to_owned(), [404, 200, 200]),
        ("GET", "/v1/tenants/nobody/events".to_owned(), [404, 404, 404]),
        ("GET", "/v1/tenants/t/events?route=pay".to_owned(), [200, 404, 200]),
        ("GET", "/v1/tenants/t/events?route=nothing".to_owned(), [404, 404, 404]),
        ("GET", "/v1/tenants/t/events?limit=x".to_owned(), [400, 404, 400]),
        ("GET", place("a"), [200, 404, 200]),
        ("GET", "/v1/tenants/%74/events/pay/a".to_owned(), [200, 404, 200]),
        ("GET", place("absent"), [404, 404, 404]),
        ("POST", place("a") + "/release", [409, 404, 409]),
        ("POST", place("a") + "/succeed", [409, 404, 409]),
        ("POST", place("a") + "/redeliver", [409, 404, 409]),
        ("POST", place("absent") + "/release", [404, 404, 404]),
        ("POST", place("absent") + "/succeed", [404, 404, 404]),
        ("POST", place("absent") + "/redeliver", [404, 404, 404]),
        ("GET", place("a") + "/release", [405, 404, 405]),
        ("DELETE", place("a"), [405, 404, 405]),
        ("POST", place("a") + "/destroy", [404, 404, 404]),
        ("DELETE", "/v1/tenants/t/routes/pay/captures".to_owned(), [200, 404, 200]),
        ("DELETE", "/v1/tenants/t/routes/nothing/captures".to_owned(), [404, 404, 404]),
        ("GET", "/v1/tenants/t/routes/pay/captures".to_owned(), [405, 404, 405]),
        ("GET", "/v1/nothing".to_owned(), [404, 404, 404]),
    ];
    for (method, path, expected) in rows {
        for (token, expected) in [T, OTHER, OPS].into_iter().zip(expected) {
            let answer = rig.ask(method, &path, token, "").await;
            assert_eq!(answer.status, expected, "{method} {path} as {token}: {answer:?}");
            if expected >= 400 {
                is_problem(&answer, expected, &answer.code());
            }
        }
        for none in ["", "wrong", "operator-toke", "operator-token2"] {
            let answer = rig.ask(method, &path, none, "").await;
            is_problem(&answer, 401, "unauthorized");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{answer:?}");
        }
        is_problem(&send(rig.gateway.admin, method, &path, &[], b"").await, 401, "unauthorized");
    }
    // What is foreign cannot be told from what is not there.
    let foreign = rig.ask("GET", &place("a"), OTHER, "").await;
    let absent = rig.ask("GET", "/v1/tenants/nobody/events/pay/a", OTHER, "").await;
    assert_eq!(foreign.body, absent.body);
    assert!(!rig.gateway.log().contains(OPS), "a token in the log");
}

#[tokio::test]
async fn health_and_metrics_need_no_token_and_the_rest_is_not_there() {
    let rig = Rig::start("").await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(rig.gateway.admin, path).await.status, 200, "{path}");
    }
    is_problem(&get(rig.gateway.admin, "/").await, 404, "not-found");
    // Never on the ingest port.
    for path in ["/healthz", "/metrics", "/v1/routes"] {
        is_problem(&get(rig.gateway.ingest, path).await, 404, "no-route");
    }
}

#[tokio::test]
async fn routes_are_those_of_the_token() {
    let rig = Rig::start("").await;
    let names = |answer: Value| -> Vec<String> {
        let routes = answer["routes"].as_array().unwrap().iter();
        routes
            .map(|route| format!("{}/{}", route["tenant"].as_str().unwrap(), route["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(names(rig.see("/v1/routes").await.json()), ["t/pay", "t/items", "other/other"]);
    assert_eq!(names(rig.ask("GET", "/v1/routes", T, "").await.json()), ["t/pay", "t/items"]);
}

#[tokio::test]
async fn a_list_is_filtered_and_bounded() {
    let rig = Rig::start("").await;
    for id in ["a", "b", "c"] {
        assert_eq!(rig.pay(&event(id, 1)).await.status, 200);
    }
    let list = async |query: &str| rig.see(&format!("/v1/tenants/t/events{query}")).await.json();
    let keys = |list: &Value| -> Vec<String> {
        list["events"].as_array().unwrap().iter().map(|event| event["key"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("").await;
    assert_eq!(keys(&all), ["c", "b", "a"], "newest first: {all}");
    assert_eq!(all["more"], false);
    assert_eq!(all["events"][0]["idempotency_key"], "t:pay:c");
    assert_eq!(all["events"][0]["state"], "succeeded");
    assert_eq!(all["events"][0]["upstream_status"], 200);
    let two = list("?limit=2").await;
    assert_eq!((keys(&two), &two["more"]), (vec!["c".to_owned(), "b".to_owned()], &json!(true)));
    assert_eq!(keys(&list("?state=succeeded&route=pay&since=1h").await).len(), 3);
    assert_eq!(keys(&list("?state=unknown").await).len(), 0);
    assert_eq!(keys(&list("?route=items").await).len(), 0);
    assert_eq!(keys(&list("?since=2999-01-01T00:00:00Z").await).len(), 0);
    for (query, name) in [("?state=x", "state"), ("?since=x", "since"), ("?limit=0", "limit"), ("?x=1", "query")] {
        let answer = rig.see(&format!("/v1/tenants/t/events{query}")).await;
        is_problem(&answer, 400, "bad-parameter");
        assert!(answer.json()["detail"].as_str().unwrap().contains(&format!("`{name}`")), "{answer:?}");
    }
}

/// Keys with separators, escapes, blanks and dots are found by what stands in `Idempotency-Key`, percent-encoded.
#[tokio::test]
async fn any_key_can_be_named() {
    let rig = Rig::start("").await;
    for (id, item) in [("a/b", "c"), ("x|y", "\\z"), (".", ".."), ("é", "1"), ("a b", "c"), ("%2F", "?#")] {
        let body = json!({ "id": id, "item": item, "amount": 1 }).to_string();
        let before = rig.upstream.count();
        let first = crate::support::client::post(rig.gateway.ingest, "/items", &[], &body).await;
        assert_eq!(first.status, 200, "{first:?}");
        let sent = rig.upstream.hits()[before].header("idempotency-key").unwrap().to_owned();
        let key = sent.strip_prefix("t:items:").unwrap();
        let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let found = rig.see(&format!("/v1/tenants/t/events/items/{encoded}")).await;
        assert_eq!(found.status, 200, "{key}: {found:?}");
        assert_eq!(found.json()["idempotency_key"], sent);
    }
}

/// Contract §3, on both listeners: a refusal with an unread body can be read.
#[tokio::test]
async fn a_refusal_with_an_unread_body_is_readable() {
    let rig = Rig::start("").await;
    let large = vec![b'x'; 8 << 20];
    let bytes = request(rig.gateway.admin, "POST", &(place("a") + "/succeed"), &[], &large);
    let answer = exchange(rig.gateway.admin, &bytes).await.unwrap();
    is_problem(&answer, 401, "unauthorized");
    let bearer = format!("Bearer {OPS}");
    let fields = [("authorization", bearer.as_str())];
    let bytes = request(rig.gateway.admin, "POST", &(place("a") + "/succeed"), &fields, &large);
    is_problem(&exchange(rig.gateway.admin, &bytes).await.unwrap(), 413, "body-too-large");
}

/// The document names every path that is served, with its method.
#[tokio::test]
async fn the_openapi_document_is_whole() {
    let rig = Rig::start("").await;
    let document = rig.see("/v1/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{document}");
    let paths = document["paths"].as_object().unwrap();
    let event = "/v1/tenants/{tenant}/events/{scope}/{key}";
    let mut expected =
        vec![("/healthz".to_owned(), "get"), ("/readyz".to_owned(), "get"), ("/v1/routes".to_owned(), "get")];
    expected.push(("/metrics".to_owned(), "get"));
    expected.push(("/v1/openapi.json".to_owned(), "get"));
    expected.push(("/v1/tenants/{tenant}/events".to_owned(), "get"));
    expected.push((event.to_owned(), "get"));
    expected.push(("/v1/tenants/{tenant}/routes/{route}/captures".to_owned(), "delete"));
    expected.extend(["release", "succeed", "redeliver"].map(|verb| (format!("{event}/{verb}"), "post")));
    let plugins = "/v1/tenants/{tenant}/plugins";
    expected.push((plugins.to_owned(), "get"));
    expected.push((format!("{plugins}/{{plugin}}"), "get"));
    let verbs = ["versions", "activate", "rollback", "test"];
    expected.extend(verbs.map(|verb| (format!("{plugins}/{{plugin}}/{verb}"), "post")));
    for (path, method) in &expected {
        assert!(paths.get(path).is_some_and(|path| path.get(method).is_some()), "{method} {path}: {document}");
    }
    assert_eq!(paths.len(), expected.len());
    assert!(document["components"]["schemas"]["Explanation"].is_object(), "{document}");
}
