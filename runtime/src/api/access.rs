//! Who may ask, and how often: the table of paths that are not like the others, the bearer check and the request limit.
//!
//! Both checks run before the route is looked up, so a stranger cannot tell a path that exists from one that does not.
//! Authentication comes first: a refused credential is nobody's request and is not counted. The limit is closed when in
//! doubt: without a bound application or its database the answer is 503 (I15, ADR 0009).

mod bearer;
mod polls;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method};
use powercontext_core::rate::{Decision, Quota};
use secrecy::SecretString;

use super::app::Principal;
use super::problem::Problem;
use super::state::Api;
use bearer::Bearer;
use polls::Polls;

/// How authentication, the limit and transport metrics treat a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For everybody, without a token, never limited. `is_observed`: whether requests show in the transport's metrics.
    Public {
        /// See the variant.
        is_observed: bool,
    },
    /// Needs the token; neither limited nor observed, so that watching a server does not change what is watched.
    Scrape,
    /// Needs the token, is limited and observed: every path that the table does not name, whether it exists or not.
    Guarded,
}

/// The paths that are not guarded, each whole and byte for byte: a slash or a percent sign more makes another path.
const EXCEPTIONS: &[(&str, Access)] = &[
    ("/health/live", Access::Public { is_observed: false }),
    ("/health/ready", Access::Public { is_observed: false }),
    ("/metrics", Access::Scrape),
    ("/", Access::Public { is_observed: true }),
    ("/handoff-reports", Access::Public { is_observed: true }),
];

impl Access {
    /// The treatment of a path.
    pub fn of(path: &str) -> Self {
        let found = EXCEPTIONS.iter().find(|(exception, _)| *exception == path);
        found.map_or(Self::Guarded, |(_, access)| *access)
    }

    /// Whether a caller has to authenticate, where the deployment asks for it at all.
    pub const fn needs_bearer(self) -> bool {
        !matches!(self, Self::Public { .. })
    }

    /// Whether requests count against the principal's quota.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::Guarded)
    }

    /// Whether requests show in the transport's metrics.
    pub const fn is_observed(self) -> bool {
        matches!(self, Self::Guarded | Self::Public { is_observed: true })
    }
}

/// What a deployment asks of its callers.
pub struct Guard {
    bearer: Option<Bearer>,
    quota: Option<Quota>,
    polls: Polls,
}

impl Guard {
    /// Asks for `token`, if there is one, and keeps every principal to `quota`, if there is one.
    pub fn new(token: Option<&SecretString>, quota: Option<Quota>) -> Self {
        Self {
            bearer: token.map(Bearer::new),
            quota,
            polls: Polls::default(),
        }
    }

    /// Asks nothing: every caller is the local principal.
    pub fn open() -> Self {
        Self::new(None, None)
    }

    fn principal(&self, headers: &HeaderMap) -> Option<Principal> {
        match &self.bearer {
            None => Some(Principal::Local),
            Some(bearer) => bearer.is_in(headers).then_some(Principal::ServerToken),
        }
    }
}

/// Marks the answer that shows an operation which goes on. Whoever waits for its end asks again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfinished;

/// Finds the principal, or answers 401.
pub(crate) async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if Access::of(request.uri().path()).needs_bearer() {
        let Some(principal) = api.guard().principal(request.headers()) else {
            return Problem::unauthorized().into_response();
        };
        request.extensions_mut().insert(principal);
    }
    next.run(request).await
}

/// Counts the request, or answers 429, or 503 while it cannot be counted.
pub(crate) async fn limit(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some(quota) = api.guard().quota else {
        return next.run(request).await;
    };
    if !Access::of(request.uri().path()).is_limited() {
        return next.run(request).await;
    }
    let Some(by) = request.extensions().get::<Principal>().copied() else {
        tracing::error!("a guarded request has no principal");
        return Problem::internal_error().into_response();
    };
    if is_poll(&request) && api.guard().polls.take(by) {
        let response = next.run(request).await;
        if response.extensions().get::<Unfinished>().is_some() {
            return response;
        }
        return match count(&api, by, quota).await {
            Ok(()) => response,
            Err(problem) => problem.into_response(),
        };
    }
    match count(&api, by, quota).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn count(api: &Api, by: Principal, quota: Quota) -> Result<(), Problem> {
    match api.app()?.count_request(by, quota).await? {
        Decision::Allowed => Ok(()),
        Decision::Denied { retry_after_seconds } => Err(Problem::rate_limited(retry_after_seconds)),
    }
}

/// Whether the request reads one operation.
fn is_poll(request: &Request) -> bool {
    let id = request.uri().path().strip_prefix("/v1/operations/");
    request.method() == Method::GET && id.is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_exceptions() {
        for (path, needs_bearer, is_limited, is_observed) in [
            ("/health/live", false, false, false),
            ("/health/ready", false, false, false),
            ("/metrics", true, false, false),
            ("/", false, false, true),
            ("/handoff-reports", false, false, true),
            ("/v1/memory/flush", true, true, true),
            ("/openapi.json", true, true, true),
        ] {
            let access = Access::of(path);
            assert_eq!(access.needs_bearer(), needs_bearer, "{path}");
            assert_eq!(access.is_limited(), is_limited, "{path}");
            assert_eq!(access.is_observed(), is_observed, "{path}");
        }
        for path in [
            "",
            "//",
            "/health",
            "/health/live/",
            "//health/live",
            "/health/live/../../v1/stats",
            "/HEALTH/LIVE",
            "/health/l%69ve",
            "/health/live%00",
            "/metrics/",
            "*",
        ] {
            assert_eq!(Access::of(path), Access::Guarded, "{path}");
        }
    }

    #[test]
    fn only_the_read_of_one_operation_is_a_poll() {
        let request = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            is_poll(&request.body(axum::body::Body::empty()).expect("a request"))
        };
        assert!(request("GET", "/v1/operations/x"));
        assert!(request("GET", "/v1/operations/x?operation_id=x"));
        for (method, path) in [
            ("GET", "/v1/operations"),
            ("GET", "/v1/operations/"),
            ("GET", "/v1/operations/x/cancel"),
            ("POST", "/v1/operations/x"),
            ("HEAD", "/v1/operations/x"),
            ("GET", "/v1/operations?x=/v1/operations/x"),
        ] {
            assert!(!request(method, path), "{method} {path}");
        }
    }
}
