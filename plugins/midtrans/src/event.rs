//! What a notification is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{Fields, Node};
use onceward_plugin::{Event, PluginError};

const ORDER: &str = "/order_id";
const TRANSACTION: &str = "/transaction_id";
const STATUS: &str = "/transaction_status";
const FRAUD: &str = "/fraud_status";
const REFUNDED: &str = "/refund_amount";

/// Signed fields and the two that say what they mean. `status_message` and the times are prose and clocks.
const MATERIAL: [&str; 5] = [ORDER, STATUS, "/status_code", "/gross_amount", "/currency"];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(body, MATERIAL.into_iter().chain([TRANSACTION, FRAUD, REFUNDED]).collect())?;
    let order = fields.node(ORDER).and_then(Node::part);
    let order = order.ok_or_else(|| PluginError::Malformed("there is no order_id".to_owned()))?;
    let status = fields.required(STATUS)?;
    // A card payment that was challenged is accepted under the same status; other payments have no fraud status.
    let fraud = fields.text(FRAUD).unwrap_or_default();
    let mut key: Vec<_> = [&order, fields.required(TRANSACTION)?, status, fraud].map(str::to_owned).to_vec();
    // The sum of all refunds so far tells one partial refund from the next.
    if matches!(status, "refund" | "partial_refund") {
        key.extend(fields.node(REFUNDED).and_then(Node::part));
    }
    Ok(Event {
        key,
        aliases: Vec::new(),
        key_signed: false,
        material: fields.material(&MATERIAL),
        event_type: Some(status.to_owned()),
        object_id: Some(order),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(members: &str) -> Vec<String> {
        read(format!(r#"{{"order_id":"A","transaction_id":"T",{members}}}"#).as_bytes()).unwrap().key
    }

    #[test]
    fn each_transition_has_a_key() {
        assert_eq!(
            key(r#""transaction_status":"capture","fraud_status":"challenge""#),
            ["A", "T", "capture", "challenge"]
        );
        assert_eq!(key(r#""transaction_status":"settlement","refund_amount":"1.00""#), ["A", "T", "settlement", ""]);
        assert_eq!(
            key(r#""transaction_status":"partial_refund","fraud_status":"accept","refund_amount":"10000.00""#),
            ["A", "T", "partial_refund", "accept", "10000.00"]
        );
        assert_eq!(key(r#""transaction_status":"refund","refund_amount":1e4"#), ["A", "T", "refund", "", "10000"]);
    }

    #[test]
    fn what_has_no_transition_is_malformed() {
        for body in [
            r#"{"order_id":"A","transaction_id":"T"}"#,
            r#"{"order_id":"A","transaction_status":"capture"}"#,
            r#"{"transaction_id":"T","transaction_status":"capture"}"#,
        ] {
            assert!(matches!(read(body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
    }
}
