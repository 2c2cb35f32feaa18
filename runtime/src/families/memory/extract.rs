//! Reading the model's answer: closed form, and citations that lead back to exact sources.
//!
//! An answer with one bad candidate is refused whole. Keeping the good ones would make the result depend on how the model
//! failed, and would consume the evidence of the bad one for nothing.

use std::collections::BTreeSet;

use powercontext_core::ids::EntryId;
use powercontext_core::memory::{Candidate, EntryContent, EntryKind, EntryText, EntryVersion, Reason};
use powercontext_core::refs::SourceRef;
use serde::Deserialize;
use serde_json::Value;

/// Most candidates of one answer: two for each source of a full window.
pub(super) const CANDIDATES_MAX: usize = 200;

/// Why an answer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum Invalid {
    /// Not JSON of the schema.
    Schema,
    /// More candidates than an answer may hold.
    TooMany,
    /// A candidate cites nothing.
    NoCitation,
    /// A candidate cites what it was not shown.
    UnknownCitation,
    /// An addition names an entry.
    AddWithEntry,
    /// A revision names no entry.
    ReviseWithoutEntry,
    /// A revision names an entry that is not active.
    ReviseUnknown,
    /// Two revisions name one entry.
    ReviseTwice,
    /// A text that no entry can hold.
    Text,
    /// A reason that is too long.
    Reason,
    /// A candidate cites more than an entry keeps.
    TooManyCitations,
}

impl Invalid {
    /// The reason as the model is told it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Schema => "the answer does not match the schema",
            Self::TooMany => "there are more than 200 candidates",
            Self::NoCitation => "a candidate cites no evidence",
            Self::UnknownCitation => "a candidate cites an evidence_id that is not in the input",
            Self::AddWithEntry => "a candidate with intent add has an entry_id",
            Self::ReviseWithoutEntry => "a candidate with intent revise has no entry_id",
            Self::ReviseUnknown => "a candidate revises an entry_id that is not in current_entries",
            Self::ReviseTwice => "two candidates revise the same entry",
            Self::Text => "the text of a candidate is blank or longer than 8192 bytes",
            Self::Reason => "the reason of a candidate is longer than 512 characters",
            Self::TooManyCitations => "a candidate cites too much evidence",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    candidates: Vec<Proposed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proposed {
    intent: Intent,
    kind: ProposedKind,
    text: String,
    evidence_ids: Vec<String>,
    #[serde(default)]
    entry_id: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Intent {
    Add,
    Revise,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ProposedKind(EntryKind);

impl TryFrom<String> for ProposedKind {
    type Error = &'static str;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        let kind = EntryKind::parse(name).ok().filter(EntryKind::is_extracted);
        kind.map(Self).ok_or("not a kind of the schema")
    }
}

/// Candidates of an answer about `sources`, which the model saw as `source:0`, `source:1` and so on.
///
/// # Errors
/// [`Invalid`] with the first rule that the answer breaks.
pub(super) fn candidates(
    answer: &Value,
    sources: &[SourceRef],
    active: &[EntryVersion],
) -> Result<Vec<Candidate>, Invalid> {
    let answer = Answer::deserialize(answer).map_err(|_| Invalid::Schema)?;
    if answer.candidates.len() > CANDIDATES_MAX {
        return Err(Invalid::TooMany);
    }
    let mut revised = BTreeSet::new();
    answer
        .candidates
        .into_iter()
        .map(|proposed| {
            let target = target(&proposed, active)?;
            if target.as_ref().is_some_and(|id| !revised.insert(id.clone())) {
                return Err(Invalid::ReviseTwice);
            }
            let cited = citations(&proposed.evidence_ids, sources)?;
            let text = EntryText::parse(proposed.text).map_err(|_| Invalid::Text)?;
            let content = EntryContent::new(proposed.kind.0, text, cited, Vec::new());
            let reason = proposed.reason.map(Reason::parse).transpose();
            Ok(Candidate {
                revises: target,
                content: content.map_err(|_| Invalid::TooManyCitations)?,
                reason: reason.map_err(|_| Invalid::Reason)?,
            })
        })
        .collect()
}

fn target(proposed: &Proposed, active: &[EntryVersion]) -> Result<Option<EntryId>, Invalid> {
    match (&proposed.intent, proposed.entry_id.as_deref()) {
        (Intent::Add, None) => Ok(None),
        (Intent::Add, Some(_)) => Err(Invalid::AddWithEntry),
        (Intent::Revise, None) => Err(Invalid::ReviseWithoutEntry),
        (Intent::Revise, Some(id)) => {
            let entry = active.iter().find(|entry| entry.entry_id.as_str() == id);
            entry.map(|e| Some(e.entry_id.clone())).ok_or(Invalid::ReviseUnknown)
        }
    }
}

fn citations(ids: &[String], sources: &[SourceRef]) -> Result<Vec<SourceRef>, Invalid> {
    if ids.is_empty() {
        return Err(Invalid::NoCitation);
    }
    ids.iter()
        .map(|id| {
            // Parsed strictly, so that `source:01` is not another name of `source:1`.
            let number = id.strip_prefix("source:").and_then(|n| n.parse::<usize>().ok());
            let number = number.filter(|n| super::prompt::evidence_id(*n) == *id);
            number
                .and_then(|n| sources.get(n))
                .cloned()
                .ok_or(Invalid::UnknownCitation)
        })
        .collect()
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
