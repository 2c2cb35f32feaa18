//! Reads the members of a closed JSON object and collects every fault at once.
//!
//! A getter that cannot read its value has noted why ([`Noted`]), so a request is built from `?` alone; but only after
//! every getter was called, or a later fault would go unseen.
//! Types are strict: `"5"`, `5.0` and `true` are no integers. A member that no getter asked for is a fault.

use powercontext_core::ids::TextFault;
use serde_json::{Map, Value};

use super::faults::{Fault, Faults, Place, Read};
use super::problem::Problem;

/// Largest integer that every client can hold, 2^53 - 1.
pub(crate) const INTEGER_MAX: i64 = (1 << 53) - 1;

/// Inclusive range of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntRange {
    /// Smallest value.
    pub(crate) min: i64,
    /// Largest value, at most [`INTEGER_MAX`].
    pub(crate) max: i64,
}

impl IntRange {
    /// 0 and up.
    pub(crate) const NATURAL: Self = Self {
        min: 0,
        max: INTEGER_MAX,
    };
    /// 1 and up.
    pub(crate) const POSITIVE: Self = Self {
        min: 1,
        max: INTEGER_MAX,
    };
    /// A revision, 1 and up.
    pub(crate) const REVISION: Self = Self {
        min: 1,
        max: u32::MAX as i64,
    };

    /// The value, or the end of the range that it lies beyond. Both ends are natural numbers.
    pub(super) fn check(self, value: i64) -> Result<u64, RangeEnd> {
        if value < self.min {
            Err(RangeEnd::Min(self.min))
        } else if value > self.max {
            Err(RangeEnd::Max(self.max))
        } else {
            Ok(value.unsigned_abs())
        }
    }
}

/// The end of a range that a value lies beyond.
pub(super) enum RangeEnd {
    Min(i64),
    Max(i64),
}

impl RangeEnd {
    pub(super) fn fault(self, loc: Vec<Place>) -> Fault {
        match self {
            Self::Min(min) => Fault::too_small(min, loc),
            Self::Max(max) => Fault::too_great(max, loc),
        }
    }
}

fn at(loc: &[Place], name: &str) -> Vec<Place> {
    [loc, &[name.into()]].concat()
}

/// Inclusive range of a text's length, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextRange {
    /// Fewest characters.
    pub(crate) min: usize,
    /// Most characters.
    pub(crate) max: usize,
}

/// Reader of one object.
pub(crate) struct Fields<'a> {
    members: &'a Map<String, Value>,
    loc: Vec<Place>,
    known: Vec<&'static str>,
    faults: &'a mut Faults,
}

