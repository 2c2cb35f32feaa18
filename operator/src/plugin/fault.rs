//! What can go wrong for a person: each message says what happened, where, and what to do about it.
//!
//! A person sees what the API server answered to their own request; the operator's own log never does.

use std::fmt;

use super::{ABSENT, FAILED, FORBIDDEN};
use crate::error::Fault;

const UNAUTHORIZED_CODE: u16 = 401;
const FORBIDDEN_CODE: u16 = 403;
const NOT_FOUND_CODE: u16 = 404;

/// What was asked of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespace: String,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            namespace,
        } = self;
        write!(f, "{verb} {resource} in namespace {namespace}")
    }
}

/// Why the plugin did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    #[error(
        "no cluster is known: {0}. Name a kubeconfig with --kubeconfig or KUBECONFIG, and a context in it with --context"
    )]
    Config(String),
    #[error("the API server at {server} does not answer: {why}")]
    Unreachable { server: String, why: String },
    #[error(
        "the API server does not know you (401). Log in again, or name other credentials with --context or --kubeconfig"
    )]
    Unauthorized,
    #[error(
        "you may not {0}. Ask an administrator of the cluster for that right; docs/guides/plugin.md lists what each command needs"
    )]
    Forbidden(Asked),
    #[error(
        "this cluster has no PowerContextDeployments: the definition powercontextdeployments.powercontext.io is not installed. \
         Install the operator's chart, or apply crds/"
    )]
    NoDefinition,
    #[error("there is no PowerContextDeployment {name} in namespace {namespace}{}", others(there.as_deref()))]
    NoDeployment {
        name: String,
        namespace: String,
        /// Those that there are; `None` where they may not be listed.
        there: Option<Vec<String>>,
    },
    #[error("there is no PowerContextDeployment in namespace {0}. Name another namespace with --namespace")]
    NoneAtAll(String),
    #[error("namespace {namespace} has several PowerContextDeployments; name one of them: {}", there.join(", "))]
    Which { namespace: String, there: Vec<String> },
    #[error("{0}")]
    Missing(String),
    #[error("the API server refused to {asked} ({code} {reason}): {message}")]
    Refused {
        asked: Asked,
        code: u16,
        reason: String,
        message: String,
    },
    #[error("{0}")]
    Impossible(String),
    #[error("it is written, but nothing followed within {seconds} s: {operator}")]
    NotFollowed { seconds: u64, operator: String },
    #[error("{place}: {why}")]
    File { place: String, why: String },
    #[error("{0}")]
    Api(String),
}

fn others(there: Option<&[String]>) -> String {
    match there {
        Some([]) => "; there is none at all. Name another namespace with --namespace".to_owned(),
        Some(names) => format!("; there is {}", names.join(", ")),
        None => String::new(),
    }
}

impl PluginError {
    /// The exit status of the process.
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::NoDefinition
            | Self::NoDeployment { .. }
            | Self::NoneAtAll(_)
            | Self::Which { .. }
            | Self::Missing(_) => ABSENT,
            Self::Forbidden(_) | Self::Unauthorized => FORBIDDEN,
            _ => FAILED,
        }
    }

    /// From an answer to what was asked.
    pub(super) fn of(error: &kube::Error, asked: Asked, server: &str) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                UNAUTHORIZED_CODE => Self::Unauthorized,
                FORBIDDEN_CODE => Self::Forbidden(asked),
                NOT_FOUND_CODE if asked.resource == super::cluster::DEPLOYMENTS && status.details.is_none() => {
                    Self::NoDefinition
                }
                code => Self::Refused {
                    asked,
                    code,
                    reason: status.reason.clone(),
                    message: status.message.clone(),
                },
            },
            other => Self::Unreachable {
                server: server.to_owned(),
                why: innermost(other),
            },
        }
    }

    /// From a step of the operator that the plugin uses.
    pub(super) fn of_fault(fault: &Fault, asked: Asked, server: &str) -> Self {
        match fault.code {
            0 => Self::Unreachable {
                server: server.to_owned(),
                why: "no answer".to_owned(),
            },
            UNAUTHORIZED_CODE => Self::Unauthorized,
            FORBIDDEN_CODE => Self::Forbidden(asked),
            code => Self::Refused {
                asked,
                code,
                reason: fault.reason.clone(),
                message: fault.fields.join(", "),
            },
        }
    }
}

/// The last cause that an error names, which says most.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn asked(resource: &'static str) -> Asked {
        Asked {
            verb: "get",
            resource,
            namespace: "demo".to_owned(),
        }
    }

    fn answered(code: u16, details: bool, resource: &'static str) -> PluginError {
        let status = Status {
            code,
            reason: "Reason".to_owned(),
            message: "said".to_owned(),
            details: details.then(|| serde_json::from_value(serde_json::json!({ "name": "x" })).expect("details")),
            ..Status::default()
        };
        PluginError::of(&kube::Error::Api(Box::new(status)), asked(resource), "https://x")
    }

    #[test]
    fn an_answer_becomes_what_a_person_can_do_something_about() {
        for (error, says, status) in [
            (answered(403, true, "pods"), "you may not get pods in namespace demo", 4),
            (answered(401, true, "pods"), "does not know you", 4),
            (answered(404, false, "powercontextdeployments"), "is not installed", 3),
            (answered(422, true, "pods"), "(422 Reason): said", 1),
            (
                PluginError::NoDeployment {
                    name: "x".to_owned(),
                    namespace: "demo".to_owned(),
                    there: Some(vec!["a".to_owned(), "b".to_owned()]),
                },
                "no PowerContextDeployment x in namespace demo; there is a, b",
                3,
            ),
            (
                PluginError::NoneAtAll("demo".to_owned()),
                "no PowerContextDeployment in namespace demo",
                3,
            ),
        ] {
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.status(), status, "{error}");
        }
    }
}
