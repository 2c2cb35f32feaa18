//! Members that several requests have.

use axum::extract::FromRequestParts;
use http::request::Parts;
use powercontext_core::ids::{ArtifactId, EntryId, EntryVersionId, FamilyName, ScopeId, WorkId};
use powercontext_core::memory::{EntryKind, EntryText, MemoryCitation, Reason};
use powercontext_core::refs::{ArtifactRef, Revision};

use super::super::app::Principal;
use super::super::faults::{Fault, Faults, Noted, Read};
use super::super::fields::{Fields, IntRange};
use super::super::problem::Problem;

pub(super) fn scope_id(fields: &mut Fields<'_>) -> Read<ScopeId> {
    fields.id("scope_id", |text| ScopeId::parse(text))
}

pub(super) fn kind(fields: &mut Fields<'_>) -> Read<EntryKind> {
    fields.parsed("kind", |text| EntryKind::parse(text), Fault::of_entry)
}

pub(super) fn text(fields: &mut Fields<'_>) -> Read<EntryText> {
    fields.parsed("text", |text| EntryText::parse(text), Fault::of_entry)
}

pub(super) fn reason(fields: &mut Fields<'_>) -> Read<Option<Reason>> {
    fields.parsed_or_null("reason", |text| Reason::parse(text), Fault::of_entry)
}

/// A number that [`IntRange::REVISION`] accepted.
pub(super) fn revision_of(raw: u64) -> Read<Revision> {
    u32::try_from(raw)
        .ok()
        .and_then(|raw| Revision::new(raw).ok())
        .ok_or(Noted)
}

pub(super) fn citation(fields: &mut Fields<'_>) -> Read<MemoryCitation> {
    fields.nested("citation", |fields| {
        let memory_ref = fields.nested("memory_ref", artifact_ref);
        let entry_id = fields.id("entry_id", |text| EntryId::parse(text));
        let entry_version_id = fields.id("entry_version_id", |text| EntryVersionId::parse(text));
        Ok(MemoryCitation {
            memory_ref: memory_ref?,
            entry_id: entry_id?,
            entry_version_id: entry_version_id?,
        })
    })
}

fn artifact_ref(fields: &mut Fields<'_>) -> Read<ArtifactRef> {
    let family = fields.id("family", |text| FamilyName::parse(text));
    let artifact_id = fields.id("artifact_id", |text| ArtifactId::parse(text));
    let revision = fields.int("revision", IntRange::REVISION).and_then(revision_of);
    Ok(ArtifactRef {
        family: family?,
        artifact_id: artifact_id?,
        revision: revision?,
    })
}

/// Body of cancel and retry.
pub(super) fn expected_version(fields: &mut Fields<'_>) -> Read<u64> {
    fields.int("expected_version", IntRange::POSITIVE)
}

/// The `operation_id` of the path.
pub(crate) struct OperationId(pub(super) WorkId);

impl<S: Send + Sync> FromRequestParts<S> for OperationId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let loc = || vec!["path".into(), "operation_id".into()];
        let invalid = |fault| Problem::invalid_request(&Faults::one(fault));
        let axum::extract::Path(text) = axum::extract::Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| invalid(Fault::value_error("value is not percent-encoded UTF-8", loc())))?;
        WorkId::parse(&text)
            .map(Self)
            .map_err(|fault| invalid(Fault::of_text(loc(), fault)))
    }
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    /// What authentication found. A route that it did not see is a defect, and nobody's.
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parts.extensions.get().copied().ok_or_else(Problem::internal_error)
    }
}
