//! Bounds for the responses of stores over HTTP.
//!
//! In: requests of the crate `object_store`, which reads bodies until they end, and allocates what headers announce.
//! Out: responses whose bodies and lengths are within limits. A body that is longer than what was requested is an error,
//! and of the body of an error only the beginning is read.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use thiserror::Error;

use super::limits::{FILE_LEN_MAX_BYTES, MANIFEST_LEN_MAX_BYTES};

/// The maximum length of a body that does not belong to a requested range: of a document, or of a page of a listing.
const BODY_LEN_MAX_BYTES: u64 = MANIFEST_LEN_MAX_BYTES;
/// What is read of the body of an error, and how long.
const ERROR_LEN_MAX_BYTES: usize = 4 << 10;
const ERROR_TIME_MAX: Duration = Duration::from_secs(5);

/// The maximum length of the body of a response, as an extension of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimit(pub(super) u64);

/// Returns whether a request failed because the body of its response is longer than the [`BodyLimit`].
pub(super) fn is_body_beyond_limit(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(BeyondLimit::Body { .. })) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Makes clients whose responses are within limits.
#[derive(Debug)]
pub(super) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Bounded(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Bounded(HttpClient);

/// A response that is not within the limits.
#[derive(Debug, Error)]
enum BeyondLimit {
    #[error(
        "the response has more than the {expected_bytes} bytes that were requested: check what answers at this address"
    )]
    Body { expected_bytes: u64 },
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
            let (parts, body) = self.0.execute(request).await?.into_parts();
            let body = match parts.status.is_success() {
                true => {
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
                    read(body, len_max_bytes).await?
                }
                false => read_error(body).await,
            };
            Ok(HttpResponse::from_parts(parts, body.into()))
        })
    }
}

/// Returns the maximum length of the body of a response.
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

/// Reads a body. Allocates only for bytes that have arrived.
async fn read(body: HttpResponseBody, len_max_bytes: u64) -> Result<Vec<u8>, HttpError> {
    let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if (bytes.len() + piece.len()) as u64 > len_max_bytes {
            return Err(BeyondLimit::Body { expected_bytes: len_max_bytes }.into());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers_are_within_the_limits_of_files() {
        for value in ["5", "bytes 0-4/5", "bytes 0-4/*", "", "none", "35184372088832"] {
            assert!(is_within_limits(value), "{value}");
        }
        for value in ["35184372088833", "bytes 0-18446744073709551615/5", "bytes 0-4/99999999999999999999999"] {
            assert!(!is_within_limits(value), "{value}");
        }
    }
}
