//! Rules of one setting: how its text is read, and the same rule in words.
//!
//! Words and reading stand in one value, so that the reference cannot say one thing and the server do another. What a
//! rule refuses never holds the text.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use powercontext_core::time::Span;
use secrecy::SecretString;

/// Why a text is refused.
pub(super) type Reason = Cow<'static, str>;

/// How a setting is read.
pub(super) trait Rule: Sync {
    /// What it reads.
    type Out;

    /// What is accepted, to follow "must be".
    fn accepted(&self) -> Cow<'static, str>;

    /// Reads a text; `None` when it is not what [`Rule::accepted`] says.
    fn read(&self, text: &str) -> Option<Self::Out>;

    /// A better reason than what is accepted, for texts that people will try.
    fn refused(&self, _text: &str) -> Option<Reason> {
        None
    }

    /// A text that was accepted as anybody may see it; `None` when nothing of it may be seen.
    fn shown(&self, text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// Whether an empty text is the same as none.
    fn is_empty_unset(&self) -> bool {
        false
    }

    /// Reads a text or says why not.
    fn parse(&self, text: &str) -> Result<Self::Out, Reason> {
        self.read(text).ok_or_else(|| {
            self.refused(text)
                .unwrap_or_else(|| format!("must be {}", self.accepted()).into())
        })
    }
}

/// A whole number.
pub(super) struct Whole(pub(super) RangeInclusive<u32>);

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

impl Rule for Whole {
    type Out = u32;

    fn accepted(&self) -> Cow<'static, str> {
        format!("a whole number from {} to {}", self.0.start(), self.0.end()).into()
    }

    fn read(&self, text: &str) -> Option<u32> {
        let number = digits(text).and_then(|n| u32::try_from(n).ok())?;
        self.0.contains(&number).then_some(number)
    }
}

/// Whole seconds.
pub(super) struct Seconds(pub(super) RangeInclusive<u64>);

impl Rule for Seconds {
    type Out = Span;

    fn accepted(&self) -> Cow<'static, str> {
        format!("whole seconds from {} to {}", self.0.start(), self.0.end()).into()
    }

    fn read(&self, text: &str) -> Option<Span> {
        let seconds = digits(text)?;
        self.0.contains(&seconds).then(|| Span::seconds(seconds))
    }
}

/// Seconds with up to three decimals; the range is in milliseconds.
pub(super) struct Millis(pub(super) RangeInclusive<u64>);

fn seconds_text(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Rule for Millis {
    type Out = Span;

    fn accepted(&self) -> Cow<'static, str> {
        let (from, to) = (seconds_text(*self.0.start()), seconds_text(*self.0.end()));
        format!("seconds from {from} to {to}, with at most three decimals").into()
    }

    fn read(&self, text: &str) -> Option<Span> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        if decimals.is_empty() || decimals.len() > 3 {
            return None;
        }
        let millis = digits(whole)? * 1000 + digits(&format!("{decimals:0<3}"))?;
        self.0.contains(&millis).then(|| Span::millis(millis))
    }
}

/// Why a setting of a family without a processor is refused.
pub(super) const NO_PROCESSOR: &str = "this build has no processor that could be scheduled for this family";

/// A setting that must not be set, because nothing would happen.
pub(super) struct NoProcessor;

impl Rule for NoProcessor {
    type Out = ();

    fn accepted(&self) -> Cow<'static, str> {
        "left unset (empty means unset)".into()
    }

    fn read(&self, _text: &str) -> Option<()> {
        None
    }

    fn refused(&self, _text: &str) -> Option<Reason> {
        Some(NO_PROCESSOR.into())
    }

    fn is_empty_unset(&self) -> bool {
        true
    }
}

/// Yes or no.
pub(super) struct Flag;

impl Rule for Flag {
    type Out = bool;

    fn accepted(&self) -> Cow<'static, str> {
        "true or false (also 1, 0, yes, no, on, off)".into()
    }

    fn read(&self, text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

/// One of some names.
pub(super) struct OneOf<T: 'static> {
    /// The names, and what they mean.
    pub(super) names: &'static [(&'static str, T)],
    /// Whether upper and lower case are the same.
    pub(super) any_case: bool,
    /// Names that are refused for a reason of their own.
    pub(super) refused: &'static [(&'static str, &'static str)],
}

impl<T: Copy + Sync> Rule for OneOf<T> {
    type Out = T;

    fn accepted(&self) -> Cow<'static, str> {
        match self.names {
            [(name, _)] => Cow::Borrowed(name),
            names => {
                let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
                format!("one of {}", names.join(", ")).into()
            }
        }
    }

    fn read(&self, text: &str) -> Option<T> {
        let same = |name: &str| name == text || (self.any_case && name.eq_ignore_ascii_case(text));
        self.names.iter().find(|(name, _)| same(name)).map(|(_, value)| *value)
    }

    fn refused(&self, text: &str) -> Option<Reason> {
        let found = self.refused.iter().find(|(name, _)| *name == text);
        found.map(|(_, reason)| Cow::Borrowed(*reason))
    }
}

