//! Where spans go. The names are those of the OpenTelemetry specification, so that what a cluster hands to every process
//! works here; `TRACING_ENABLED` is ours and can only say no, or yes with the specification's default.

use std::borrow::Cow;
use std::collections::BTreeMap;

use powercontext_core::time::Span;
use secrecy::SecretString;

use super::keys;
use super::reader::{Reader, Refused};
use super::rule::Rule;

/// Where spans go.
#[derive(Clone)]
pub struct TracingSettings {
    /// URL that they are sent to.
    pub endpoint: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, SecretString>,
    /// Longest time for one batch.
    pub timeout: Span,
    /// Name of the service.
    pub service: String,
}

impl std::fmt::Debug for TracingSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TracingSettings")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// Where a collector listens when nobody says so.
const ENDPOINT: &str = "http://localhost:4318";
/// What the specification appends to the endpoint for spans.
const PATH: &str = "v1/traces";

/// Address of a collector.
pub(super) struct Collector;

impl Rule for Collector {
    type Out = reqwest::Url;

    fn accepted(&self) -> Cow<'static, str> {
        "an http or https URL without user, query or fragment (empty means unset)".into()
    }

    fn read(&self, text: &str) -> Option<reqwest::Url> {
        let url = reqwest::Url::parse(text).ok()?;
        let plain = url.username().is_empty() && url.password().is_none();
        let whole = url.query().is_none() && url.fragment().is_none();
        (matches!(url.scheme(), "http" | "https") && url.has_host() && plain && whole).then_some(url)
    }

    /// A path may hold what a collector takes for a key.
    fn shown(&self, text: &str) -> Option<String> {
        let url = self.read(text)?;
        let path = if url.path() == "/" { "/" } else { "/…" };
        Some(format!("{}{path}", url.origin().ascii_serialization()))
    }

    fn is_empty_unset(&self) -> bool {
        true
    }
}

const HEADERS_MAX: usize = 32;
const HEADER_BYTES_MAX: usize = 4096;

/// Headers as `NAME=VALUE,NAME=VALUE`, values percent-encoded.
pub(super) struct CollectorHeaders;

impl Rule for CollectorHeaders {
    type Out = BTreeMap<String, SecretString>;

    fn accepted(&self) -> Cow<'static, str> {
        format!("at most {HEADERS_MAX} headers as NAME=VALUE with commas between them, values percent-encoded, printable ASCII of at most {HEADER_BYTES_MAX} bytes once decoded").into()
    }

    fn read(&self, text: &str) -> Option<Self::Out> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let headers: Option<BTreeMap<_, _>> = pairs.map(header).collect();
        headers.filter(|headers| headers.len() <= HEADERS_MAX)
    }

    fn shown(&self, _text: &str) -> Option<String> {
        None
    }

    fn is_empty_unset(&self) -> bool {
        true
    }
}

fn header(pair: &str) -> Option<(String, SecretString)> {
    let (name, value) = pair.split_once('=')?;
    let name = reqwest::header::HeaderName::try_from(name.trim()).ok()?;
    let value = decoded(value.trim())?;
    let fits = value.len() <= HEADER_BYTES_MAX && value.bytes().all(|b| (0x20..0x7f).contains(&b));
    fits.then(|| (name.as_str().to_owned(), SecretString::from(value)))
}

/// Reads `%41` as `A`. What is not ASCII then is not accepted anyway.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.to_owned();
    for part in parts {
        let digits = part
            .get(..2)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        decoded.push(char::from(u8::from_str_radix(digits, 16).ok()?));
        decoded.push_str(&part[2..]);
    }
    Some(decoded)
}

/// Reads the section; `None` when nothing is recorded.
pub(super) fn spans(r: &mut Reader) -> Result<Option<TracingSettings>, Refused> {
    let is_on = r.optional(&keys::TRACING_ENABLED);
    let endpoint = r.optional(&keys::OTEL_EXPORTER_OTLP_ENDPOINT);
    let headers = r.optional(&keys::OTEL_EXPORTER_OTLP_HEADERS);
    let timeout = r.get(&keys::OTEL_EXPORTER_OTLP_TIMEOUT);
    let service = r.get(&keys::OTEL_SERVICE_NAME);
    let (is_on, endpoint, headers, timeout, service) = (is_on?, endpoint?, headers?, timeout?, service?);
    if !is_on.map_or(endpoint.is_some(), |is_on| is_on.value) {
        return Ok(None);
    }
    let base = endpoint.map_or_else(|| ENDPOINT.to_owned(), |url| url.value.into());
    Ok(Some(TracingSettings {
        endpoint: format!("{}/{PATH}", base.trim_end_matches('/')),
        headers: headers.map(|headers| headers.value).unwrap_or_default(),
        timeout: Span::millis(timeout.value.into()),
        service: service.value,
    }))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn headers_are_pairs_that_are_decoded_and_never_shown() {
        let read = CollectorHeaders
            .read("api-key=a%20b%2Cc, X-Other = 1 ,")
            .expect("valid");
        let read: Vec<_> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose_secret()))
            .collect();
        assert_eq!(read, [("api-key", "a b,c"), ("x-other", "1")]);
        for bad in ["a", "=b", "a b=c", "a=%4", "a=%zz", "a=%0a", "a=é", "a=%c3"] {
            assert!(CollectorHeaders.read(bad).is_none(), "{bad}");
        }
        assert_eq!(CollectorHeaders.shown("api-key=1"), None);
        let many = (0..33).map(|n| format!("h{n}=1")).collect::<Vec<_>>();
        assert!(CollectorHeaders.read(&many.join(",")).is_none());
        assert!(CollectorHeaders.read(&many[1..].join(",")).is_some());
    }

    #[test]
    fn a_collector_is_an_address_without_secrets() {
        for good in ["http://localhost:4318", "https://collector.example/otlp"] {
            assert!(Collector.read(good).is_some(), "{good}");
        }
        for bad in [
            "collector:4318",
            "grpc://h",
            "https://u:p@h",
            "https://h/?key=1",
            "https://h/#1",
            "https://",
        ] {
            assert!(Collector.read(bad).is_none(), "{bad}");
        }
        assert_eq!(Collector.shown("https://h:1/key").as_deref(), Some("https://h:1/…"));
        assert_eq!(Collector.shown("https://h:1").as_deref(), Some("https://h:1/"));
    }
}
