//! What is known of each sender, and what `onceward check` makes of it for a route.

use std::fs;

use onceward::config::lint::span;
use onceward::config::senders::{Lasting, SENDERS, Success, sender};
use onceward::config::{Environment, Report};

use super::load_text;

/// Warnings of a route of `plugin`, as `key: text`, below `routes[0]`.
#[track_caller]
fn warnings(plugin: &str, route: &str, upstream: &str) -> Vec<String> {
    let text = format!(
        "[upstreams.app]\nurl = \"http://127.0.0.1:9000\"\n{upstream}\n[tenants.acme]\nsecrets.key = [{{ env = \"KEY\" }}]\n\
         [[routes]]\ntenant = \"acme\"\nname = \"in\"\npath = \"/in\"\nplugin = \"{plugin}\"\nupstream = \"app\"\n{route}\n"
    );
    let loaded = load_text(&text, &[("KEY", "canary")].into_iter().collect::<Environment>());
    let report = Report::of(&loaded);
    assert_eq!(report.faults, [], "{text}");
    let key = |path: &str| path.strip_prefix("routes[0].").unwrap_or(path).to_owned();
    report.warnings.iter().map(|warning| format!("{}: {}", key(&warning.path), warning.text)).collect()
}

/// Nothing to warn of: what a route of the sender would be like that is set up with care.
fn careful(plugin: &str) -> (String, String) {
    let known = sender(plugin).expect("a sender");
    let status = if known.success.counts(202) { 202 } else { 409 };
    let wait = known.waits.map_or(2, |waits| waits.as_secs() - 1);
    let timeout = known.waits.map_or(15, |waits| waits.as_secs());
    (
        format!("idempotency = {{ mismatch = {{ status = {status} }}, in_flight = {{ wait = \"{wait}s\" }} }}"),
        format!("timeout = \"{timeout}s\""),
    )
}

/// At the published number there is no warning, and one second to the wrong side there is one, which names both numbers.
#[test]
fn every_sender_is_held_to_its_own_numbers() {
    for known in SENDERS {
        let plugin = known.plugin;
        let blocked = matches!(known.lasting, Lasting::Harms(_)) && !known.success.counts(202);
        let (route, upstream) = careful(plugin);
        assert_eq!(warnings(plugin, &route, &upstream).len(), usize::from(blocked), "{plugin}");

        if let Some(horizon) = known.retries_for.filter(|horizon| !horizon.is_zero()) {
            let at = route.replace("idempotency = {", "idempotency = { window = \"WINDOW\",");
            let exact = at.replace("WINDOW", &format!("{}s", horizon.as_secs()));
            assert_eq!(warnings(plugin, &exact, &upstream).len(), usize::from(blocked), "{plugin}");
            let short = at.replace("WINDOW", &format!("{}s", horizon.as_secs() - 1));
            let said = warnings(plugin, &short, &upstream);
            let words = format!(
                "idempotency.window: {}s is shorter than the {} for which {plugin}",
                horizon.as_secs() - 1,
                span(horizon)
            );
            assert!(said.iter().any(|line| line.starts_with(&words)), "{plugin}: {said:?}");
        }
        if let Some(waits) = known.waits {
            let (seconds, waits) = (waits.as_secs(), span(waits));
            let long = route.replace(&format!("wait = \"{}s\"", seconds - 1), &format!("wait = \"{seconds}s\""));
            let said = warnings(plugin, &long, &upstream);
            let words = format!("idempotency.in_flight.wait: {plugin} gives up on an answer after {waits}");
            assert!(said.iter().any(|line| line.starts_with(&words)), "{plugin}: {said:?}");
            let said = warnings(plugin, &route, &format!("timeout = \"{}s\"", seconds + 1));
            let words = format!("upstream: {plugin} gives up on an answer after {waits}");
            assert!(said.iter().any(|line| line.starts_with(&words)), "{plugin}: {said:?}");
        }
    }
}

