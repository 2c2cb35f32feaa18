//! What the deployment looks like from its database, as a table: members, leaders and fences, the queue, runs.
//!
//! The database is what the processes agree on, so it is asked, and none of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use powercontext_core::ids::MemberId;
use powercontext_core::supervise::member::Member;

use crate::store::modes::{self, TermView};
use crate::store::works::{self, Depth};
use crate::store::{Db, Tx, TxError, TxName, members};

/// Runs of one member that are counted.
const RUNS_MAX: u32 = 256;
/// Characters of a member's id that are shown.
const ID_SHOWN: usize = 8;

/// One look.
#[derive(Debug, Default)]
pub(super) struct Look {
    members: Vec<Member>,
    terms: Vec<TermView>,
    depths: Vec<Depth>,
    runs: BTreeMap<MemberId, usize>,
}

/// Looks.
pub(super) async fn look(db: &Db) -> Result<Look, TxError> {
    db.read(TxName::Members, |tx: &mut Tx| Box::pin(look_in(tx))).await
}

async fn look_in(tx: &mut Tx) -> Result<Look, TxError> {
    let members = members::live(tx).await?;
    let mut runs = BTreeMap::new();
    for member in members.iter().filter(|member| member.role.works()) {
        let owned = works::owned(tx, &member.id, RUNS_MAX).await?;
        runs.insert(member.id.clone(), owned.len());
    }
    Ok(Look {
        members,
        terms: modes::terms(tx).await?,
        depths: works::depths(tx).await?,
        runs,
    })
}

fn short(id: &MemberId) -> &str {
    id.as_str().get(..ID_SHOWN).unwrap_or(id.as_str())
}

impl Look {
    /// The table, without escape sequences.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<11} {:<9} {:<12} {:<28} {}\n",
            "ROLE", "MEMBER", "BUILD", "LEADS", "RUNS"
        );
        for member in &self.members {
            let leads = if member.role.leads() {
                self.led_by(&member.id)
            } else {
                String::new()
            };
            let runs = self.runs.get(&member.id).map_or_else(String::new, ToString::to_string);
            let line = format!(
                "{:<11} {:<9} {:<12} {leads:<28} {runs}",
                member.role.as_str(),
                short(&member.id),
                member.build,
            );
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        if self.members.is_empty() {
            text.push_str("nobody lives\n");
        }
        let queue: Vec<String> = self.depths.iter().map(depth).collect();
        let _ = write!(
            text,
            "\nqueue: {}",
            if queue.is_empty() {
                "empty".to_owned()
            } else {
                queue.join("; ")
            }
        );
        text
    }

    fn led_by(&self, member: &MemberId) -> String {
        let terms = self.terms.iter().filter(|term| term.leader.as_ref() == Some(member));
        let names: Vec<String> = terms
            .map(|term| {
                let fence = term.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string());
                format!("{} fence {fence}", term.key)
            })
            .collect();
        if names.is_empty() {
            "standby".to_owned()
        } else {
            names.join(", ")
        }
    }
}

fn depth(depth: &Depth) -> String {
    let kind = depth.kind.trim_start_matches("powercontext.");
    format!("{kind} {} {}", depth.status, depth.items)
}

#[cfg(test)]
mod tests {
    use powercontext_core::fence::Fence;
    use powercontext_core::supervise::member::Role;
    use powercontext_core::supervise::mode::SupervisorKey;
    use powercontext_core::time::DbTime;

    use super::*;

    fn member(id: &str, role: Role) -> Member {
        Member {
            id: MemberId::parse(id).expect("an id"),
            role,
            build: "0.1.0".to_owned(),
            schema: 1..=6,
            payload: 1..=1,
            revision: "default".to_owned(),
            contract: String::new(),
            execution: None,
            started_at: DbTime::from_micros(0),
        }
    }

    #[test]
    fn a_table_names_the_leader_with_its_fence_the_standby_the_runs_and_the_queue() {
        let members = vec![
            member("aaaaaaaaaaaa", Role::Scheduler),
            member("bbbbbbbbbbbb", Role::Scheduler),
            member("cccccccccccc", Role::Worker),
            member("dddddddddddd", Role::Api),
        ];
        let look = Look {
            terms: vec![TermView {
                key: SupervisorKey::Global,
                leader: Some(members[1].id.clone()),
                fence: Fence::from_row(7),
            }],
            depths: vec![Depth {
                kind: "powercontext.memory.source-window".to_owned(),
                status: "queued".to_owned(),
                items: 12,
                oldest: DbTime::from_micros(0),
            }],
            runs: BTreeMap::from([(members[2].id.clone(), 3)]),
            members,
        };
        let expected = "\
ROLE        MEMBER    BUILD        LEADS                        RUNS
scheduler   aaaaaaaa  0.1.0        standby
scheduler   bbbbbbbb  0.1.0        global fence 7
worker      cccccccc  0.1.0                                     3
api         dddddddd  0.1.0

queue: memory.source-window queued 12";
        assert_eq!(look.table(), expected);
        assert!(Look::default().table().contains("nobody lives"));
    }
}
