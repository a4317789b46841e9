//! One request's journey: `handle` shows it whole, and each step is a file.
//!
//! Invariants: a claim stands before anything is forwarded; from the claim on the journey runs in a task of its own; nothing is
//! sent to an upstream twice under one claim; only `rejection` turns a fault into HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

pub mod admission;
pub mod asking;
pub mod audit;
pub mod batch;
pub mod beside;
pub mod breaker;
pub mod canonical_json;
pub mod capture;
pub mod claiming;
pub mod claims;
pub mod complete;
pub mod dedupe;
pub mod deployed;
pub mod epochs;
pub mod explain;
pub mod fetch;
pub mod forward;
pub mod handle;
pub mod headers;
pub mod identity;
pub mod inspect;
pub mod journal;
pub mod keep;
pub mod keyring;
pub mod limits;
pub mod meters;
pub mod naming;
pub mod operator;
pub mod plugin_time;
pub mod quarantine;
pub mod rejection;
pub mod reply;
pub mod rfc3339;
pub mod route;
pub mod shadow;
pub mod trail;
pub mod upstream;
pub mod waiters;
pub mod watch;

use crate::plugin::aside::Aside;

use admission::{Admitted, Limits};
use capture::Captures;
use dedupe::Dedupe;
use forward::Forward;
use limits::Rates;
use meters::RouteMeters;
use rejection::Rejection;
use route::Routes;
use trail::Trail;
use upstream::{Upstream, Upstreams};

/// A body on its way, in or out. An error ends the exchange: the connection is cut, so that a short body never looks whole.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a body ended early; a request's is a [`BodyFault`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// 400: the chunks are malformed.
    #[error("the request body's chunks are malformed")]
    Malformed,
    /// The client is gone: nobody reads an answer.
    #[error("the client closed before the request body's end")]
    Incomplete,
    /// 408: the whole body took too long.
    #[error("the request body took too long")]
    TimedOut,
}

/// The gateway of one data-plane core.
pub struct Gateway {
    /// All routes, shared with the other cores.
    pub routes: Arc<Routes>,
    /// What a request must fit.
    pub limits: Limits,
    /// How often senders and tenants may come, shared with the other cores.
    pub rates: Rates,
    /// Where plugin calls that take long run, shared with the other cores.
    pub aside: Aside,
    /// This core's pools.
    pub upstreams: Upstreams,
    /// This core's store handle, and what all cores share.
    pub dedupe: Dedupe,
    /// What routes keep of their requests, shared with the other cores.
    pub captures: Captures,
    /// What is counted of requests without a route.
    pub unrouted: Arc<RouteMeters>,
}

impl Gateway {
    fn upstream(&self, admitted: &Admitted) -> Result<&Upstream, Rejection> {
        // The config's check has found every route's upstream.
        self.upstreams.get(&admitted.route.config.upstream).ok_or(Rejection::Internal)
    }
}

impl Admitted {
    fn forward<'a>(&'a self, trail: &'a Trail) -> Forward<'a> {
        Forward {
            route: &self.route,
            captures: &self.captures,
            delivery: &self.delivery,
            sender: &self.sender,
            event: &trail.event,
            trace_id: &trail.trace_id,
        }
    }
}
