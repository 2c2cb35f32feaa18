//! The list cursor: unpadded base64url of the JSON pair [creation, id] of the last item shown. Opaque to clients.
//!
//! It names a place, not a row: whoever makes one up sees no more than a list without cursor shows, so it is not
//! signed. It is read strictly all the same, because a cursor that is accepted by half would skip items silently.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use powercontext_core::ids::WorkId;

use super::app::OperationCursor;
use super::time::{parse_rfc3339, rfc3339};

/// Longest cursor that is looked at, in bytes; a real one has about 95.
const CURSOR_BYTES_MAX: usize = 256;

/// Writes a place in the list.
pub(crate) fn encode(cursor: OperationCursor) -> String {
    URL_SAFE_NO_PAD.encode(pair(cursor))
}

/// Reads what [`encode`] wrote; `None` for anything else.
pub(crate) fn decode(text: &str) -> Option<OperationCursor> {
    if text.len() > CURSOR_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (created_at, id): (String, String) = serde_json::from_slice(&bytes).ok()?;
    let cursor = OperationCursor {
        created_at: parse_rfc3339(&created_at)?,
        id: WorkId::parse(&id).ok()?,
    };
    (pair(cursor).as_bytes() == bytes).then_some(cursor)
}

// Neither part holds a character that JSON escapes.
fn pair(cursor: OperationCursor) -> String {
    format!("[\"{}\",\"{}\"]", rfc3339(cursor.created_at), cursor.id)
}

#[cfg(test)]
mod tests {
    use powercontext_core::time::DbTime;

    use super::*;

    fn cursor() -> OperationCursor {
        OperationCursor {
            created_at: DbTime::from_micros(1_764_000_000_000_001),
            id: WorkId::parse("0198f0c2-8b1e-7c3a-9d52-3f7f4f0a1b2c").expect("an id"),
        }
    }

    #[test]
    fn a_cursor_reads_back() {
        let text = encode(cursor());
        assert!(!text.contains(['=', '+', '/']));
        assert_eq!(decode(&text), Some(cursor()));
    }

    #[test]
    fn every_truncation_is_refused() {
        let text = encode(cursor());
        for end in 0..text.len() {
            assert_eq!(decode(&text[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn forged_cursors_are_refused() {
        let id = "0198f0c2-8b1e-7c3a-9d52-3f7f4f0a1b2c";
        for json in [
            "null".to_owned(),
            "[]".to_owned(),
            format!("[0,\"{id}\"]"),
            format!("[\"2025-11-24T16:00:00Z\",\"{id}\"]"),
            format!("[\"2025-11-24T16:00:00.000001Z\",\"{}\"]", id.to_uppercase()),
            format!("[\"2025-11-24T16:00:00.000001Z\", \"{id}\"]"),
            format!("[\"2025-11-24T16:00:00.000001Z\",\"{id}\",1]"),
            format!("{{\"created_at\":\"2025-11-24T16:00:00.000001Z\",\"id\":\"{id}\"}}"),
        ] {
            assert_eq!(decode(&URL_SAFE_NO_PAD.encode(&json)), None, "{json}");
        }
        let text = encode(cursor());
        assert_eq!(decode(&format!("{text}==")), None);
        assert_eq!(decode(&"A".repeat(1 << 20)), None);
    }
}
