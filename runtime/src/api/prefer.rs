//! The `Prefer` header of a flush: how long its client is willing to wait.
//!
//! The header only ever shortens or lengthens a wait, so what cannot be understood is ignored and never refused.

use std::time::Duration;

use http::HeaderMap;

/// Waits that a deployment allows, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// Without a usable preference; at most `max_seconds`.
    pub default_seconds: u32,
    /// Upper limit.
    pub max_seconds: u32,
}

impl Default for WaitLimits {
    /// 8 s, because official clients give up at 10, and at most 30 s.
    fn default() -> Self {
        Self {
            default_seconds: 8,
            max_seconds: 30,
        }
    }
}

/// The wait that the request's `Prefer` headers ask for. `respond-async` wins over any `wait`; of several `wait`s the
/// first that is an integer counts.
pub fn wait_budget(headers: &HeaderMap, limits: WaitLimits) -> Duration {
    let mut wait = None;
    for value in headers.get_all("prefer") {
        let Ok(text) = value.to_str() else { continue };
        for preference in text.split(',') {
            // Parameters of a preference (RFC 7240, section 2) say nothing here.
            let name_value = preference.split(';').next().unwrap_or_default().trim();
            if name_value.eq_ignore_ascii_case("respond-async") {
                return Duration::ZERO;
            }
            if wait.is_none() {
                wait = wait_seconds(name_value, limits.max_seconds);
            }
        }
    }
    Duration::from_secs(wait.unwrap_or(limits.default_seconds.min(limits.max_seconds)).into())
}

fn wait_seconds(preference: &str, max_seconds: u32) -> Option<u32> {
    let (name, value) = preference.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("wait") {
        return None;
    }
    let value = value.trim();
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if negative {
        return Some(0);
    }
    // Digits that do not fit are above any maximum.
    Some(digits.parse().unwrap_or(u32::MAX).min(max_seconds))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn budget(lines: &[&str]) -> u64 {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("prefer", HeaderValue::from_str(line).expect("a header value"));
        }
        wait_budget(&headers, WaitLimits::default()).as_secs()
    }

    #[test]
    fn the_table_of_the_contract_holds() {
        for (lines, seconds) in [
            (&[][..], 8),
            (&[""], 8),
            (&["return=minimal"], 8),
            (&["respond-async"], 0),
            (&["Respond-ASYNC"], 0),
            (&["respond-async, wait=20"], 0),
            (&["wait=20, respond-async"], 0),
            (&["wait=20", "respond-async"], 0),
            (&["respond-async; foo=bar"], 0),
            (&["respond-asynchronously"], 8),
            (&["respond-async=yes"], 8),
            (&["wait=0"], 0),
            (&["wait=5"], 5),
            (&["WAIT=5"], 5),
            (&["  wait = 5  "], 5),
            (&["wait=5;x=y"], 5),
            (&["wait=+5"], 5),
            (&["wait=30"], 30),
            (&["wait=31"], 30),
            (&["wait=99999999999999999999999999"], 30),
            (&["wait=-1"], 0),
            (&["wait=-99999999999999999999999999"], 0),
            (&["wait=abc"], 8),
            (&["wait="], 8),
            (&["wait"], 8),
            (&["wait=1.5"], 8),
            (&["wait=\"5\""], 8),
            (&["wait=1_0"], 8),
            (&["wait=--5"], 8),
            (&["wait=abc, wait=3"], 3),
            (&["wait=3, wait=9"], 3),
            (&["handling=lenient,,wait=7,"], 7),
        ] {
            assert_eq!(budget(lines), seconds, "{lines:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_ignored() {
        let mut headers = HeaderMap::new();
        headers.append("prefer", HeaderValue::from_bytes(b"wait=5\xff").expect("opaque"));
        assert_eq!(wait_budget(&headers, WaitLimits::default()).as_secs(), 8);
    }

    #[test]
    fn a_default_above_the_maximum_is_lowered_to_it() {
        let limits = WaitLimits {
            default_seconds: 8,
            max_seconds: 0,
        };
        assert_eq!(wait_budget(&HeaderMap::new(), limits), Duration::ZERO);
    }
}
