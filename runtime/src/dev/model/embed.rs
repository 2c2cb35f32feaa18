//! Vectors from hashes: each token of a text adds to one dimension, so texts that share words lie near each other.

use powercontext_core::memory::analyzer::tokens;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Dimensions unless the request names another number.
const DIMENSIONS: usize = 64;
/// Most dimensions that a request may ask for.
const DIMENSIONS_MAX: usize = 4096;
/// Most texts of one request.
const INPUTS_MAX: usize = 2048;

/// The response to an embeddings request; `None` when the request makes no sense.
pub(super) fn response(body: &Value) -> Option<Value> {
    let texts: Vec<&str> = match &body["input"] {
        Value::String(text) => vec![text],
        Value::Array(items) if items.len() <= INPUTS_MAX => {
            items.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?
        }
        _ => return None,
    };
    let dimensions = match &body["dimensions"] {
        Value::Null => DIMENSIONS,
        number => usize::try_from(number.as_u64()?).ok()?,
    };
    if texts.is_empty() || !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        return None;
    }
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text, dimensions)}))
        .collect();
    let read: usize = texts.iter().map(|t| t.len().div_ceil(4)).sum();
    Some(json!({
        "object": "list",
        "data": data,
        "model": body["model"],
        "usage": {"prompt_tokens": read, "total_tokens": read},
    }))
}

/// A unit vector.
fn vector(text: &str, dimensions: usize) -> Vec<f64> {
    let mut sums = vec![0.0_f64; dimensions];
    let mut tokens = tokens(text);
    if tokens.is_empty() {
        tokens.push(text.to_owned());
    }
    for token in tokens {
        let digest = Sha256::digest(token.as_bytes());
        let place = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) as usize % dimensions;
        sums[place] += if digest[4] & 1 == 0 { 1.0 } else { -1.0 };
    }
    let mut length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
    if length == 0.0 {
        // The tokens cancelled each other; any fixed direction will do.
        sums[0] = 1.0;
        length = 1.0;
    }
    sums.into_iter().map(|x| x / length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(a: &str, b: &str) -> f64 {
        let (a, b) = (vector(a, 256), vector(b, 256));
        a.iter().zip(&b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn vectors_are_of_unit_length_and_the_same_every_time() {
        for text in ["", " ", "the port is 8080", "港は八〇八〇です"] {
            let v = vector(text, DIMENSIONS);
            assert_eq!(v.len(), DIMENSIONS);
            assert!((v.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-9, "{text}");
            assert_eq!(v, vector(text, DIMENSIONS));
        }
    }

    #[test]
    fn texts_that_share_words_lie_nearer() {
        assert!(
            distance("deploy on friday", "we deploy every friday") < distance("deploy on friday", "blue whales sing")
        );
    }

    #[test]
    fn requests_name_one_text_or_many_and_the_dimensions() {
        let one = response(&json!({"model": "m", "input": "a"})).expect("valid");
        assert_eq!(one["data"][0]["embedding"].as_array().map(Vec::len), Some(64));
        let many = response(&json!({"model": "m", "input": ["a", "b"], "dimensions": 3})).expect("valid");
        assert_eq!(many["data"].as_array().map(Vec::len), Some(2));
        assert_eq!(many["data"][1]["embedding"].as_array().map(Vec::len), Some(3));
        for wrong in [
            json!({"input": []}),
            json!({"input": [1]}),
            json!({}),
            json!({"input": "a", "dimensions": 0}),
            json!({"input": "a", "dimensions": 4097}),
            json!({"input": "a", "dimensions": "3"}),
        ] {
            assert_eq!(response(&wrong), None, "{wrong}");
        }
    }
}
