//! Bounds for the responses of stores over HTTP.
//!
//! In: requests of the crate `object_store`, which reads bodies until they end, and allocates what headers announce.
//! Out: responses whose bodies, lengths, and times are within limits. A body that is longer than what was requested,
//! and the whole object instead of a range, are errors whose bodies are not read; of the body of an error, only the
//! beginning is read. Requests wait while the store is [`Busy`]: it has stated how long (`Retry-After`). A command can
//! set a deadline, so that it does not wait for a pause that ends later, and learns what it waits for. Redirects are
//! followed only where they are safe: see [`Redirects`].

use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http_body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{StatusCode, Url};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

use super::limits::{FILE_LEN_MAX_BYTES, MANIFEST_LEN_MAX_BYTES, one_line};
use crate::sync::unpoisoned;

/// The maximum length of a body that does not belong to a requested range: of a document, or of a page of a listing.
const BODY_LEN_MAX_BYTES: u64 = MANIFEST_LEN_MAX_BYTES;
/// The limits on reading the body of an error response.
const ERROR_LEN_MAX_BYTES: usize = 4 << 10;
const ERROR_TIME_MAX: Duration = Duration::from_secs(5);
/// The maximum time that a connection to a store takes.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The maximum time until the response to a request without a body begins.
const RESPONSE_MAX: Duration = Duration::from_secs(15);
/// The rate, in bytes per second, at which the body of a request is sent at least. The body may take the time that it
/// needs at this rate, because only the kernel knows how much of it the store has received. The kernel ends a
/// connection if the store receives nothing for [`UNRECEIVED_MAX`].
const SEND_RATE_MIN: u64 = 8 << 10;
const UNRECEIVED_MAX: Duration = Duration::from_secs(30);
/// The maximum time in which a body arrives that is not [`Streamed`].
const BODY_MAX: Duration = Duration::from_secs(120);
/// The maximum time that a response waits for its next byte.
const STALL_MAX: Duration = Duration::from_secs(15);

/// The maximum length of the body of a response, as an extension of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimit(pub(super) u64);

/// An extension of a request whose response is used as it arrives. The caller continues after a failure. Other requests
/// are repeated as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed;

pub(super) fn is_body_beyond_limit(error: &object_store::Error) -> bool {
    matches!(cause_of(error), Some(BeyondLimit::Body { .. }))
}

/// Returns whether a request for a range failed because the store returned the whole object.
pub(super) fn is_range_ignored(error: &object_store::Error) -> bool {
    matches!(cause_of(error), Some(BeyondLimit::Range))
}

/// Returns the cause of an error that has a type.
pub(super) fn cause_of<T: std::error::Error + 'static>(error: &object_store::Error) -> Option<&T> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Which redirects are followed. In any case, at most [`REDIRECTS_MAX`], and none from https to http.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirects {
    /// Those to other hosts, too: requests have no credentials.
    Anywhere,
    /// Those within one host and port. Requests have credentials, in headers that another host must not get, and
    /// signatures that are valid only for the host.
    SameHost,
}

const REDIRECTS_MAX: usize = 10;

/// A redirect that is not followed.
#[derive(Debug, Error)]
enum UnsafeRedirect {
    #[error("the response redirects to {to} without TLS, which is not followed: use a URL that needs no redirect")]
    Downgrade { to: String },
    #[error(
        "the response redirects to {to}, another host, which is not followed because the request has credentials: use \
         the endpoint of that host"
    )]
    OtherHost { to: String },
    #[error("the responses redirect more than {REDIRECTS_MAX} times: check the URL")]
    TooMany,
}

impl Redirects {
    fn policy(self) -> Policy {
        Policy::custom(move |attempt: Attempt<'_>| match self.check(attempt.previous(), attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        })
    }

    /// Checks a redirect to `to`, given the URLs of the requests before it.
    fn check(self, previous: &[Url], to: &Url) -> Result<(), UnsafeRedirect> {
        let Some(from) = previous.last() else { return Ok(()) };
        let host = || one_line(&format!("{}://{}", to.scheme(), to.host_str().unwrap_or_default()));
        let place = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
        if previous.len() > REDIRECTS_MAX {
            return Err(UnsafeRedirect::TooMany);
        }
        if from.scheme() == "https" && to.scheme() != "https" {
            return Err(UnsafeRedirect::Downgrade { to: host() });
        }
        if self == Redirects::SameHost && place(from) != place(to) {
            return Err(UnsafeRedirect::OtherHost { to: host() });
        }
        Ok(())
    }
}

/// Makes clients whose responses are within limits.
#[derive(Debug)]
pub(super) struct BoundedConnector {
    pub(super) redirects: Redirects,
    pub(super) busy: Arc<Busy>,
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .user_agent(concat!("zero-kv/", env!("CARGO_PKG_VERSION")))
            .redirect(self.redirects.policy())
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(UNRECEIVED_MAX)
            .http1_only()
            .build()
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: error.into() })?;
        Ok(HttpClient::new(Bounded { client: HttpClient::new(client), busy: Arc::clone(&self.busy) }))
    }
}