/// Reads a request body that must be an object: `read` asks for its members and builds the request.
///
/// # Errors
/// 422 with every fault of the body.
pub(crate) fn read_object<T>(body: &Value, read: impl FnOnce(&mut Fields<'_>) -> Read<T>) -> Result<T, Problem> {
    let mut faults = Faults::default();
    let request = read_into(body, vec!["body".into()], &mut faults, read);
    match request {
        Ok(request) if faults.is_empty() => Ok(request),
        _ => Err(Problem::invalid_request(&faults)),
    }
}

fn read_into<T>(
    value: &Value,
    loc: Vec<Place>,
    faults: &mut Faults,
    read: impl FnOnce(&mut Fields<'_>) -> Read<T>,
) -> Read<T> {
    let Value::Object(members) = value else {
        return Err(faults.note(Fault::wrong_type("object_type", "an object", loc)));
    };
    let mut fields = Fields {
        members,
        loc,
        known: Vec::new(),
        faults,
    };
    let request = read(&mut fields);
    fields.refuse_unknown();
    request
}

impl<'a> Fields<'a> {
    fn refuse_unknown(self) {
        for name in self.members.keys() {
            if !self.known.contains(&name.as_str()) {
                let mut loc = self.loc.clone();
                loc.push(Place::unknown(name));
                self.faults.note(Fault::extra_forbidden(loc));
            }
        }
    }

    fn find(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.members.get(name)
    }

    fn find_not_null(&mut self, name: &'static str) -> Option<&'a Value> {
        self.find(name).filter(|value| !value.is_null())
    }

    fn required(&mut self, name: &'static str) -> Read<&'a Value> {
        self.find(name)
            .ok_or_else(|| self.faults.note(Fault::missing(at(&self.loc, name))))
    }

    fn fault<T>(&mut self, name: &str, fault: impl FnOnce(Vec<Place>) -> Fault) -> Read<T> {
        Err(self.faults.note(fault(at(&self.loc, name))))
    }

    fn as_text(&mut self, name: &'static str, value: &'a Value) -> Read<&'a str> {
        match value.as_str() {
            Some(text) => Ok(text),
            None => self.fault(name, |loc| Fault::wrong_type("string_type", "a string", loc)),
        }
    }

    fn as_int(&mut self, name: &'static str, value: &Value, range: IntRange) -> Read<u64> {
        let int = match (value.as_i64(), value.as_u64()) {
            (Some(int), _) => int,
            // Too large for i64, so beyond any range.
            (None, Some(_)) => i64::MAX,
            (None, None) => return self.fault(name, |loc| Fault::wrong_type("int_type", "an integer", loc)),
        };
        match range.check(int) {
            Ok(int) => Ok(int),
            Err(end) => self.fault(name, |loc| end.fault(loc)),
        }
    }

    /// A required text that `parse` accepts or refuses with the fault that `to_fault` describes.
    pub(crate) fn parsed<T, E>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        to_fault: fn(Vec<Place>, E) -> Fault,
    ) -> Read<T> {
        let value = self.required(name)?;
        let text = self.as_text(name, value)?;
        parse(text).or_else(|error| self.fault(name, |loc| to_fault(loc, error)))
    }

    /// A text that may be absent or null and else is as in [`Fields::parsed`].
    pub(crate) fn parsed_or_null<T, E>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        to_fault: fn(Vec<Place>, E) -> Fault,
    ) -> Read<Option<T>> {
        if self.find_not_null(name).is_none() {
            return Ok(None);
        }
        self.parsed(name, parse, to_fault).map(Some)
    }

    /// A required identifier.
    pub(crate) fn id<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, TextFault>) -> Read<T> {
        self.parsed(name, parse, Fault::of_text)
    }

    /// A required text with a length.
    pub(crate) fn text(&mut self, name: &'static str, range: TextRange) -> Read<String> {
        let value = self.required(name)?;
        let text = self.as_text(name, value)?;
        let chars = text.chars().take(range.max + 1).count();
        if chars < range.min {
            self.fault(name, |loc| Fault::too_short(range.min, loc))
        } else if chars > range.max {
            self.fault(name, |loc| Fault::too_long(range.max, loc))
        } else {
            Ok(text.to_owned())
        }
    }

    /// A required integer.
    pub(crate) fn int(&mut self, name: &'static str, range: IntRange) -> Read<u64> {
        let value = self.required(name)?;
        self.as_int(name, value, range)
    }

    /// An integer with a default; null is refused.
    pub(crate) fn int_or(&mut self, name: &'static str, range: IntRange, default: u64) -> Read<u64> {
        match self.find(name) {
            None => Ok(default),
            Some(value) => self.as_int(name, value, range),
        }
    }

    /// An integer that may be absent or null.
    pub(crate) fn int_or_null(&mut self, name: &'static str, range: IntRange) -> Read<Option<u64>> {
        match self.find_not_null(name) {
            None => Ok(None),
            Some(value) => self.as_int(name, value, range).map(Some),
        }
    }

    /// A boolean with a default; null is refused.
    pub(crate) fn flag_or(&mut self, name: &'static str, default: bool) -> Read<bool> {
        match self.find(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => self.fault(name, |loc| Fault::wrong_type("bool_type", "a boolean", loc)),
        }
    }

    /// One of a closed set of names, with a default; null is refused.
    pub(crate) fn choice_or<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        default: T,
    ) -> Read<T> {
        let Some(value) = self.find(name) else {
            return Ok(default);
        };
        let text = self.as_text(name, value)?;
        if let Some((_, choice)) = choices.iter().find(|(wire, _)| *wire == text) {
            return Ok(*choice);
        }
        let names: Vec<_> = choices.iter().map(|(wire, _)| *wire).collect();
        self.fault(name, |loc| Fault::not_one_of(&names, loc))
    }

    /// An open object that may be absent or null.
    pub(crate) fn open_object_or_null(&mut self, name: &'static str) -> Read<Option<Map<String, Value>>> {
        match self.find_not_null(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members.clone())),
            Some(_) => self.fault(name, |loc| Fault::wrong_type("object_type", "an object", loc)),
        }
    }

    /// A required closed object.
    pub(crate) fn nested<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Fields<'_>) -> Read<T>) -> Read<T> {
        let value = self.required(name)?;
        let loc = at(&self.loc, name);
        read_into(value, loc, self.faults, read)
    }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