/// Which senders take more than the one event away, by the statuses of a mismatch.
#[test]
fn a_mismatch_that_costs_the_endpoint_is_warned_of() {
    let warned = |status: u16| {
        let of_status = |plugin: &str| {
            let route = format!("idempotency.mismatch.status = {status}");
            warnings(plugin, &route, "").into_iter().any(|line| line.starts_with("idempotency.mismatch.status"))
        };
        SENDERS.iter().map(|known| known.plugin).filter(|plugin| of_status(plugin)).collect::<Vec<_>>()
    };
    assert_eq!(warned(409), ["adyen", "mollie", "razorpay", "shopify"]);
    assert_eq!(warned(422), ["adyen", "mollie", "razorpay", "shopify"]);
    assert_eq!(warned(202), ["flutterwave", "mollie", "paystack"], "these count 200 alone");
    let said = warnings("shopify", "", "timeout = \"5s\"").join("\n");
    assert!(said.contains("deletes the subscription after 8 failures in a row; set 202"), "{said}");
}

#[test]
fn a_refusal_that_ends_the_subscription_is_warned_of() {
    let warned = |plugin: &str, status: u16| {
        let said = warnings(plugin, &format!("refuse_status = {status}"), "");
        said.into_iter().any(|line| line.starts_with("refuse_status"))
    };
    assert!(warned("svix", 410) && warned("standard-webhooks", 410));
    assert!(!warned("svix", 401) && !warned("stripe", 410));
}

/// Where something is known of the sender, the rule of thumb for others is silent; where nothing is, it speaks.
#[test]
fn the_rule_of_thumb_is_for_what_is_not_known() {
    let window = |plugin: &str, days: u8| {
        let said = warnings(plugin, &format!("idempotency.window = \"{days}d\""), "");
        said.into_iter().filter(|line| line.starts_with("idempotency.window")).collect::<Vec<_>>()
    };
    assert_eq!(window("slack", 1), [""; 0]);
    assert_eq!(window("github", 1), [""; 0], "it never tries again");
    assert!(window("twilio", 1).concat().contains("shorter than 3 days"));
    assert!(window("adyen", 29).concat().contains("set 30d or more"));
}

/// Every bundled plugin but the one that reads anybody has a row, and the page says what the rows say.
#[test]
fn the_page_shows_what_is_known() {
    let mut names: Vec<&str> = SENDERS.iter().map(|known| known.plugin).collect();
    names.push("json");
    names.sort_unstable();
    assert_eq!(names, onceward::plugin::bundled::NAMES);

    let or_dash = |time: Option<std::time::Duration>| time.map_or_else(|| "–".to_owned(), span);
    let mut table = String::from(
        "| plugin | tries again for | waits | success | an event refused for good | source |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for known in SENDERS {
        let success = match known.success {
            Success::Any2xx => "2xx".to_owned(),
            Success::Only(statuses) => statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
        };
        let lasting = match known.lasting {
            Lasting::GivesUp => "is given up".to_owned(),
            Lasting::Harms(harm) => harm.to_owned(),
            Lasting::EndsAt(status) => format!("{status} ends the subscription"),
        };
        let (retries, waits) = (or_dash(known.retries_for), or_dash(known.waits));
        table += &format!("| {} | {retries} | {waits} | {success} | {lasting} | {} |\n", known.plugin, known.source);
    }
    let (opening, closing) = ("by a test -->\n", "<!-- /senders -->");
    let page = fs::read_to_string("docs/providers.md").expect("the page");
    let (before, rest) = page.split_once(opening).expect("the table's place");
    let (shown, after) = rest.split_once(closing).expect("its end");
    if std::env::var_os("BLESS").is_some() {
        fs::write("docs/providers.md", [before, opening, &table, closing, after].concat()).expect("a page is written");
        return;
    }
    assert_eq!(shown, table, "BLESS=1 writes what is known now");
}