#[derive(Debug)]
struct Bounded {
    client: HttpClient,
    busy: Arc<Busy>,
}

/// A response that is not within the limits.
#[derive(Debug, Error)]
enum BeyondLimit {
    #[error(
        "the response has more than the {expected_bytes} bytes that were requested: check what answers at this address"
    )]
    Body { expected_bytes: u64 },
    #[error("the store ignores ranges, and returns the whole object: use a server that supports ranges")]
    Range,
    #[error(
        "the header {name} is {value:?}, expected lengths of at most {FILE_LEN_MAX_BYTES} bytes: check what answers at \
         this address"
    )]
    Header { name: &'static str, value: String },
}

impl From<BeyondLimit> for HttpError {
    fn from(error: BeyondLimit) -> HttpError {
        // The crate does not repeat such requests.
        HttpError::new(HttpErrorKind::Decode, error)
    }
}

/// A response that says that the bucket does not exist. The crate reports it like a missing object, so an outage would
/// look like a table without new documents.
#[derive(Debug, Error)]
#[error("the bucket does not exist")]
pub(super) struct NoBucket;

/// The codes of such responses, as S3, Google Cloud Storage, and Azure state them.
const NO_BUCKET_CODES: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

impl NoBucket {
    /// Checks the response to a request. A response without a body, such as the one to HEAD, has no code, except in
    /// Azure.
    fn check(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<(), HttpError> {
        let header = headers.get("x-ms-error-code").map(HeaderValue::as_bytes);
        let body = String::from_utf8_lossy(body);
        let is_stated = |code: &&str| header == Some(code.as_bytes()) || body.contains(&format!("<Code>{code}</Code>"));
        match status == StatusCode::NOT_FOUND && NO_BUCKET_CODES.iter().any(is_stated) {
            // The crate does not repeat such requests.
            true => Err(HttpError::new(HttpErrorKind::Decode, NoBucket)),
            false => Ok(()),
        }
    }
}

// The form that the macro `async_trait` gives the function.
type Response<'f> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>;

impl HttpService for Bounded {
    fn call<'this, 'f>(&'this self, request: HttpRequest) -> Response<'f>
    where
        'this: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let (len_max_bytes, is_head) = (body_len_max_bytes(&request), request.method() == "HEAD");
            let has_range = request.headers().contains_key("range");
            let is_streamed = request.extensions().get::<Streamed>().is_some();
            let response_max = response_max(request.body().content_length() as u64);
            self.busy.wait().await?;
            let response = within(response_max, "the response did not begin", self.client.execute(request)).await?;
            let (parts, body) = response.into_parts();
            self.busy.record(parts.status, &parts.headers);
            let body = match parts.status.is_success() {
                true => {
                    if has_range && !is_head && parts.status != StatusCode::PARTIAL_CONTENT {
                        return Err(BeyondLimit::Range.into());
                    }
                    for name in ["content-length", "content-range"] {
                        let value = parts.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
                        if let Some(value) = value.filter(|value| !is_within_limits(value)) {
                            return Err(BeyondLimit::Header { name, value: value.into_owned() }.into());
                        }
                    }
                    // A response without a body announces the length of the object.
                    let announced = parts.headers.get("content-length").filter(|_| !is_head);
                    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
                    if announced.is_some_and(|announced| announced > len_max_bytes) {
                        return Err(BeyondLimit::Body { expected_bytes: len_max_bytes }.into());
                    }
                    let body = HttpResponseBody::new(BoundedBody {
                        body,
                        expected_bytes: len_max_bytes,
                        read_bytes: 0,
                        stall: Box::pin(tokio::time::sleep(STALL_MAX)),
                    });
                    match is_streamed {
                        true => body,
                        false => within(BODY_MAX, "the response did not end", read(body)).await?.into(),
                    }
                }
                false => {
                    let body = read_error(body).await;
                    NoBucket::check(parts.status, &parts.headers, &body)?;
                    body.into()
                }
            };
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

/// A response that did not arrive in time.
#[derive(Debug, Error)]
#[error("{what} within {} s", max.as_secs())]
struct TooSlow {
    what: &'static str,
    max: Duration,
}

fn response_max(sent_bytes: u64) -> Duration {
    RESPONSE_MAX + Duration::from_secs(sent_bytes / SEND_RATE_MIN)
}

/// Fails if a step of a request takes longer than `max`. The crate repeats such requests.
async fn within<T>(
    max: Duration,
    what: &'static str,
    step: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    let timed_out = |_| Err(HttpError::new(HttpErrorKind::Timeout, TooSlow { what, max }));
    tokio::time::timeout(max, step).await.unwrap_or_else(timed_out)
}

fn body_len_max_bytes(request: &HttpRequest) -> u64 {
    let range = request.headers().get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes="));
    let bounds = range.and_then(|range| range.split_once('-'));
    let bounds = bounds.and_then(|(first, last)| Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?)));
    let limit = request.extensions().get().map_or(BODY_LEN_MAX_BYTES, |BodyLimit(len_max_bytes)| *len_max_bytes);
    bounds.map_or(limit, |(first, last)| last.saturating_sub(first).saturating_add(1))
}

/// Returns whether all numbers of a header are within the limits. The crate adds 1 to some of them.
fn is_within_limits(value: &str) -> bool {
    let numbers = value.split(|character: char| !character.is_ascii_digit()).filter(|number| !number.is_empty());
    numbers.into_iter().all(|number| number.parse::<u64>().is_ok_and(|number| number <= FILE_LEN_MAX_BYTES))
}

/// A body that fails after the bytes that were requested, and if it stalls.
struct BoundedBody {
    body: HttpResponseBody,
    expected_bytes: u64,
    read_bytes: u64,
    /// Ends when the next bytes are due.
    stall: Pin<Box<Sleep>>,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.stall.as_mut().reset(Instant::now() + STALL_MAX);
        } else if self.stall.as_mut().poll(context).is_ready() {
            let stalled = TooSlow { what: "the response did not continue", max: STALL_MAX };
            return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, stalled))));
        }
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.read_bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if self.read_bytes > self.expected_bytes {
                return Poll::Ready(Some(Err(BeyondLimit::Body { expected_bytes: self.expected_bytes }.into())));
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a body. Allocates only for bytes that have arrived.
async fn read(body: HttpResponseBody) -> Result<Vec<u8>, HttpError> {
    body.bytes_stream()
        .try_fold(Vec::new(), async |mut bytes, piece| {
            Ok({
                bytes.extend_from_slice(&piece);
                bytes
            })
        })
        .await
}

/// Reads the beginning of the body of an error, as text. The status is more important, so the body may be incomplete.
async fn read_error(body: HttpResponseBody) -> Vec<u8> {
    let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let len_bytes = piece.len().min(ERROR_LEN_MAX_BYTES - bytes.len());
            bytes.extend_from_slice(&piece[..len_bytes]);
            if bytes.len() == ERROR_LEN_MAX_BYTES {
                break;
            }
        }
    };
    // Whatever has arrived in time is used.
    let _ = tokio::time::timeout(ERROR_TIME_MAX, read).await;
    // The crate loses the status if the body is not valid text.
    String::from_utf8_lossy(&bytes).into_owned().into_bytes()
}

