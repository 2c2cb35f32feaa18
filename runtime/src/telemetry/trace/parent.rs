//! The trace that a client is in: the `traceparent` header of W3C Trace Context, level 1.
//!
//! A header that is not exactly that is as good as none, as the specification asks: a request is never refused for it, and
//! nothing of it is kept but two ids of fixed length.

use super::SpanIds;

/// A span of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub(super) ids: SpanIds,
    pub(super) is_sampled: bool,
}

/// Length of the header's known part: version, trace, span, flags.
const LEN: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;

impl Parent {
    /// Reads the header; `None` when it is not valid.
    pub fn from_header(text: &str) -> Option<Self> {
        let is_small_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let known = text.get(..LEN)?;
        let mut parts = known.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let has_form = [(version, 2), (trace, 32), (span, 16), (flags, 2)]
            .iter()
            .all(|(part, len)| part.len() == *len && part.bytes().all(is_small_hex));
        // A later version may say more behind what is known, the present one may not; `ff` is no version.
        let rest = &text[LEN..];
        let is_version = version != "ff" && (rest.is_empty() || (version != "00" && rest.starts_with('-')));
        if !has_form || !is_version || parts.next().is_some() {
            return None;
        }
        Some(Self {
            ids: SpanIds::from_hex(trace, span)?,
            is_sampled: u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_header_is_read_exactly_or_not_at_all() {
        let parent = Parent::from_header(&format!("00-{TRACE}-{SPAN}-01")).expect("valid");
        assert_eq!(
            (parent.ids.trace_hex(), parent.ids.span_hex()),
            (TRACE.into(), SPAN.into())
        );
        assert!(parent.is_sampled);
        for flags in ["00", "02"] {
            let parent = Parent::from_header(&format!("00-{TRACE}-{SPAN}-{flags}")).expect("valid");
            assert!(!parent.is_sampled);
        }
        assert!(Parent::from_header(&format!("cc-{TRACE}-{SPAN}-01-more")).is_some());
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}-zz"),
            format!("00-{SPAN}-{TRACE}-01"),
            format!("00-{TRACE}-{SPAN}-0é"),
        ] {
            assert_eq!(Parent::from_header(&bad), None, "{bad}");
        }
    }
}
