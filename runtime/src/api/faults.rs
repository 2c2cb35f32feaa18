//! What is wrong with a request, place by place: `{type, loc, msg, ctx?}`, as `details.errors` shows it.
//!
//! A fault names the member and the rule and never the value: messages are made of constants and numbers. The one text
//! of a client that can appear is the name of an unknown member, and only when it is short and printable.

use powercontext_core::ids::TextFault;
use powercontext_core::memory::EntryFault;
use serde_json::{Map, Value, json};

/// Most faults that one answer lists.
pub const FAULTS_MAX: usize = 32;
/// Longest name of an unknown member that is shown, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// One step of a path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A member, or `body`, `query`, `path`.
    Name(String),
    /// An element of an array, from 0.
    Index(usize),
}

impl From<&str> for Place {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl Place {
    /// A name that a client chose; one that is long or not printable ASCII becomes `?`.
    pub fn unknown(name: &str) -> Self {
        let shown = name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic());
        Self::Name(if shown { name.to_owned() } else { "?".to_owned() })
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Name(name) => json!(name),
            Self::Index(at) => json!(at),
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    kind: &'static str,
    loc: Vec<Place>,
    msg: String,
    ctx: Option<Value>,
}

impl Fault {
    fn new(kind: &'static str, loc: Vec<Place>, msg: impl Into<String>) -> Self {
        let msg = msg.into();
        Self {
            kind,
            loc,
            msg,
            ctx: None,
        }
    }

    fn with(mut self, ctx: Value) -> Self {
        self.ctx = Some(ctx);
        self
    }

    /// A required member is not there.
    pub fn missing(loc: Vec<Place>) -> Self {
        Self::new("missing", loc, "field is required")
    }

    /// A member that the request does not have.
    pub fn extra_forbidden(loc: Vec<Place>) -> Self {
        Self::new("extra_forbidden", loc, "extra fields are not permitted")
    }

    /// A body that is not the JSON it should be; `reason` is one of a few constants.
    pub fn json_invalid(reason: &'static str, line: usize, column: usize) -> Self {
        Self::new("json_invalid", vec!["body".into()], "body is not acceptable JSON").with(json!({
            "error": reason, "line": line, "column": column
        }))
    }

    /// A value of another JSON type. `kind` is the type's code, such as `int_type`.
    pub fn wrong_type(kind: &'static str, wanted: &'static str, loc: Vec<Place>) -> Self {
        Self::new(kind, loc, format!("value must be {wanted}"))
    }

    /// A rule that has no code of its own; `msg` is a constant.
    pub fn value_error(msg: &'static str, loc: Vec<Place>) -> Self {
        Self::new("value_error", loc, msg)
    }

    /// A number below its range.
    pub fn too_small(min: i64, loc: Vec<Place>) -> Self {
        Self::new(
            "greater_than_equal",
            loc,
            format!("value must be greater than or equal to {min}"),
        )
        .with(json!({ "ge": min }))
    }

    /// A number above its range.
    pub fn too_great(max: i64, loc: Vec<Place>) -> Self {
        Self::new(
            "less_than_equal",
            loc,
            format!("value must be less than or equal to {max}"),
        )
        .with(json!({ "le": max }))
    }

    /// A name that is none of a closed set.
    pub fn not_one_of(names: &[&'static str], loc: Vec<Place>) -> Self {
        let expected = names.join(", ");
        Self::new("enum", loc, format!("value must be one of: {expected}")).with(json!({ "expected": names }))
    }

    /// A text with fewer characters than its minimum.
    pub fn too_short(min: usize, loc: Vec<Place>) -> Self {
        Self::new(
            "string_too_short",
            loc,
            format!("value must have at least {min} character(s)"),
        )
        .with(json!({ "min_length": min }))
    }

    /// A text with more characters than its maximum.
    pub fn too_long(max: usize, loc: Vec<Place>) -> Self {
        Self::new(
            "string_too_long",
            loc,
            format!("value must have at most {max} character(s)"),
        )
        .with(json!({ "max_length": max }))
    }

    /// A text of another form.
    pub fn pattern(pattern: &'static str, loc: Vec<Place>) -> Self {
        Self::new(
            "string_pattern_mismatch",
            loc,
            format!("value must match the pattern {pattern}"),
        )
        .with(json!({ "pattern": pattern }))
    }

    /// What `core` says about an identifier.
    pub fn of_text(loc: Vec<Place>, fault: TextFault) -> Self {
        match fault {
            TextFault::Blank => Self::pattern("\\S", loc),
            TextFault::TooLong { max_chars } => Self::too_long(max_chars, loc),
            TextFault::Control { at } => Self::new(
                "value_error",
                loc,
                "value must not hold control or text-direction characters",
            )
            .with(json!({ "at": at })),
            TextFault::Pattern { pattern } => Self::pattern(pattern, loc),
        }
    }

    /// What `core` says about a part of a memory entry.
    pub fn of_entry(loc: Vec<Place>, fault: EntryFault) -> Self {
        match fault {
            EntryFault::Kind(fault) => Self::of_text(loc, fault),
            EntryFault::TextBlank => Self::pattern("\\S", loc),
            EntryFault::TextNul => Self::value_error("value must not hold NUL characters", loc),
            EntryFault::ReasonTooLong { chars_max } => Self::too_long(chars_max, loc),
            EntryFault::TextTooLong { bytes_max } => Self::new(
                "value_error",
                loc,
                format!("value must have at most {bytes_max} bytes of UTF-8 once normalised"),
            )
            .with(json!({ "max_bytes": bytes_max })),
            EntryFault::TooManyRefs { .. } | EntryFault::Hash => Self::value_error("value is not acceptable", loc),
        }
    }

    fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("type".to_owned(), json!(self.kind));
        object.insert("loc".to_owned(), self.loc.iter().map(Place::to_json).collect());
        object.insert("msg".to_owned(), json!(self.msg));
        if let Some(ctx) = &self.ctx {
            object.insert("ctx".to_owned(), ctx.clone());
        }
        Value::Object(object)
    }
}

/// A fault was noted; there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted;

/// A value read, or the note that there is none.
pub type Read<T> = Result<T, Noted>;

/// Every fault of a request, up to [`FAULTS_MAX`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// A single fault.
    pub fn one(fault: Fault) -> Self {
        Self(vec![fault])
    }

    /// Notes a fault; those beyond [`FAULTS_MAX`] are dropped.
    pub fn note(&mut self, fault: Fault) -> Noted {
        if self.0.len() < FAULTS_MAX {
            self.0.push(fault);
        }
        Noted
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The array of `details.errors`.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(Fault::to_json).collect()
    }
}