/// The maximum time that requests wait because a store is busy.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// After this time, the user of a command learns why it waits.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// Shows a message to the user of a command.
type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// The pause that a store has asked for, and who waits for its end.
#[derive(Default)]
pub(super) struct Busy(Mutex<State>);

#[derive(Clone, Default)]
struct State {
    pause: Option<Pause>,
    /// Requests fail at once if they would have to wait longer.
    deadline: Option<Instant>,
    notice: Option<Notice>,
    /// The end of the pause that was noticed.
    noticed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Pause {
    end: Instant,
    status: StatusCode,
}

/// A pause that ends after the deadline.
#[derive(Debug, Error)]
#[error("the store is busy (status {}), and asks to wait {left_s} s more, which is longer than this command may \
         wait", status.as_u16())]
pub(super) struct TooBusy {
    status: StatusCode,
    left_s: u64,
}

impl Busy {
    /// Sets the time that no pause may exceed, and a function that shows a message about each pause longer than
    /// [`NOTICE_AFTER`].
    pub(super) fn set_patience(&self, deadline: Option<Instant>, notice: Notice) {
        let mut state = unpoisoned(&self.0);
        (state.deadline, state.notice) = (deadline, Some(notice));
    }

    /// Waits until the store accepts requests again. Fails if that is after the deadline.
    pub(super) async fn wait(&self) -> Result<(), HttpError> {
        let (now, State { pause, deadline, .. }) = (Instant::now(), unpoisoned(&self.0).clone());
        let Some(Pause { end, status }) = pause.filter(|pause| pause.end > now) else { return Ok(()) };
        if deadline.is_some_and(|deadline| deadline < end) {
            let left_s = (end - now).as_secs_f64().ceil() as u64;
            // The crate does not repeat such requests.
            return Err(HttpError::new(HttpErrorKind::Decode, TooBusy { status, left_s }));
        }
        sleep_until(end.min(now + NOTICE_AFTER)).await;
        self.notice(end, status);
        sleep_until(end).await;
        Ok(())
    }

