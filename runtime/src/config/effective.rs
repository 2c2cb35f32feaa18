//! The settings that hold, as anybody may see them: each with its value and where that came from.
//!
//! What a rule keeps hidden is hidden here, whatever its value. A setting that nobody set and that has no default of its
//! own shows what follows for it from the others, where something does.

use super::deployment::DeploymentMode;
use super::fault::Origin;
use super::keys::{self, Default, Documented, GROUPS};
use super::names::{DatabaseKind, DatabaseLocation};
use super::reader::Reader;
use super::settings::Settings;

/// What a setting says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// This, with secret parts left out.
    Text(String),
    /// Something that nobody may see.
    Hidden,
    /// Nothing.
    Unset,
}

/// A setting that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// Heading of the reference that it stands under.
    pub group: &'static str,
    /// The variable.
    pub name: &'static str,
    /// What it says.
    pub value: Shown,
    /// Where that came from.
    pub origin: Origin,
}

/// What the sources say, for every setting.
pub(super) fn given(reader: &Reader) -> Vec<Effective> {
    let of = |group: &'static str, key: &dyn Documented| {
        let found = reader
            .text(key.name())
            .filter(|(text, _)| !(text.is_empty() && key.is_empty_unset()));
        let (value, origin) = match (found, key.default()) {
            (Some((text, origin)), _) => (shown(key, text), origin),
            (None, Default::Text(text)) => (shown(key, text), Origin::Default),
            (None, Default::Unset(_)) => (Shown::Unset, Origin::Default),
        };
        Effective {
            group,
            name: key.name(),
            value,
            origin,
        }
    };
    let groups = GROUPS.iter();
    groups
        .flat_map(|group| group.keys.iter().map(move |key| of(group.title, *key)))
        .collect()
}

fn shown(key: &dyn Documented, text: &str) -> Shown {
    key.shown(text).map_or(Shown::Hidden, Shown::Text)
}

/// Completes what nobody set by what follows from the other settings.
pub(super) fn with_derived(mut given: Vec<Effective>, settings: &Settings) -> Vec<Effective> {
    for (name, text) in derived(settings) {
        let unset = given
            .iter_mut()
            .find(|setting| setting.name == name && setting.value == Shown::Unset);
        if let Some(setting) = unset {
            setting.value = Shown::Text(text);
        }
    }
    given
}

fn derived(settings: &Settings) -> Vec<(&'static str, String)> {
    let kind = match settings.database.location.kind() {
        DatabaseKind::Sqlite => "sqlite",
        DatabaseKind::OceanBase => "oceanbase",
    };
    let mut derived = vec![
        (keys::DATABASE_KIND.name, kind.to_owned()),
        (keys::WORKER_CONCURRENCY.name, settings.worker.concurrency.to_string()),
        (keys::DEPLOYMENT_ROLE.name, settings.deployment.role.to_string()),
    ];
    let mode = match settings.deployment.mode {
        DeploymentMode::SingleNode => "single_node",
        DeploymentMode::Distributed => "distributed",
    };
    derived.push((keys::DEPLOYMENT_MODE.name, mode.to_owned()));
    let cap = settings.memory.workers_max.map(|cap| cap.to_string());
    derived.extend(cap.map(|cap| (keys::RUNTIME_MEMORY_MAX_WORKERS.name, cap)));
    if let DatabaseLocation::Sqlite(path) = &settings.database.location {
        derived.push((keys::DATABASE_URL.name, format!("sqlite at {}", path.display())));
    }
    derived.push((keys::TRACING_ENABLED.name, settings.tracing.is_some().to_string()));
    if let Some(generation) = &settings.generation {
        let url = Documented::shown(&keys::INFERENCE_GENERATION_BASE_URL, &generation.base_url);
        derived.extend(url.map(|url| (keys::INFERENCE_GENERATION_BASE_URL.name, url)));
    }
    derived
}
