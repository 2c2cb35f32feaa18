//! Canonical JSON: the one byte form of a value, so that hashes and stored contents compare by bytes.
//!
//! The form is that of RFC 8785 for the values used here: object members sorted by their UTF-16 code units, no white
//! space, the shortest string escapes, non-ASCII text as it is. Numbers are integers; a fraction is written as
//! `serde_json` writes it, which no caller relies on.

use serde_json::Value;

/// The canonical text of a value.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (i, (name, member)) in members.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_value(member, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_sorted_by_utf16_and_nothing_is_padded() {
        // U+1F600 is written with surrogates, which sort before U+FB33 although its code point is larger.
        let value = json!({"\u{fb33}": 1, "\u{1f600}": 2, "b": [true, null, {"z": "é", "a": -3}], "B": ""});
        assert_eq!(
            canonical_json(&value),
            "{\"B\":\"\",\"b\":[true,null,{\"a\":-3,\"z\":\"é\"}],\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn strings_take_the_shortest_escapes() {
        let value = json!("\u{8}\t\n\u{c}\r\u{1}\u{1f}\"\\/\u{7f}\u{2028}");
        assert_eq!(
            canonical_json(&value),
            "\"\\b\\t\\n\\f\\r\\u0001\\u001f\\\"\\\\/\u{7f}\u{2028}\""
        );
    }

    #[test]
    fn equal_values_have_one_form_whatever_their_text_was() {
        let a: Value = serde_json::from_str(r#" {"x": 1, "y": [ "\u00e9" ]} "#).expect("valid");
        let b: Value = serde_json::from_str(r#"{"y":["é"],"x":1}"#).expect("valid");
        assert_eq!(canonical_json(&a), canonical_json(&b));
    }
}
