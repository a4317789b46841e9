//! Copies of records that another store decides: what a front needs of Redis.

use std::borrow::Cow;

use redis::{Value, cmd};

use super::{Call, Redis, seen};
use crate::idempotency::{Draft, Fence, Record, Ttl};
use crate::store::{Seen, StoreError, codec};

impl Redis {
    /// The copy under this name.
    pub(in crate::store) async fn copy(&self, name: &str) -> Result<Seen, StoreError> {
        let (now, fields): (Value, Value) = self.run(&self.peek, &[name], &[]).await?;
        seen(now, fields)
    }

    /// Puts a copy that ends when the record does, unless a later one stands.
    pub(in crate::store) async fn put_copy(
        &self,
        name: &str,
        record: &Record,
        is_final: bool,
    ) -> Result<(), StoreError> {
        let mut columns = codec::content(&draft(record));
        columns.extend(codec::stamps(record));
        let text = |text: String| Cow::Owned(text.into_bytes());
        let ends = record.expires_at.as_micros().div_ceil(1000);
        let mut args =
            vec![text(record.fence.to_string()), text(u8::from(is_final).to_string()), text(ends.to_string())];
        for (column, cell) in &columns {
            args.extend([Cow::Borrowed(column.as_bytes()), Cow::Borrowed(cell.as_bytes())]);
        }
        self.run::<Value>(&self.front, &[name], &args).await.map(|_| ())
    }

    /// Takes a copy away.
    pub(in crate::store) async fn drop_copy(&self, name: &str) -> Result<(), StoreError> {
        let mut unlink = cmd("UNLINK");
        unlink.arg(name);
        self.bounded(&Call::Command(&unlink)).await.map(|_| ())
    }
}

/// What a record holds beside its stamps.
fn draft(record: &Record) -> Draft {
    let record = record.clone();
    Draft {
        state: record.state,
        fingerprint: record.fingerprint,
        owner: record.owner,
        fence: Fence::Keep,
        attempt: record.attempt,
        lease: None,
        ttl: Ttl::Exactly(std::time::Duration::ZERO),
        released: record.released,
        ambiguous: record.ambiguous,
        error: record.error,
        plugin: record.plugin,
        route: record.route,
        history: record.history,
        request: record.request,
    }
}
