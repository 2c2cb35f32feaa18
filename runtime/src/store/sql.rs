//! Statements as data: one struct per aggregate, one value of it per dialect, so that neither dialect can miss one and a
//! test can prepare them all.

use powercontext_core::ids::{BindingName, WorkKind};
use powercontext_core::limits::PAYLOAD_VERSIONS;

use crate::store::batch::Wanted;
use crate::store::conn::Dialect;

/// Declares an aggregate's statements and how to find a dialect's texts.
macro_rules! statements {
    ($(#[$doc:meta])* $name:ident, $module:ident { $($field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub(crate) $field: &'static str),*
        }

        impl $name {
            /// The texts of a dialect.
            pub(crate) fn of(dialect: $crate::store::conn::Dialect) -> &'static Self {
                match dialect {
                    $crate::store::conn::Dialect::OceanBase => &$crate::store::oceanbase::$module::SQL,
                    $crate::store::conn::Dialect::Sqlite => &$crate::store::sqlite::$module::SQL,
                }
            }

            /// Every text, for the test that prepares them.
            pub(crate) fn all(&self) -> Vec<&'static str> {
                vec![$(self.$field),*]
            }
        }
    };
}
pub(crate) use statements;

/// The text with which a claim on OceanBase finds its candidates, for the test that looks at its plan.
pub fn claim_look(kinds: &[(WorkKind, BindingName)]) -> String {
    let wanted: Vec<Wanted> = kinds
        .iter()
        .map(|(kind, binding)| Wanted {
            kind: kind.clone(),
            versions: PAYLOAD_VERSIONS,
            limit: 36,
            from: None,
            slots: None,
            ordinary: Some(binding.clone()),
        })
        .collect();
    super::oceanbase::batch::ready(&wanted).text("", "")
}

/// Every statement of a dialect that runs against the migrated schema.
pub fn all(dialect: Dialect) -> Vec<&'static str> {
    let mut texts = super::lanes::LanesSql::of(dialect).all();
    texts.extend(super::works::WorksSql::of(dialect).all());
    texts.extend(super::slots::SlotsSql::of(dialect).all());
    texts.extend(super::keys::KeysSql::of(dialect).all());
    texts.extend(super::attempts::AttemptsSql::of(dialect).all());
    texts.extend(super::acts::ActsSql::of(dialect).all());
    texts.extend(super::spans::SpansSql::of(dialect).all());
    texts.extend(super::intents::IntentsSql::of(dialect).all());
    texts.extend(super::leases::LeasesSql::of(dialect).all());
    texts.extend(super::sources::SourcesSql::of(dialect).all());
    texts.extend(super::cursors::CursorsSql::of(dialect).all());
    texts.extend(super::artifacts::ArtifactsSql::of(dialect).all());
    texts.extend(super::memory_entries::MemoryEntriesSql::of(dialect).all());
    texts.extend(super::rates::RatesSql::of(dialect).all());
    texts.extend(super::usage::UsageSql::of(dialect).all());
    texts.extend(super::members::MembersSql::of(dialect).all());
    texts.extend(super::bindings::BindingsSql::of(dialect).all());
    texts.extend(super::upkeep::UpkeepSql::of(dialect).all());
    texts.extend(super::admitted::AdmittedSql::of(dialect).all());
    if dialect == Dialect::Sqlite {
        texts.extend(super::sqlite::batch::ALL);
    }
    texts
}
