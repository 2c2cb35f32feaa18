//! Who may reach the server: its address, its token and its limit. They are read together, because an address that other
//! machines reach is acceptable only where somebody has to authenticate, or the deployment says in so many words that
//! nobody has to.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use powercontext_core::rate::Quota;
use powercontext_core::time::Span;
use secrecy::SecretString;

use super::fault::Origin;
use super::keys;
use super::reader::{Given, Reader, Refused};

/// Where the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSettings {
    /// Address and port; other machines reach it only if they must authenticate or the deployment waived that.
    pub address: SocketAddr,
    /// How long it goes on taking connections once it was asked to end.
    pub leave: Span,
}

/// What the server asks of its callers.
#[derive(Debug, Clone)]
pub struct AccessSettings {
    /// The token that callers must bear; `None`: authentication is off.
    pub token: Option<SecretString>,
    /// What each principal is kept to; `None`: the limit is off.
    pub quota: Option<Quota>,
}

/// What is asked of callers, and whether a token is set that nobody asks for.
type Access = (AccessSettings, bool);

/// Both, each with its own faults.
pub(super) fn reach(r: &mut Reader, has_content: bool) -> (Result<HttpSettings, Refused>, Result<Access, Refused>) {
    let host = r.get(&keys::HTTP_HOST);
    let port = r.get(&keys::HTTP_PORT);
    let leave = r.get(&keys::HTTP_LEAVE_SECONDS);
    // A port that shows health and metrics alone may be reached by anybody.
    let access = access(r, host.as_ref().ok().filter(|_| has_content));
    (http(host, port, leave), access)
}

fn http(
    host: Result<Given<IpAddr>, Refused>,
    port: Result<Given<u32>, Refused>,
    leave: Result<Given<Span>, Refused>,
) -> Result<HttpSettings, Refused> {
    let (host, port, leave) = (host?.value, port?.value, leave?.value);
    let port = u16::try_from(port).expect("the rule ends at 65535");
    Ok(HttpSettings {
        address: SocketAddr::new(host, port),
        leave,
    })
}

/// The token and the limit; refuses a `host` at which strangers would be served.
fn access(r: &mut Reader, host: Option<&Given<IpAddr>>) -> Result<Access, Refused> {
    let is_on = r.get(&keys::AUTH_ENABLED);
    let token = r.optional(&keys::AUTH_TOKEN);
    let is_waived = r.get(&keys::ALLOW_UNAUTHENTICATED_NON_LOOPBACK);
    let quota = quota(r);
    let is_on = is_on?.value;
    if let (Some(host), Ok(is_waived)) = (host, is_waived)
        && !(is_on || is_waived.value || is_loopback(host.value))
    {
        let reason = format!(
            "other machines reach this address and nobody would have to authenticate; listen on a loopback address, set {} to true, or waive authentication by {}",
            keys::AUTH_ENABLED.name,
            keys::ALLOW_UNAUTHENTICATED_NON_LOOPBACK.name
        );
        return Err(r.refuse(&keys::HTTP_HOST, host.origin, reason));
    }
    let token = token?.map(|token| token.value);
    if is_on && token.is_none() {
        let reason = format!("must be set, because {} is true", keys::AUTH_ENABLED.name);
        return Err(r.refuse(&keys::AUTH_TOKEN, Origin::Default, reason));
    }
    let is_idle = token.is_some() && !is_on;
    let settings = AccessSettings {
        token: token.filter(|_| is_on),
        quota: quota?,
    };
    Ok((settings, is_idle))
}

fn is_loopback(host: IpAddr) -> bool {
    host.to_canonical().is_loopback()
}

fn quota(r: &mut Reader) -> Result<Option<Quota>, Refused> {
    let is_on = r.get(&keys::RATE_LIMIT_ENABLED);
    let requests = r.get(&keys::RATE_LIMIT_REQUESTS);
    let window = r.get(&keys::RATE_LIMIT_WINDOW_SECONDS);
    let (is_on, requests, window) = (is_on?.value, requests?.value, window?.value);
    let quota = NonZeroU32::new(requests).zip(whole_seconds(window));
    let (requests, window) = quota.expect("both rules begin at 1");
    Ok(is_on.then(|| Quota::new(requests, window)))
}

fn whole_seconds(span: Span) -> Option<NonZeroU32> {
    u32::try_from(span.as_millis() / 1000).ok().and_then(NonZeroU32::new)
}
