//! Which processes make a distributed deployment on one machine, and the settings of each: a migrator, two APIs, two
//! Schedulers and two Workers. Only a Worker is told of the model.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::config::PREFIX;

/// A role of a process here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Worker,
    Scheduler,
    Api,
}

impl Role {
    /// In the order in which they start; they stop the other way round.
    pub(super) const ALL: [Self; 3] = [Self::Worker, Self::Scheduler, Self::Api];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Scheduler => "scheduler",
            Self::Api => "api",
        }
    }
}

/// One process to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) port: u16,
    pub(super) env: BTreeMap<String, String>,
}

/// What all processes share.
pub(super) struct Deployment<'a> {
    pub(super) database_url: &'a str,
    pub(super) model: SocketAddr,
    pub(super) schedule_seconds: u32,
    /// The front's; the processes take the ports after it.
    pub(super) first_port: u16,
}

impl Deployment<'_> {
    /// Settings of the migrator.
    pub(super) fn migrator(&self) -> BTreeMap<String, String> {
        named([("DATABASE_URL", self.database_url.to_owned())])
    }

    /// The processes, in the order in which they start.
    pub(super) fn processes(&self) -> Vec<Spec> {
        // APIs have the first ports, because people type them.
        let port = |role, n| match role {
            Role::Api => self.first_port + n,
            Role::Scheduler => self.first_port + 2 + n,
            Role::Worker => self.first_port + 4 + n,
        };
        let spec = |role: Role, n: u16| Spec {
            name: format!("{}-{n}", role.as_str()),
            role,
            port: port(role, n),
            env: self.env(role),
        };
        Role::ALL
            .into_iter()
            .flat_map(|role| [spec(role, 1), spec(role, 2)])
            .collect()
    }

    fn env(&self, role: Role) -> BTreeMap<String, String> {
        let mut env = named([
            ("DATABASE_URL", self.database_url.to_owned()),
            ("DEPLOYMENT_MODE", "distributed".to_owned()),
            ("DEPLOYMENT_ROLE", role.as_str().to_owned()),
            ("COORDINATION_ALLOW_SEEKDB_SERVER", "true".to_owned()),
            ("RUNTIME_SCHEDULE_SECONDS", self.schedule_seconds.to_string()),
        ]);
        if role == Role::Worker {
            env.extend(named([
                ("INFERENCE_GENERATION_MODEL", "openai-chat:deterministic".to_owned()),
                ("INFERENCE_GENERATION_BASE_URL", format!("http://{}/v1", self.model)),
            ]));
        }
        env
    }
}

fn named<const N: usize>(settings: [(&str, String); N]) -> BTreeMap<String, String> {
    settings.map(|(key, value)| (format!("{PREFIX}{key}"), value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_each_role_start_workers_first_and_only_workers_know_the_model() {
        let deployment = Deployment {
            database_url: "mysql://root@127.0.0.1:2881/powercontext",
            model: SocketAddr::from(([127, 0, 0, 1], 9)),
            schedule_seconds: 15,
            first_port: 8000,
        };
        let processes = deployment.processes();
        let shown: Vec<_> = processes.iter().map(|spec| (spec.name.as_str(), spec.port)).collect();
        let expected = [
            ("worker-1", 8005),
            ("worker-2", 8006),
            ("scheduler-1", 8003),
            ("scheduler-2", 8004),
            ("api-1", 8001),
            ("api-2", 8002),
        ];
        assert_eq!(shown, expected);
        for spec in processes {
            let knows = spec.env.keys().any(|key| key.contains("INFERENCE"));
            assert_eq!(knows, spec.role == Role::Worker, "{}", spec.name);
        }
        assert_eq!(deployment.migrator().len(), 1);
    }
}
