//! What the roles report of themselves, read from their `/metrics`; never from the database.
//!
//! The series read here are an agreement with the runtime. A series that is not there is *not known*, which never opens a
//! gate: a role whose members are unknown does not count as rolled out.

use std::collections::{BTreeMap, BTreeSet};

use powercontext_crds::v1alpha1::{Leader, QueueStatus};

use crate::names::Role;

/// Live members by role and build.
const MEMBERS: &str = "powercontext_runtime_members";
/// Work items by kind and state.
const QUEUE_DEPTH: &str = "powercontext_work_queue_depth";
/// Age of the oldest item by kind and state, in seconds.
const QUEUE_OLDEST: &str = "powercontext_work_queue_oldest_age_seconds";
/// Work items that have not ended, by payload version.
const PAYLOAD_DEPTH: &str = "powercontext_work_payload_version_depth";
/// Runs of this process.
const IN_FLIGHT: &str = "powercontext_worker_inflight";
/// Fence of each lease that this process holds.
const LEASE_FENCE: &str = "powercontext_supervisor_fence";
/// Revision of the schema that a process found.
const SCHEMA_REVISION: &str = "powercontext_schema_revision";

/// Most label values of one kind that are kept; a page with more is not ours.
const VALUES_MAX: usize = 64;

/// What the roles reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Pods that told anything at all.
    pub heard: BTreeSet<String>,
    /// Live members by role and build; `None`: nobody told.
    pub members: Option<BTreeMap<(Role, String), i64>>,
    /// Runs by pod.
    pub in_flight: BTreeMap<String, i64>,
    /// Work that waits or runs; `None`: nobody told.
    pub queue: Option<QueueStatus>,
    /// Work that has not ended, by payload version; `None`: nobody told.
    pub payload_depth: Option<BTreeMap<i64, i64>>,
    /// Who leads.
    pub leaders: Vec<Leader>,
    /// Revision of the schema; the highest that was told, for a schema only grows. `None`: nobody told.
    pub schema_revision: Option<i64>,
}

impl Facts {
    /// Adds what one pod said.
    pub fn add(&mut self, pod: &str, page: &str) {
        self.heard.insert(pod.to_owned());
        let mut depth: Option<BTreeMap<String, i64>> = None;
        let mut oldest: Option<f64> = None;
        for sample in page.lines().filter_map(Sample::parse) {
            let count = whole(sample.value);
            match sample.name {
                MEMBERS => {
                    let members = self.members.get_or_insert_default();
                    let role = sample.label("role").and_then(|role| Role::parse(&role));
                    if let (Some(role), Some(build)) = (role, sample.label("build"))
                        && members.len() < VALUES_MAX
                    {
                        let seen = members.entry((role, build)).or_default();
                        *seen = count.max(*seen);
                    }
                }
                QUEUE_DEPTH => {
                    let depth = depth.get_or_insert_default();
                    if let Some(state) = sample.label("status")
                        && depth.len() < VALUES_MAX
                    {
                        *depth.entry(state).or_default() += count;
                    }
                }
                QUEUE_OLDEST if sample.label("status").as_deref() == Some("queued") => {
                    oldest = Some(oldest.unwrap_or_default().max(sample.value));
                }
                PAYLOAD_DEPTH => {
                    let versions = self.payload_depth.get_or_insert_default();
                    let version = sample.label("version").and_then(|version| version.parse().ok());
                    if let Some(version) = version
                        && versions.len() < VALUES_MAX
                    {
                        let seen = versions.entry(version).or_default();
                        *seen = count.max(*seen);
                    }
                }
                IN_FLIGHT => {
                    *self.in_flight.entry(pod.to_owned()).or_default() += count;
                }
                SCHEMA_REVISION if count > 0 => {
                    self.schema_revision = self.schema_revision.max(Some(count));
                }
                LEASE_FENCE if count > 0 && self.leaders.len() < VALUES_MAX => {
                    self.lead(pod, &sample.label("lease").unwrap_or_default(), count);
                }
                _ => {}
            }
        }
        if let (None, Some(depth)) = (&self.queue, depth) {
            self.queue = Some(QueueStatus {
                depth,
                oldest_age_seconds: oldest.map(|seconds| round(whole(seconds))),
            });
        }
    }