    /// Reports a pause that has not ended, once for all waiting requests.
    fn notice(&self, end: Instant, status: StatusCode) {
        let left = end.saturating_duration_since(Instant::now());
        let mut state = unpoisoned(&self.0);
        if left.is_zero() || state.noticed.replace(end) == Some(end) {
            return;
        }
        let Some(notice) = state.notice.clone() else { return };
        drop(state);
        let (left_s, status) = (left.as_secs_f64().ceil(), status.as_u16());
        notice(&format!("the store is busy (status {status}), and asked to wait {left_s} s more: waiting"));
    }

    /// Records a response that asks for a pause.
    pub(super) fn record(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
            return;
        }
        let pause = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
        if let Some(pause) = pause {
            let (mut state, end) = (unpoisoned(&self.0), Instant::now() + pause.min(BUSY_MAX));
            if state.pause.is_none_or(|pause| pause.end < end) {
                state.pause = Some(Pause { end, status });
            }
        }
    }
}

impl Debug for Busy {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let pause = unpoisoned(&self.0).pause.map(|pause| pause.end);
        formatter.debug_tuple("Busy").field(&pause).finish()
    }
}

/// Parses `Retry-After`: a number of seconds, or a date.
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = chrono::DateTime::parse_from_rfc2822(value.trim()).ok()?;
    SystemTime::from(date).duration_since(SystemTime::now()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_neither_from_https_to_http_nor_with_credentials_to_another_host() {
        let check = |redirects: Redirects, from: &str, to: &str| {
            redirects.check(&[from.parse().unwrap()], &to.parse().unwrap()).map_err(|error| error.to_string())
        };
        for redirects in [Redirects::Anywhere, Redirects::SameHost] {
            for (from, to) in [
                ("https://a/x", "https://a/y"),
                ("https://a/x", "https://A:443/y"),
                ("http://a:80/x", "http://a/y"),
                ("http://a:443/x", "https://a/x"),
            ] {
                assert_eq!(check(redirects, from, to), Ok(()), "{from} {to}");
            }
            for (from, to) in
                [("https://a/x", "http://a/x"), ("https://a/x", "http://a:443/x"), ("https://a", "ftp://a")]
            {
                let error = check(redirects, from, to).unwrap_err();
                assert!(error.contains("without TLS, which is not followed"), "{error}");
            }
            let many: Vec<Url> =
                (0..=REDIRECTS_MAX).map(|number| format!("http://a/{number}").parse().unwrap()).collect();
            assert!(redirects.check(&many[1..], &many[0]).is_ok() && redirects.check(&many, &many[0]).is_err());
        }
        for to in ["https://b/x", "https://a:444/x", "https://a.b/x", "https://b@c/x"] {
            assert_eq!(check(Redirects::Anywhere, "https://a/x", to), Ok(()), "{to}");
            let error = check(Redirects::SameHost, "https://a/x", to).unwrap_err();
            assert!(
                error.contains("another host, which is not followed because the request has credentials"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_request_has_the_time_that_its_body_needs_on_a_slow_link() {
        assert_eq!(response_max(0), RESPONSE_MAX);
        // A small document.
        assert_eq!(response_max(4000), RESPONSE_MAX);
        assert_eq!(response_max(8 << 20).as_secs(), 15 + 1024);
    }

    #[test]
    fn numbers_of_headers_are_within_the_limits_of_files() {
        for value in ["5", "bytes 0-4/5", "bytes 0-4/*", "", "none", "35184372088832"] {
            assert!(is_within_limits(value), "{value}");
        }
        for value in ["35184372088833", "bytes 0-18446744073709551615/5", "bytes 0-4/99999999999999999999999"] {
            assert!(!is_within_limits(value), "{value}");
        }
    }

    #[test]
    fn pauses_are_seconds_or_dates() {
        assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("18446744073709551615"), Some(Duration::from_secs(u64::MAX)));
        let future = chrono::DateTime::<chrono::Utc>::from(SystemTime::now() + Duration::from_secs(3000));
        let pause = retry_after(&future.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap();
        assert!(pause <= Duration::from_secs(3000) && pause > Duration::from_secs(2000), "{pause:?}");
        for none in ["Wed, 21 Oct 2015 07:28:00 GMT", "", "-1", "soon", "1.5"] {
            assert_eq!(retry_after(none), None, "{none}");
        }
    }
}
