//! What can go wrong in a reconcile: a variant for each step, whose name is the metric's label.
//!
//! An answer of the API server may quote what it was sent. What is told of it is its code, its reason and the fields it
//! names, never its text.

use std::fmt;

use crate::object::Key;

/// A step of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reading the resource.
    Read,
    /// Reading secrets.
    Dereference,
    /// Looking at what is there.
    Observe,
    /// Changing the cluster.
    Apply,
    /// Writing the status.
    Status,
    /// Publishing an event.
    Event,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Dereference,
        Self::Observe,
        Self::Apply,
        Self::Status,
        Self::Event,
    ];

    /// Label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Dereference => "dereference",
            Self::Observe => "observe",
            Self::Apply => "apply",
            Self::Status => "status",
            Self::Event => "event",
        }
    }
}

/// A step that failed. It is tried again with growing gaps.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", step.as_str())]
pub struct ReconcileError {
    /// Which step.
    pub step: Step,
    /// What failed; holds nothing that was sent.
    pub fault: Fault,
}

/// What the API server answered, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The object in question.
    pub object: Option<Key>,
    /// HTTP status; 0 when there was no answer.
    pub code: u16,
    /// Kubernetes' reason.
    pub reason: String,
    /// Fields that it names.
    pub fields: Vec<String>,
}

/// Most fields that are named.
const FIELDS_MAX: usize = 5;

impl Fault {
    /// From an error of the client.
    pub fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self {
                object: None,
                code: 0,
                reason: "NoAnswer".to_owned(),
                fields: Vec::new(),
            };
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        Self {
            object: None,
            code: status.code,
            reason: status.reason.clone(),
            fields: causes.map(|cause| cause.field.clone()).take(FIELDS_MAX).collect(),
        }
    }

    /// The same about an object.
    #[must_use]
    pub fn about(mut self, key: &Key) -> Self {
        self.object = Some(key.clone());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.object {
            write!(f, "{} {}: ", key.kind.as_str(), key.name)?;
        }
        match self.code {
            0 => f.write_str("the API server did not answer")?,
            code => write!(f, "the API server answered {code} {}", self.reason)?,
        }
        if !self.fields.is_empty() {
            write!(f, " about {}", self.fields.join(", "))?;
        }
        Ok(())
    }
}

/// Turns an error of the client into that of a step.
pub(crate) fn at(step: Step) -> impl Fn(kube::Error) -> ReconcileError {
    move |error| ReconcileError {
        step,
        fault: Fault::of(&error),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::object::Kind;

    #[test]
    fn what_is_told_of_an_answer_is_its_code_and_never_its_text() {
        let status = Status {
            code: 422,
            reason: "Invalid".to_owned(),
            message: "Invalid value: canary-5b1c".to_owned(),
            ..Status::default()
        };
        let key = Key {
            kind: Kind::Deployment,
            name: "pc-api".to_owned(),
        };
        let fault = Fault::of(&kube::Error::Api(Box::new(status))).about(&key);
        assert_eq!(
            fault.to_string(),
            "Deployment pc-api: the API server answered 422 Invalid"
        );
        assert!(!format!("{fault:?}").contains("canary"));
    }
}
