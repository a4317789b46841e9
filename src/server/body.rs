//! The request body as a handler sees it: no trailers, a time limit, an error that says whose fault it was; what is left unread is
//! discarded so that the client gets to its answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use super::close::{DISCARD_BYTES_MAX, DISCARD_TIME_MAX};
use super::connection::Link;
use crate::gateway::BodyFault;

/// See the module. The clock runs from the first time that the handler has to wait.
pub(super) struct RequestBody {
    /// Until it has ended.
    incoming: Option<Incoming>,
    link: Arc<Link>,
    time_max: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The client waits for a word before it sends, and reading is that word.
    awaits_continue: bool,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, awaits_continue: bool, link: Arc<Link>, time_max: Duration) -> Self {
        let incoming = (!incoming.is_end_stream()).then_some(incoming);
        link.set_body_open(incoming.is_some());
        Self { incoming, link, time_max, deadline: None, awaits_continue }
    }

    fn ended(&mut self) {
        self.incoming = None;
        self.link.set_body_open(false);
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.awaits_continue = false;
        loop {
            let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
            match Pin::new(&mut *incoming).poll_frame(cx) {
                // Trailers are never merged into anything.
                Poll::Ready(Some(Ok(frame))) if !frame.is_data() => (),
                Poll::Ready(Some(Ok(frame))) => {
                    if incoming.is_end_stream() {
                        self.ended();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(Some(Err(error))) => {
                    self.incoming = None;
                    return Poll::Ready(Some(Err(fault(&error))));
                }
                Poll::Ready(None) => {
                    self.ended();
                    return Poll::Ready(None);
                }
                Poll::Pending => break,
            }
        }
        let time_max = self.time_max;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(time_max)));
        deadline.as_mut().poll(cx).map(|()| Some(Err(BodyFault::TimedOut)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RequestBody {
    /// In a task of its own, since the client may read its answer only after it has sent everything.
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take() else { return };
        // Whoever waits for `100 Continue` must hear the answer instead. If it sends all the same, `close` discards it.
        if self.awaits_continue {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(discard(incoming, Arc::clone(&self.link)));
        }
    }
}

async fn discard(mut incoming: Incoming, link: Arc<Link>) {
    let mut left = DISCARD_BYTES_MAX;
    let all = async {
        while let Some(Ok(frame)) = incoming.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    if !timeout(DISCARD_TIME_MAX, all).await.unwrap_or(false) {
        link.set_discarded_enough();
    }
}

fn fault(error: &hyper::Error) -> BodyFault {
    let kind =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => BodyFault::Malformed,
        _ => BodyFault::Incomplete,
    }
}
