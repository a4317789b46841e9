//! One connection, from its handshake to its close.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{CONNECTION, EXPECT, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept::Accepted;
use super::body::RequestBody;
use super::close::{self, DISCARD_TIME_MAX, Socket};
use super::guard::{Ending, Guard, Limits};
use super::{Handler, Peer, RefuseFn, Refused};
use crate::gateway::Body;

/// How long a client over its limit may take to read that it is.
const TURN_AWAY_TIME_MAX: Duration = Duration::from_secs(1);

/// What the connections of one core share.
pub(super) struct Context {
    /// hyper, set up.
    pub http: http1::Builder,
    /// Answers requests.
    pub handler: Handler,
    /// Words refusals.
    pub refuse: RefuseFn,
    /// Of the guard.
    pub limits: Limits,
    /// For a whole request body.
    pub body_time_max: Duration,
    /// Cancelled once no new request is served.
    pub draining: CancellationToken,
    /// Handlers run in it.
    pub tasks: TaskTracker,
    /// Requests that are whole in the head and not answered to the last byte, or whose handler still runs.
    pub in_flight: Arc<AtomicUsize>,
}

/// What guard, request body and service of one connection tell one another. They run on one thread, one request at a time.
#[derive(Debug)]
pub(super) struct Link {
    in_flight: Arc<AtomicUsize>,
    ticket: Mutex<Option<Arc<Ticket>>>,
    body_open: AtomicBool,
    close_after_answer: AtomicBool,
    discarded_enough: AtomicBool,
}

/// Counts one request in flight for as long as anyone holds it.
#[derive(Debug)]
struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    pub(super) fn new(in_flight: Arc<AtomicUsize>) -> Self {
        Self {
            in_flight,
            ticket: Mutex::default(),
            body_open: AtomicBool::new(false),
            close_after_answer: AtomicBool::new(false),
            discarded_enough: AtomicBool::new(false),
        }
    }

    /// A good head has come in.
    pub(super) fn request_began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.set_ticket(Some(Arc::new(Ticket(Arc::clone(&self.in_flight)))));
    }

    /// hyper has written the answer.
    pub(super) fn answered(&self) {
        self.set_ticket(None);
    }

    /// The request body has bytes that no handler has read yet, or no more. An answer while it has some is the connection's last.
    pub(super) fn set_body_open(&self, open: bool) {
        self.body_open.store(open, Ordering::Relaxed);
    }

    /// The answer to come is the connection's last, whatever becomes of the body.
    pub(super) fn close_after_answer(&self) {
        self.close_after_answer.store(true, Ordering::Relaxed);
    }

    /// The client sends more than anyone wants to discard.
    pub(super) fn set_discarded_enough(&self) {
        self.discarded_enough.store(true, Ordering::Relaxed);
    }

    fn set_ticket(&self, ticket: Option<Arc<Ticket>>) {
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = ticket;
    }

    fn ticket(&self) -> Option<Arc<Ticket>> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_last(&self) -> bool {
        self.close_after_answer.load(Ordering::Relaxed) || self.body_open.load(Ordering::Relaxed)
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(context: Arc<Context>, accepted: Accepted) {
    let Accepted { stream, address, tls, turned_away, places: _places } = accepted;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    match tls {
        None if turned_away => {
            close::with_answer(stream, (context.refuse)(Refused::Overloaded), TURN_AWAY_TIME_MAX).await;
        }
        None => serve_http(context, stream, Peer { address, tls: false, certificate: None }).await,
        // The answer is not worth a handshake.
        Some(_) if turned_away => (),
        // Boxed, so that connections without TLS do not carry its size.
        Some(config) => Box::pin(serve_tls(context, stream, address, config)).await,
    }
}

async fn serve_tls(context: Arc<Context>, stream: TcpStream, address: SocketAddr, config: Arc<ServerConfig>) {
    let handshake = timeout(context.limits.header_timeout, TlsAcceptor::from(config).accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = context.draining.cancelled() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = certificate.map(|certificate| certificate.clone().into_owned());
            serve_http(context, stream, Peer { address, tls: true, certificate }).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
    }
}

async fn serve_http<S: Socket>(context: Arc<Context>, io: S, peer: Peer) {
    let link = Arc::new(Link::new(Arc::clone(&context.in_flight)));
    let address = peer.address;
    let guard = Guard::new(io, context.limits, Arc::clone(&link), context.draining.clone());
    let service = {
        let (context, link) = (Arc::clone(&context), Arc::clone(&link));
        service_fn(move |request| exchange(Arc::clone(&context), Arc::clone(&link), peer.clone(), request))
    };
    let mut connection = context.http.serve_connection(TokioIo::new(guard), service);
    let mut draining = pin!(context.draining.cancelled());
    let mut drains = false;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut connection => break result,
            // Polls the connection once more, so that the guard sees it.
            () = &mut draining, if !drains => drains = true,
        }
    };
    let (io, ending) = connection.into_parts().io.into_inner().into_parts();
    // The answer is out: what follows is manners and counts for nothing.
    link.answered();
    match (result, ending) {
        // A head that passed the guard and not hyper has hyper's own 400, written to the end.
        (Err(error), _) if !error.is_parse() => {
            tracing::debug!(%address, %error, "an answer broke off");
            close::reset(&io);
        }
        (_, Some(Ending::Refused(refused))) => {
            tracing::debug!(%address, ?refused, "request refused");
            close::with_answer(io, (context.refuse)(refused), DISCARD_TIME_MAX).await;
        }
        (_, Some(Ending::Idle | Ending::Eof)) => close::quietly(io).await,
        _ if link.discarded_enough.load(Ordering::Relaxed) => close::quietly(io).await,
        _ => close::lingering(io, DISCARD_TIME_MAX).await,
    }
}

/// One request and its answer. The handler has its own task: what it began for a client it finishes without that client.
async fn exchange(
    context: Arc<Context>,
    link: Arc<Link>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.headers().contains_key(TRANSFER_ENCODING) {
        link.close_after_answer();
    }
    let awaits_continue = request.headers().contains_key(EXPECT);
    let request = request.map(|incoming| {
        let body = RequestBody::new(incoming, awaits_continue, Arc::clone(&link), context.body_time_max);
        body.map_err(Into::into).boxed_unsync()
    });
    let (handler, ticket) = (Arc::clone(&context.handler), link.ticket());
    let handled = context.tasks.spawn(async move {
        let answer = handler(request, peer).await;
        drop(ticket);
        answer
    });
    let mut answer = match handled.await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "a request's handler panicked");
            (context.refuse)(Refused::Panicked)
                .map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
        }
    };
    if link.is_last() || context.draining.is_cancelled() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}
