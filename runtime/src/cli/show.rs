//! `powercontext server config`: what holds and where it came from, or every fault; the reference page; an env file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ConfigArgs, Exit, Output, Streams, sources, tell_faults};
use crate::config::{self, ConfigFault, Effective, Notice, Origin, Settings, Shown};

/// What stands for a value that nobody may see.
const HIDDEN: &str = "(hidden)";
const UNSET: &str = "(unset)";
/// Widest column of values, in characters; longer ones push what follows them.
const VALUE_CHARS_MAX: usize = 44;

/// Prints what was asked for.
pub(super) fn run(args: ConfigArgs, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
    if args.reference {
        // The page ends with a line break of its own.
        streams.say(config::reference().trim_end());
        return Exit::Done;
    }
    if args.example {
        streams.say(config::example().trim_end());
        return Exit::Done;
    }
    let output = args.output;
    match config::load_and_show(sources(env, args.file, args.flags.into_flags())) {
        Ok((settings, shown)) => {
            notices(&settings, streams);
            match output {
                Output::Text => table(&shown, streams),
                Output::Json => streams.say(document(&settings, &shown)),
            }
            Exit::Done
        }
        Err(faults) => {
            if output == Output::Json {
                streams.say(json!({"faults": faults.iter().map(fault).collect::<Vec<_>>()}));
            }
            tell_faults(&faults, streams)
        }
    }
}

fn notices(settings: &Settings, streams: &mut Streams<'_>) {
    for notice in &settings.notices {
        streams.complain(format_args!("warning: {}: {}", notice.key(), notice.reason()));
    }
}

fn table(shown: &[Effective], streams: &mut Streams<'_>) {
    let values: Vec<_> = shown.iter().map(|setting| text(&setting.value)).collect();
    let chars = |text: &&str| text.chars().count();
    let name_width = shown.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
    let fitting = values.iter().map(chars).filter(|width| *width <= VALUE_CHARS_MAX);
    let value_width = fitting.max().unwrap_or(0);
    let mut group = "";
    for (setting, value) in shown.iter().zip(values) {
        if setting.group != group {
            let first = group.is_empty();
            group = setting.group;
            streams.say(format_args!("{}{group}", if first { "" } else { "\n" }));
        }
        let (name, origin) = (setting.name, setting.origin);
        streams.say(format_args!(
            "  {name:name_width$}  {:value_width$}  {origin}",
            value.escape_debug().to_string()
        ));
    }
    streams.say("\nThe settings are valid.");
}

fn text(value: &Shown) -> &str {
    match value {
        Shown::Text(text) => text,
        Shown::Hidden => HIDDEN,
        Shown::Unset => UNSET,
    }
}

fn document(settings: &Settings, shown: &[Effective]) -> Value {
    let one = |setting: &Effective| {
        let value = match &setting.value {
            Shown::Text(text) => Some(text),
            Shown::Hidden | Shown::Unset => None,
        };
        let mut one = source(setting.origin);
        one["name"] = setting.name.into();
        one["value"] = value.cloned().into();
        one["hidden"] = (setting.value == Shown::Hidden).into();
        one
    };
    let warning = |notice: &Notice| json!({"name": notice.key(), "reason": notice.reason()});
    json!({
        "settings": shown.iter().map(one).collect::<Vec<_>>(),
        "warnings": settings.notices.iter().map(warning).collect::<Vec<_>>(),
    })
}

fn fault(fault: &ConfigFault) -> Value {
    let mut one = source(fault.origin);
    one["name"] = fault.key.into();
    one["reason"] = fault.reason.as_ref().into();
    one
}

/// Where something came from: always `source`, and what says more where there is more.
fn source(origin: Origin) -> Value {
    match origin {
        Origin::Default => json!({"source": "default"}),
        Origin::Environment => json!({"source": "environment"}),
        Origin::EnvFile(line) => json!({"source": "env_file", "line": line}),
        Origin::Flag(flag) => json!({"source": "flag", "flag": flag}),
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
