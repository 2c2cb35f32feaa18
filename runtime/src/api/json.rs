//! Strict JSON: bytes to a value, or the first reason why not.
//!
//! Stricter than `serde_json` where two readers could understand different things, or where a small body would cost a
//! lot: a member may appear once in its object, nesting and the number of values are bounded. Not-a-number, comments,
//! trailing commas, invalid UTF-8 and lone surrogates are no JSON to begin with.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::faults::Fault;

/// Deepest nesting of arrays and objects.
pub(crate) const JSON_DEPTH_MAX: usize = 64;
/// Most values of one body, members and elements counted together. Without it 4 MiB of `[0,0,…]` take 64 MiB.
pub(crate) const JSON_VALUES_MAX: usize = 100_000;

/// Reads one JSON value.
///
/// # Errors
/// A `json_invalid` fault with reason, line and column.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Fault> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Fault::json_invalid("not UTF-8", 0, 0));
    };
    let state = State {
        left: Cell::new(JSON_VALUES_MAX),
        refused: Cell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let seed = Strict {
        state: &state,
        depth: 0,
    };
    seed.deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| {
            let reason = state
                .refused
                .get()
                .unwrap_or(if error.is_eof() { "ends too early" } else { "not JSON" });
            Fault::json_invalid(reason, error.line(), error.column())
        })
}

struct State {
    left: Cell<usize>,
    refused: Cell<Option<&'static str>>,
}

impl State {
    fn refuse<E: serde::de::Error>(&self, reason: &'static str) -> E {
        self.refused.set(Some(reason));
        E::custom(reason)
    }
}

#[derive(Clone, Copy)]
struct Strict<'s> {
    state: &'s State,
    depth: usize,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(self.state.refuse("nested too deeply"));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(left) = self.state.left.get().checked_sub(1) else {
            return Err(self.state.refuse("too many values"));
        };
        self.state.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| self.state.refuse("number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut elements = Vec::new();
        while let Some(element) = access.next_element_seed(inner)? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if members.contains_key(&name) {
                return Err(self.state.refuse("member given twice"));
            }
            members.insert(name, access.next_value_seed(inner)?);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::faults::Faults;
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        let fault = parse(bytes).expect_err("refused");
        let shown = Faults::one(fault).to_json();
        assert_eq!(shown[0]["type"], "json_invalid");
        assert_eq!(shown[0]["loc"], json!(["body"]));
        shown[0]["ctx"]["error"].as_str().expect("a reason").to_owned()
    }

    #[test]
    fn ordinary_json_is_read_as_it_is() {
        let text = r#" {"a":[1,-2,1.5,true,null,"é😀\ud83d\ude00"],"b":{},"c":18446744073709551615} "#;
        assert_eq!(
            parse(text.as_bytes()).expect("JSON"),
            json!({"a": [1, -2, 1.5, true, null, "é😀😀"], "b": {}, "c": u64::MAX})
        );
    }

    #[test]
    fn a_member_given_twice_is_refused_at_any_level() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"[{"x":{"a":1,"b":2,"a":3}}]"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            assert_eq!(reason(text.as_bytes()), "member given twice", "{text}");
        }
        assert!(parse(br#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#).is_ok());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(reason(nested(JSON_DEPTH_MAX + 1).as_bytes()), "nested too deeply");
        assert_eq!(reason(nested(10_000).as_bytes()), "nested too deeply");
        assert_eq!(reason("{\"a\":".repeat(10_000).as_bytes()), "nested too deeply");
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values - 1));
        assert!(parse(list(JSON_VALUES_MAX - 1).as_bytes()).is_ok());
        assert_eq!(reason(list(JSON_VALUES_MAX).as_bytes()), "too many values");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for (bytes, wanted) in [
            (&b"{\"a\":\"\xff\"}"[..], "not UTF-8"),
            (br#"{"a":"\ud800"}"#, "not JSON"),
            (br#"{"a":"\udc00"}"#, "not JSON"),
            (br#"{"a":"\ud800\u0041"}"#, "not JSON"),
            (b"{\"a\":NaN}", "not JSON"),
            (b"{\"a\":Infinity}", "not JSON"),
            (b"{\"a\":1e999}", "not JSON"),
            (b"{\"a\":01}", "not JSON"),
            (b"{\"a\":1,}", "not JSON"),
            (b"{'a':1}", "not JSON"),
            (b"{\"a\":\"\n\"}", "not JSON"),
            (b"{} {}", "not JSON"),
            (b"\xef\xbb\xbf{}", "not JSON"),
            (b"", "ends too early"),
            (b"  ", "ends too early"),
            (b"{\"a\":", "ends too early"),
            (b"{\"a\":\"x", "ends too early"),
        ] {
            assert_eq!(reason(bytes), wanted, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn no_fault_repeats_the_value() {
        let fault = parse(br#"{"a":secret-value}"#).expect_err("refused");
        assert!(!Faults::one(fault).to_json().to_string().contains("secret"));
    }
}