/// A label: some text without blanks around it.
pub(super) struct Label {
    /// Longest, in characters.
    pub(super) chars_max: usize,
}

impl Rule for Label {
    type Out = String;

    fn accepted(&self) -> Cow<'static, str> {
        format!(
            "1 to {} characters once trimmed, none of them a control character",
            self.chars_max
        )
        .into()
    }

    fn read(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let fits = (1..=self.chars_max).contains(&text.chars().count());
        (fits && !text.chars().any(char::is_control)).then(|| text.to_owned())
    }
}

/// What older configurations say and nobody reads any more.
pub(super) struct Ignored;

impl Rule for Ignored {
    type Out = ();

    fn accepted(&self) -> Cow<'static, str> {
        "any text (empty means unset)".into()
    }

    fn read(&self, _text: &str) -> Option<()> {
        Some(())
    }

    fn is_empty_unset(&self) -> bool {
        true
    }
}

/// A secret; an empty one is none.
pub(super) struct Secret;

impl Rule for Secret {
    type Out = SecretString;

    fn accepted(&self) -> Cow<'static, str> {
        "printable ASCII characters, at most 4096 (empty means unset)".into()
    }

    fn read(&self, text: &str) -> Option<SecretString> {
        let fits = text.len() <= 4096 && text.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| SecretString::from(text))
    }

    fn shown(&self, _text: &str) -> Option<String> {
        None
    }

    fn is_empty_unset(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn table<R: Rule>(rule: &R, good: &[(&str, R::Out)], bad: &[&str])
    where
        R::Out: PartialEq + std::fmt::Debug,
    {
        for (text, value) in good {
            assert_eq!(rule.parse(text).as_ref(), Ok(value), "{text:?}");
        }
        for text in bad {
            assert!(rule.parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn whole_numbers_are_read_at_their_limits_and_refused_one_past_them() {
        let bad = [
            "2",
            "11",
            "",
            " 3",
            "3.0",
            "+3",
            "-3",
            "3e0",
            "x",
            "4294967299",
            "99999999999999999999",
        ];
        table(&Whole(3..=10), &[("3", 3), ("10", 10), ("007", 7)], &bad);
        assert_eq!(
            Whole(3..=10).parse("x"),
            Err("must be a whole number from 3 to 10".into())
        );
    }

    #[test]
    fn seconds_are_read_at_their_limits_and_refused_one_past_them() {
        table(
            &Seconds(1..=60),
            &[("1", Span::seconds(1)), ("60", Span::seconds(60))],
            &["0", "61", "1.5", "1s", ""],
        );
    }

    #[test]
    fn seconds_with_decimals_are_exact_to_the_millisecond() {
        table(
            &Millis(1..=30_000),
            &[
                ("0.2", Span::millis(200)),
                ("0.001", Span::millis(1)),
                ("30", Span::seconds(30)),
                ("30.000", Span::seconds(30)),
                ("1.25", Span::millis(1250)),
            ],
            &[
                "0", "0.0009", "30.001", "1e3", "inf", "nan", "-1", "1.", ".5", "1.2.3", "", "1,5",
            ],
        );
        let accepted = Millis(1..=30_000).accepted();
        assert_eq!(accepted, "seconds from 0.001 to 30, with at most three decimals");
    }

    #[test]
    fn yes_and_no_have_many_names_and_no_others() {
        table(
            &Flag,
            &[
                ("true", true),
                ("TRUE", true),
                ("1", true),
                ("off", false),
                ("No", false),
            ],
            &["", "2", "y", "enabled"],
        );
    }

    #[test]
    fn names_are_matched_whole_and_some_are_refused_with_their_own_reason() {
        let rule = OneOf {
            names: &[("a", 1), ("b", 2)],
            any_case: false,
            refused: &[("c", "c comes later")],
        };
        table(&rule, &[("a", 1), ("b", 2)], &["A", "", "ab"]);
        assert_eq!(rule.parse("c"), Err("c comes later".into()));
        assert_eq!(rule.parse("d"), Err("must be one of a, b".into()));
        let rule = OneOf { any_case: true, ..rule };
        table(&rule, &[("A", 1)], &["d"]);
    }

    #[test]
    fn labels_are_trimmed_and_counted_in_characters() {
        let rule = Label { chars_max: 3 };
        table(
            &rule,
            &[(" é字x ", "é字x".to_owned()), ("a", "a".to_owned())],
            &["", "  ", "abcd", "a\nb"],
        );
    }

    #[test]
    fn a_secret_is_what_a_header_can_carry() {
        let read = |text: &str| Secret.read(text).map(|s| s.expose_secret().to_owned());
        assert_eq!(read("sk-1"), Some("sk-1".to_owned()));
        for bad in ["a b", "a\n", "é", &"x".repeat(4097)] {
            assert_eq!(read(bad), None);
        }
        assert!(read(&"x".repeat(4096)).is_some());
    }
}
