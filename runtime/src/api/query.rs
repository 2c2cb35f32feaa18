//! Query strings: the parameters a route knows, strictly; all others, however strange, are ignored.
//!
//! A known parameter must be well-formed percent-encoded UTF-8 and appear once: of two values neither is a safe guess.

use powercontext_core::ids::TextFault;

use super::faults::{Fault, Faults, Place, Read};
use super::fields::IntRange;
use super::problem::Problem;

/// Reader of one query string.
pub(crate) struct Query<'a> {
    raw: &'a str,
    faults: Faults,
}

fn at(name: &str) -> Vec<Place> {
    vec!["query".into(), name.into()]
}

impl<'a> Query<'a> {
    /// Reads the part of a target after `?`.
    pub(crate) fn new(raw: Option<&'a str>) -> Self {
        Self {
            raw: raw.unwrap_or_default(),
            faults: Faults::default(),
        }
    }

    /// The value of a parameter, `None` when it is not there.
    fn find(&mut self, name: &'static str) -> Read<Option<String>> {
        let mut found = None;
        for pair in self.raw.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if decode(key).as_deref() != Some(name) {
                continue;
            }
            let Some(value) = decode(value) else {
                let msg = "value is not percent-encoded UTF-8";
                return Err(self.faults.note(Fault::value_error(msg, at(name))));
            };
            if found.replace(value).is_some() {
                let msg = "parameter is given more than once";
                return Err(self.faults.note(Fault::value_error(msg, at(name))));
            }
        }
        Ok(found)
    }

    /// An identifier that may be absent.
    pub(crate) fn id<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(String) -> Result<T, TextFault>,
    ) -> Read<Option<T>> {
        let Some(text) = self.find(name)? else {
            return Ok(None);
        };
        parse(text)
            .map(Some)
            .map_err(|fault| self.faults.note(Fault::of_text(at(name), fault)))
    }

    /// An opaque value that `read` may refuse; it may be absent.
    pub(crate) fn opaque<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
        msg: &'static str,
    ) -> Read<Option<T>> {
        let Some(text) = self.find(name)? else {
            return Ok(None);
        };
        read(&text)
            .map(Some)
            .ok_or_else(|| self.faults.note(Fault::value_error(msg, at(name))))
    }

    /// One of a closed set of names; it may be absent.
    pub(crate) fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&'static str, T)]) -> Read<Option<T>> {
        let Some(text) = self.find(name)? else {
            return Ok(None);
        };
        if let Some((_, choice)) = choices.iter().find(|(wire, _)| *wire == text) {
            return Ok(Some(*choice));
        }
        let names: Vec<_> = choices.iter().map(|(wire, _)| *wire).collect();
        Err(self.faults.note(Fault::not_one_of(&names, at(name))))
    }

    /// An integer with a default.
    pub(crate) fn int_or(&mut self, name: &'static str, range: IntRange, default: u32) -> Read<u32> {
        let Some(text) = self.find(name)? else {
            return Ok(default);
        };
        let (negative, digits) = text
            .strip_prefix('-')
            .map_or((false, text.as_str()), |rest| (true, rest));
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            let fault = Fault::wrong_type("int_parsing", "an integer", at(name));
            return Err(self.faults.note(fault));
        }
        // Digits that do not fit lie beyond any range.
        let end = if negative { i64::MIN } else { i64::MAX };
        match range.check(text.parse().unwrap_or(end)) {
            Ok(value) => Ok(u32::try_from(value).unwrap_or(u32::MAX)),
            Err(end) => Err(self.faults.note(end.fault(at(name)))),
        }
    }

    /// Builds the request when nothing is wrong.
    ///
    /// # Errors
    /// 422 with every fault of the query.
    pub(crate) fn finish<T>(self, request: Read<T>) -> Result<T, Problem> {
        match request {
            Ok(request) if self.faults.is_empty() => Ok(request),
            _ => Err(Problem::invalid_request(&self.faults)),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::ScopeId;

    use super::*;

    const LIMIT: IntRange = IntRange { min: 1, max: 100 };

    fn limit(raw: &str) -> Result<u32, Problem> {
        let mut query = Query::new(Some(raw));
        let limit = query.int_or("limit", LIMIT, 50);
        query.finish(limit)
    }

    #[test]
    fn a_limit_is_a_plain_decimal_in_its_range() {
        for (raw, value) in [
            ("", 50),
            ("other=1", 50),
            ("limit=1", 1),
            ("limit=100", 100),
            ("limit=007", 7),
            ("li%6dit=7", 7),
        ] {
            assert_eq!(limit(raw).ok(), Some(value), "{raw}");
        }
        for raw in [
            "limit",
            "limit=",
            "limit=0",
            "limit=-1",
            "limit=101",
            "limit=1000000000",
            "limit=1.0",
            "limit=%31%",
            "limit=+1",
            "limit=1e1",
            "limit=99999999999999999999999",
            "limit=-99999999999999999999999",
            "limit=1&limit=1",
            "limit=\u{ff11}",
        ] {
            assert!(limit(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn values_are_decoded_strictly_and_unknown_parameters_are_ignored() {
        let scope = |raw| {
            let mut query = Query::new(Some(raw));
            let scope = query.id("scope_id", ScopeId::parse);
            query.finish(scope).map(|scope| scope.map(String::from))
        };
        assert_eq!(scope("x=%zz&y=%ff&=&&%").ok(), Some(None));
        assert_eq!(
            scope("scope_id=a+b%20c%2B%C3%A9").ok(),
            Some(Some("a b c+é".to_owned()))
        );
        for raw in [
            "scope_id=%ff",
            "scope_id=%e2%82",
            "scope_id=%2",
            "scope_id=%zz",
            "scope_id=",
            "scope_id=+",
            "scope_id=%00",
            "scope_id=a%E2%80%AEb",
            "scope_id=a&scope_id=b",
        ] {
            assert!(scope(raw).is_err(), "{raw}");
        }
    }
}
