//! Random words, one for each place that content or a secret can come from, and the list of where each may be found.
//!
//! A word is made of small letters and digits, so that folding, trimming and quoting leave it as it is. What is not in
//! [`Place::homes`] is forbidden: no table, column, log line or answer is exempt by being forgotten.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::ensure;
use powercontext::rt;

/// Where a word is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Text of a source; with it, the prompt.
    Source,
    /// Metadata of a source; with it, the prompt.
    Metadata,
    /// Text and reason of an answer that the model was asked for.
    Reply,
    /// What an answer says beside the text that was asked for.
    Envelope,
    /// An answer that breaks its contract.
    BadReply,
    /// Body and headers of a provider's refusal, and where it redirects to.
    Refusal,
    /// An entry that a client had remembered, and its reason.
    Memory,
    /// What a client searched for.
    Query,
    /// The text of a panic.
    Panic,
    /// Somewhere in a request that is refused.
    Request,
    /// The token that callers bear.
    Bearer,
    /// A token that is not the one.
    WrongBearer,
    /// Password of the database's user.
    Password,
    /// Key of the model's provider.
    ProviderKey,
    /// A header that the deployment adds to every request to the provider.
    Header,
    /// A member that the deployment adds to the body of every such request.
    Parameter,
    /// A header of every request to the collector of spans.
    Collector,
    /// A value that no setting accepts, or the secret part of one.
    Setting,
    /// Id of a scope. No secret, but no label of a metric and no field of a log either.
    Scope,
    /// Id of a source; as above.
    SourceId,
}

const MEMORY: &[&str] = &[
    "pc_artifacts.content",
    "pc_artifact_heads.searchable_text",
    "pc_memory_entry_versions.text",
    "pc_memory_entry_heads.searchable_text",
    // The search index of SQLite.
    "pc_memory_entry_search.searchable_text",
    "pc_memory_entry_search_data.block",
];

impl Place {
    pub(crate) const ALL: [Self; 20] = [
        Self::Source,
        Self::Metadata,
        Self::Reply,
        Self::Envelope,
        Self::BadReply,
        Self::Refusal,
        Self::Memory,
        Self::Query,
        Self::Panic,
        Self::Request,
        Self::Bearer,
        Self::WrongBearer,
        Self::Password,
        Self::ProviderKey,
        Self::Header,
        Self::Parameter,
        Self::Collector,
        Self::Setting,
        Self::Scope,
        Self::SourceId,
    ];

    /// Columns in which the word may stand. Everywhere else in the database it is a leak.
    fn homes(self) -> &'static [&'static str] {
        match self {
            Self::Source | Self::Metadata => &["pc_sources.payload"],
            Self::Reply | Self::Memory => MEMORY,
            Self::Scope => &[
                "pc_artifact_heads.scope_id",
                "pc_artifact_lineage_artifacts.scope_id",
                "pc_artifact_lineage_sources.scope_id",
                "pc_artifact_processing_intents.scope_id",
                "pc_artifacts.scope_id",
                "pc_memory_entry_heads.scope_id",
                "pc_model_usage_daily.scope_id",
                "pc_memory_entry_versions.scope_id",
                "pc_source_cursors.scope_id",
                "pc_source_journal_heads.scope_id",
                "pc_sources.scope_id",
                "pc_work_items.scope_id",
            ],
            Self::SourceId => &[
                "pc_artifact_lineage_sources.source_id",
                "pc_artifacts.content",
                "pc_memory_entry_versions.source_refs",
                "pc_sources.source_id",
            ],
            _ => &[],
        }
    }
}

/// The words of one test.
#[derive(Debug, Clone)]
pub(crate) struct Canaries(BTreeMap<Place, String>);

impl Canaries {
    pub(crate) fn new() -> Self {
        Self(Place::ALL.map(|place| (place, format!("cnry{}", rt::hex_id()))).into())
    }

    /// The word of a place.
    pub(crate) fn of(&self, place: Place) -> &str {
        &self.0[&place]
    }

    /// A text holds no word but those of these places.
    pub(crate) fn absent(&self, what: &str, text: &str, may_hold: &[Place]) -> anyhow::Result<()> {
        let leaks = self
            .0
            .iter()
            .filter(|(place, word)| !may_hold.contains(place) && text.contains(*word));
        let leaks: Vec<_> = leaks.map(|(place, _)| place).collect();
        ensure!(leaks.is_empty(), "{what} holds the words of {leaks:?}:\n{text}");
        Ok(())
    }

    /// Rows, as hexadecimal digits by column, hold no word but where it may stand; and each word that has a home is in one,
    /// or the test would look in vain for the others.
    pub(crate) fn at_home(&self, columns: &BTreeMap<String, String>) -> anyhow::Result<()> {
        for (place, word) in &self.0 {
            let mut digits = String::new();
            for byte in word.bytes() {
                write!(digits, "{byte:02X}")?;
            }
            let found = columns.iter().filter(|(_, rows)| rows.contains(&digits));
            let found: Vec<_> = found.map(|(column, _)| column.as_str()).collect();
            let strayed = found.iter().any(|column| !place.homes().contains(column));
            ensure!(!strayed, "{place:?} stands in {found:?}");
            ensure!(place.homes().is_empty() || !found.is_empty(), "{place:?} is not stored");
        }
        Ok(())
    }
}
