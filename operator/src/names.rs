//! Names of Kubernetes objects and labels, each a type that can only hold what Kubernetes accepts.
//!
//! Every object of a deployment is called `<base>-<what>`. The base is the resource's own name where that is short and
//! plain, else a beginning of it and eight digits of its hash, so that two long names with one beginning do not meet. A
//! short name that looks as if it ended in such digits is hashed too; a plain and a hashed name can therefore never be equal.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

/// Longest base, in bytes: the longest suffix (`-switch-mode-` and ten digits) still leaves room for a pod's own suffix.
const BASE_BYTES_MAX: usize = 34;
/// Longest readable beginning of a hashed base, in bytes.
const BEGINNING_BYTES_MAX: usize = 25;
/// Hex digits of the hash in a base.
const BASE_DIGITS: usize = 8;
/// Hex digits of a hash in the name of a Job.
const JOB_DIGITS: usize = 10;

/// The manager of what the operator applies.
pub const FIELD_MANAGER: &str = "powercontext-operator";
/// Annotation that approves a migration; its value is the target's hash.
pub const APPROVE_MIGRATION: &str = "powercontext.io/approve-migration";
/// Annotation that revives a failed migration; any new value does.
pub const RETRY_MIGRATION: &str = "powercontext.io/retry-migration";
/// Annotation with a hash of the whole desired object.
pub const DESIRED_HASH: &str = "powercontext.io/desired-hash";
/// Annotation with a hash of the pod template.
pub const TEMPLATE_HASH: &str = "powercontext.io/template-hash";
/// Annotation of a pod template with a hash of the secrets that it uses.
pub const SECRETS_HASH: &str = "powercontext.io/secrets-hash";
/// Annotation of a pod template with the build it runs.
pub const BUILD: &str = "powercontext.io/build";
/// Label with the name of the resource that an object belongs to.
pub const DEPLOYMENT: &str = "powercontext.io/deployment";
/// Annotation by which a ReplicaSet chooses the pods it gives up first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Serves HTTP.
    Api,
    /// Admits scheduled work.
    Scheduler,
    /// Runs work.
    Worker,
    /// Scheduler and Worker in one.
    Background,
}

impl Role {
    /// Every role, in the order of a roll-out.
    pub const ALL: [Self; 4] = [Self::Worker, Self::Background, Self::Scheduler, Self::Api];

    /// As settings, labels and names spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Background => "background",
        }
    }

    /// The role of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Whether it may lead the Supervisor.
    pub const fn schedules(self) -> bool {
        matches!(self, Self::Scheduler | Self::Background)
    }

    /// Whether it runs work.
    pub const fn works(self) -> bool {
        matches!(self, Self::Worker | Self::Background)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The beginning of the names of a deployment's objects: a DNS label of at most 34 bytes that begins with a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Base(String);

impl Base {
    /// The base of the resource of that name.
    pub fn of(name: &str) -> Self {
        let is_plain = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && name.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && !name.ends_with('-');
        if is_plain && name.len() <= BASE_BYTES_MAX && !looks_hashed(name) {
            return Self(name.to_owned());
        }
        let mut beginning: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_lowercase() || c.is_ascii_digit() {
                    c
                } else {
                    '-'
                }
            })
            .take(BEGINNING_BYTES_MAX)
            .collect();
        if !beginning.starts_with(|c: char| c.is_ascii_lowercase()) {
            beginning.insert_str(0, "pc-");
            beginning.truncate(BEGINNING_BYTES_MAX);
        }
        let beginning = beginning.trim_end_matches('-');
        Self(format!("{beginning}-{}", &hash([name])[..BASE_DIGITS]))
    }

    /// The base itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the object for that purpose.
    pub fn object(&self, what: &str) -> String {
        format!("{}-{what}", self.0)
    }

    /// Name of a role's Deployment.
    pub fn role(&self, role: Role) -> String {
        self.object(role.as_str())
    }

    /// Name of a Job for what the hash stands for.
    pub fn job(&self, what: &str, hash: &str) -> String {
        format!("{}-{what}-{}", self.0, &hash[..JOB_DIGITS.min(hash.len())])
    }

    /// Labels that select everything of a component. No version is among them: a selector can never change.
    pub fn selector(&self, component: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("app.kubernetes.io/name".to_owned(), "powercontext".to_owned()),
            ("app.kubernetes.io/instance".to_owned(), self.0.clone()),
            ("app.kubernetes.io/component".to_owned(), component.to_owned()),
        ])
    }

    /// Labels of an object of a component.
    pub fn labels(&self, component: &str, deployment: &str) -> BTreeMap<String, String> {
        let mut labels = self.selector(component);
        labels.insert("app.kubernetes.io/part-of".to_owned(), "powercontext".to_owned());
        labels.insert("app.kubernetes.io/managed-by".to_owned(), FIELD_MANAGER.to_owned());
        labels.insert(DEPLOYMENT.to_owned(), deployment.to_owned());
        labels
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn looks_hashed(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(_, end)| end.len() == BASE_DIGITS && end.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// SHA-256 of the parts in order, as hex. Each part is preceded by its length, so that moving a byte from one to the next
/// changes the hash.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plain_names_stay_and_all_others_become_labels_that_do_not_meet() {
        assert_eq!(Base::of("pc").as_str(), "pc");
        let long = "a".repeat(50);
        let names = [
            "pc".to_owned(),
            "my.dotted.name".to_owned(),
            "my-dotted-name".to_owned(),
            "my.dotted-name".to_owned(),
            "1st".to_owned(),
            "n".repeat(63),
            format!("{long}-one"),
            format!("{long}-two"),
            Base::of("my.dotted.name").0,
            "x".repeat(BASE_BYTES_MAX),
            "x".repeat(BASE_BYTES_MAX + 1),
        ];
        let bases: BTreeSet<_> = names.iter().map(|name| Base::of(name).0).collect();
        assert_eq!(bases.len(), names.len(), "{bases:?}");
        for base in &bases {
            assert!(base.len() <= BASE_BYTES_MAX, "{base}");
            assert!(base.starts_with(|c: char| c.is_ascii_lowercase()), "{base}");
            assert!(
                base.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{base}"
            );
        }
    }

    #[test]
    fn the_longest_job_leaves_room_for_the_suffix_of_its_pod() {
        let job = Base::of(&"n".repeat(63)).job("switch-mode", &hash(["x"]));
        assert!(job.len() + "-abcde".len() <= 63, "{job}");
    }

    #[test]
    fn labels_fit_and_selectors_name_no_version() {
        let name = "n".repeat(63);
        let base = Base::of(&name);
        assert!(base.labels("scheduler", &name).values().all(|value| value.len() <= 63));
        assert_eq!(base.selector("api").len(), 3);
    }

    #[test]
    fn a_hash_tells_where_one_part_ends() {
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
        assert_ne!(hash(["a"]), hash(["a", ""]));
    }
}