    /// The highest fence leads; a deposed leader may not have noticed yet.
    fn lead(&mut self, pod: &str, lease: &str, fence: i64) {
        let new = Leader {
            lease: lease.to_owned(),
            pod: Some(pod.to_owned()),
            fence,
        };
        match self.leaders.iter_mut().find(|leader| leader.lease == lease) {
            Some(old) if old.fence < fence => *old = new,
            Some(_) => {}
            None => {
                self.leaders.push(new);
                self.leaders.sort_by(|a, b| a.lease.cmp(&b.lease));
            }
        }
    }

    /// Who leads, as far as is known: what was told now, and of the rest what was stored, while the pod that led lives and
    /// was not heard. `lives`: whether there is a pod of that name.
    pub fn leaders_after(&self, stored: &[Leader], lives: impl Fn(&str) -> bool) -> Vec<Leader> {
        let mut leaders = self.leaders.clone();
        let is_told = |leader: &Leader| self.leaders.iter().any(|told| told.lease == leader.lease);
        let may_lead = |leader: &Leader| {
            let pod = leader.pod.as_deref();
            pod.is_some_and(|pod| lives(pod) && !self.heard.contains(pod))
        };
        let kept = stored.iter().filter(|leader| !is_told(leader) && may_lead(leader));
        leaders.extend(kept.cloned());
        leaders.sort_by(|a, b| a.lease.cmp(&b.lease));
        leaders
    }

    /// Live members of a role that run the build; `None`: nobody told.
    pub fn members_of(&self, role: Role, build: &str) -> Option<i64> {
        let members = self.members.as_ref()?;
        Some(members.get(&(role, build.to_owned())).copied().unwrap_or_default())
    }

    /// Work of a payload version above that one; `None`: nobody told.
    pub fn payloads_above(&self, version: i64) -> Option<i64> {
        let depth = self.payload_depth.as_ref()?;
        Some(depth.range(version + 1..).map(|(_, count)| count).sum())
    }
}

/// To one digit, so that an age that only grows does not change the status each time.
fn round(seconds: i64) -> i64 {
    let mut unit = 1;
    while seconds / unit >= 10 {
        unit *= 10;
    }
    seconds / unit * unit
}

#[expect(clippy::cast_possible_truncation, reason = "it saturates, and a NaN becomes zero")]
fn whole(value: f64) -> i64 {
    value as i64
}

