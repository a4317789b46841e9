//! One request's journey.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// A body on its way, in or out. An error ends the exchange: the connection is cut, so that a short body never looks whole.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a body ended early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
