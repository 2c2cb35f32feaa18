//! Settings of a deployment: roles, what each may and must have, schedules.

use super::*;

#[test]
fn a_role_follows_from_its_mode_and_from_its_older_name() {
    use Role::{All, Api, Background, Scheduler, Worker};
    // mode, role, older name
    for (mode, role, older, found) in [
        ("", "", "", Some(All)),
        ("single_node", "all", "all", Some(All)),
        ("", "all", "", Some(All)),
        ("", "", "api", Some(Api)),
        ("", "", "background", Some(Background)),
        ("distributed", "", "background", Some(Background)),
        ("distributed", "api", "", Some(Api)),
        ("distributed", "scheduler", "all", Some(Scheduler)),
        ("distributed", "worker", "", Some(Worker)),
        ("distributed", "background", "background", Some(Background)),
        ("distributed", "", "", None),
        ("distributed", "all", "", None),
        ("single_node", "worker", "", None),
        ("", "worker", "", None),
        ("single_node", "", "api", None),
        ("distributed", "worker", "background", None),
        ("distributed", "api", "background", None),
    ] {
        let named = [
            ("DEPLOYMENT_MODE", mode),
            ("DEPLOYMENT_ROLE", role),
            ("RUNTIME_ARTIFACT_PROCESSING_ROLE", older),
        ];
        let given = named.into_iter().filter(|(_, value)| !value.is_empty());
        let env: Vec<_> = given.chain([OCEANBASE, MODEL, KEY]).collect();
        let loaded = load(sources(&env)).ok().map(|settings| settings.deployment.role);
        assert_eq!(loaded, found, "{named:?}");
    }
}

#[test]
fn a_command_of_a_distributed_deployment_needs_no_role_and_no_model() {
    let env = [("DEPLOYMENT_MODE", "distributed"), OCEANBASE];
    assert!(load_for(sources(&env), Purpose::Database).is_ok());
    assert_eq!(refused(&env), ["DEPLOYMENT_ROLE"]);
}

#[test]
fn what_a_distributed_role_cannot_have_is_told_at_once() {
    let env = [
        ("DEPLOYMENT_MODE", "distributed"),
        ("DEPLOYMENT_ROLE", "worker"),
        ("DATABASE_URL", "/a/b.db"),
        ("COORDINATION_SCHEDULER_RENEW_SECONDS", "11"),
        ("RUNTIME_SKILL_SCHEDULE_SECONDS", "60"),
    ];
    let expected = [
        "DATABASE_URL",
        "COORDINATION_SCHEDULER_RENEW_SECONDS",
        "RUNTIME_SKILL_SCHEDULE_SECONDS",
        "INFERENCE_GENERATION_MODEL",
    ];
    assert_eq!(refused(&env), expected);
    let skills = ("EXTERNAL_SKILLS", "/home/u/skills");
    let role = |role| {
        [
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", role),
            OCEANBASE,
            skills,
        ]
    };
    assert_eq!(refused(&role("api")), ["EXTERNAL_SKILLS"]);
    let everything = [
        ("DEPLOYMENT_MODE", "distributed"),
        ("DATABASE_URL", "/a/b.db"),
        skills,
        MODEL,
        KEY,
    ];
    assert_eq!(
        refused(&everything),
        ["DATABASE_URL", "DEPLOYMENT_ROLE", "EXTERNAL_SKILLS"]
    );
    assert_eq!(settings(&[skills]).notices, [Notice::ExternalSkillsIgnored]);
}

#[test]
fn only_those_that_run_work_hold_a_model_unless_an_api_is_let() {
    let role = |role, more: &[(&'static str, &'static str)]| {
        let env = [
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", role),
            OCEANBASE,
            MODEL,
            KEY,
        ];
        let env: Vec<_> = env.iter().chain(more).copied().collect();
        settings(&env).generation.is_some()
    };
    assert!(role("worker", &[]) && role("background", &[]));
    assert!(!role("scheduler", &[("INFERENCE_API_ACCESS", "true")]));
    assert!(!role("api", &[]));
    assert!(role("api", &[("INFERENCE_API_ACCESS", "true")]));
}

#[test]
fn a_health_port_may_be_reached_by_others_and_an_api_may_not() {
    let role = |role| {
        refused(&[
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", role),
            OCEANBASE,
            MODEL,
            KEY,
            ("HTTP_HOST", "0.0.0.0"),
        ])
    };
    for open in ["scheduler", "worker", "background"] {
        assert_eq!(role(open), Vec::<&str>::new(), "{open}");
    }
    assert_eq!(role("api"), ["HTTP_HOST"]);
}

#[test]
fn a_schedule_has_one_value_by_both_names_and_needs_a_model_where_it_runs() {
    let both = |named, older| {
        [
            ("RUNTIME_MEMORY_SCHEDULE_SECONDS", named),
            ("RUNTIME_SCHEDULE_SECONDS", older),
            MODEL,
            KEY,
        ]
    };
    assert_eq!(settings(&both("60", "60.0")).memory.schedule, Some(Span::seconds(60)));
    assert_eq!(refused(&both("60", "61")), ["RUNTIME_SCHEDULE_SECONDS"]);
    let older = settings(&[("RUNTIME_SCHEDULE_SECONDS", "15"), MODEL, KEY]);
    assert_eq!(older.memory.schedule, Some(Span::seconds(15)));
    assert_eq!(older.aliases, [keys::RUNTIME_SCHEDULE_SECONDS.name]);
    assert_eq!(
        refused(&[("RUNTIME_MEMORY_SCHEDULE_SECONDS", "60")]),
        ["RUNTIME_MEMORY_SCHEDULE_SECONDS"]
    );
    assert_eq!(
        refused(&[("RUNTIME_PROFILE_SCHEDULE_ENABLED", "true")]),
        ["RUNTIME_PROFILE_SCHEDULE_ENABLED"]
    );
}