/// One line of the Prometheus text format.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let (name, labels, rest) = if let Some(open) = line.find('{') {
            let close = line.rfind('}')?;
            (&line[..open], line.get(open + 1..close)?, &line[close + 1..])
        } else {
            let end = line.find(' ')?;
            (&line[..end], "", &line[end..])
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// Value of a label. Values of ours hold no quotes, commas or backslashes.
    fn label(&self, name: &str) -> Option<String> {
        self.labels.split(',').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
            (key.trim() == name).then(|| value.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP powercontext_runtime_members Live members.
powercontext_runtime_members{role="worker",build="abc"} 2
powercontext_runtime_members{role="worker",build="old"} 1
powercontext_work_queue_depth{kind="a",status="queued"} 3
powercontext_work_queue_depth{kind="b",status="queued"} 4
powercontext_work_queue_depth{kind="b",status="failed"} 1
powercontext_work_queue_oldest_age_seconds{kind="a",status="queued"} 47.8
powercontext_work_queue_oldest_age_seconds{kind="a",status="failed"} 99999
powercontext_work_payload_version_depth{version="1"} 5
powercontext_work_payload_version_depth{version="2"} 1
powercontext_worker_inflight 3
powercontext_supervisor_fence{lease="global"} 7
powercontext_schema_revision 6
something_else 1e9 1700000000
broken{
"#;

    #[test]
    fn a_page_is_read_and_everything_else_on_it_is_ignored() {
        let mut facts = Facts::default();
        facts.add("w-1", PAGE);
        assert_eq!(facts.members_of(Role::Worker, "abc"), Some(2));
        assert_eq!(facts.members_of(Role::Api, "abc"), Some(0));
        let queue = facts.queue.clone().expect("told");
        assert_eq!(
            (queue.depth["queued"], queue.depth["failed"], queue.oldest_age_seconds),
            (7, 1, Some(40))
        );
        assert_eq!(facts.in_flight["w-1"], 3);
        assert_eq!((facts.payloads_above(1), facts.payloads_above(2)), (Some(1), Some(0)));
        assert_eq!((facts.leaders[0].fence, facts.schema_revision), (7, Some(6)));
    }

    #[test]
    fn what_nobody_told_is_not_known() {
        let mut facts = Facts::default();
        facts.add("w-1", "powercontext_server_runtime_ready 1\n");
        assert_eq!(facts.members_of(Role::Worker, "abc"), None);
        assert_eq!(facts.payloads_above(1), None);
        assert_eq!(facts.queue, None);
    }

    #[test]
    fn the_highest_fence_leads_and_a_second_page_is_not_counted_twice() {
        let mut facts = Facts::default();
        facts.add("s-1", PAGE);
        facts.add("s-2", &PAGE.replace("} 7", "} 8"));
        assert_eq!(facts.leaders.len(), 1);
        assert_eq!(
            (facts.leaders[0].fence, facts.leaders[0].pod.as_deref()),
            (8, Some("s-2"))
        );
        assert_eq!(facts.queue.expect("told").depth["queued"], 7);
    }

    #[test]
    fn a_leader_that_was_not_heard_stays_one_as_long_as_its_pod_lives() {
        let leader = |lease: &str, pod: &str, fence| Leader {
            lease: lease.to_owned(),
            pod: Some(pod.to_owned()),
            fence,
        };
        let stored = [leader("global", "s-1", 7)];
        let heard = |pods: &[&str], leaders: &[Leader]| Facts {
            heard: pods.iter().map(ToString::to_string).collect(),
            leaders: leaders.to_vec(),
            ..Facts::default()
        };
        let new = leader("global", "s-2", 8);
        for (facts, lives, leads) in [
            // Nobody answered.
            (heard(&[], &[]), true, vec![stored[0].clone()]),
            (heard(&["w-1"], &[]), true, vec![stored[0].clone()]),
            // It says itself that it leads no more.
            (heard(&["s-1"], &[]), true, vec![]),
            // Its pod is gone.
            (heard(&[], &[]), false, vec![]),
            // Another one leads.
            (heard(&["s-2"], std::slice::from_ref(&new)), true, vec![new.clone()]),
            // Another lease says nothing about this one.
            (
                heard(&["s-2"], &[leader("artifact", "s-2", 1)]),
                true,
                vec![leader("artifact", "s-2", 1), stored[0].clone()],
            ),
        ] {
            assert_eq!(facts.leaders_after(&stored, |_| lives), leads, "{facts:?}");
        }
    }

    #[test]
    fn an_age_is_rounded_to_one_digit() {
        for (seconds, rounded) in [(0, 0), (9, 9), (10, 10), (47, 40), (3_601, 3_000)] {
            assert_eq!(round(seconds), rounded);
        }
    }

    #[test]
    fn a_hostile_page_does_not_grow_without_bound() {
        let lines: Vec<_> = (0..10_000)
            .map(|n| format!("{MEMBERS}{{role=\"worker\",build=\"{n}\"}} 1"))
            .collect();
        let mut facts = Facts::default();
        facts.add("x", &lines.join("\n"));
        assert_eq!(facts.members.expect("told").len(), VALUES_MAX);
    }
}
