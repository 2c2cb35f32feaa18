use secrecy::ExposeSecret;

use super::*;
use crate::config::{PREFIX, Settings, Sources, load};

fn sources(env: &[(&str, &str)]) -> Sources {
    let name = |name: &str| match name {
        "HOME" | "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => name.to_owned(),
        _ => format!("{PREFIX}{name}"),
    };
    let home = [("HOME", "/home/u")];
    let all = home
        .iter()
        .chain(env)
        .map(|(key, value)| (name(key), (*value).to_owned()));
    Sources {
        env: all.collect(),
        ..Sources::default()
    }
}

fn set(env: &[(&str, &str)]) -> GenerationSettings {
    let settings: Settings = load(sources(env)).unwrap_or_else(|faults| panic!("{env:?}: {faults:?}"));
    settings.generation.expect("a model is set")
}

/// The names of the refused settings, without their prefix.
fn refused(env: &[(&str, &str)]) -> Vec<&'static str> {
    let faults = load(sources(env)).err().unwrap_or_default();
    let names = faults.iter().map(|fault| fault.key.trim_start_matches(PREFIX));
    names.collect()
}

const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "openai-chat:m");
const URL: (&str, &str) = ("INFERENCE_GENERATION_BASE_URL", "http://127.0.0.1:1/v1");

#[test]
fn a_model_needs_a_provider_and_the_default_provider_a_key() {
    let generation = set(&[MODEL, URL, ("INFERENCE_GENERATION_TIMEOUT_SECONDS", "0.5")]);
    assert_eq!((generation.model.as_str(), generation.base_url.as_str()), ("m", URL.1));
    assert_eq!((generation.timeout, generation.requests_max), (Span::millis(500), 2));
    assert_eq!(generation.context_window_tokens, 125_000);
    assert!(generation.api_key.is_none() && generation.headers.is_empty() && generation.model_settings.is_empty());
    assert_eq!(refused(&[MODEL]), ["OPENAI_API_KEY"]);
    assert_eq!(refused(&[MODEL, ("OPENAI_API_KEY", "")]), ["OPENAI_API_KEY"]);
    assert_eq!(refused(&[MODEL, ("ANTHROPIC_API_KEY", "sk")]), ["OPENAI_API_KEY"]);
    assert_eq!(refused(&[URL]), ["INFERENCE_GENERATION_BASE_URL"]);
    let empty = ("INFERENCE_GENERATION_MODEL", "");
    assert_eq!(refused(&[empty]), ["INFERENCE_GENERATION_MODEL"]);
}

#[test]
fn each_provider_has_its_own_key_and_address() {
    let keys = [("OPENAI_API_KEY", "sk-o"), ("ANTHROPIC_API_KEY", "sk-a")];
    for (model, provider, url, key) in [
        (
            "openai-chat:m",
            Provider::OpenAiChat,
            "https://api.openai.com/v1",
            "sk-o",
        ),
        ("openai:m", Provider::OpenAiChat, "https://api.openai.com/v1", "sk-o"),
        (
            "anthropic:m",
            Provider::Anthropic,
            "https://api.anthropic.com/v1",
            "sk-a",
        ),
    ] {
        let generation = set(&[("INFERENCE_GENERATION_MODEL", model), keys[0], keys[1]]);
        assert_eq!((generation.provider, generation.model.as_str()), (provider, "m"));
        assert_eq!(generation.base_url, url);
        assert_eq!(generation.api_key.as_ref().map(ExposeSecret::expose_secret), Some(key));
    }
    let anthropic = ("INFERENCE_GENERATION_MODEL", "anthropic:m");
    assert_eq!(refused(&[anthropic, keys[0]]), ["ANTHROPIC_API_KEY"]);
}

#[test]
fn a_model_names_a_provider_that_there_is() {
    let read = |text: &str| Model.read(text).map(|(_, name)| name);
    assert_eq!(read("openai-chat:gpt-x:1"), Some("gpt-x:1".to_owned()));
    assert!(read(&format!("anthropic:{}", "m".repeat(256))).is_some());
    for text in ["", "gpt-x", "openai-chat:", "OpenAI:gpt", "openai-chat:a b", "test"] {
        assert_eq!(read(text), None, "{text:?}");
    }
    assert_eq!(read(&format!("anthropic:{}", "m".repeat(257))), None);
    let told = Model.parse("openrouter:m").expect_err("refused");
    assert!(told.contains("use openai-chat:NAME with"), "{told}");
}

#[test]
fn a_base_url_holds_nothing_secret() {
    for text in ["http://127.0.0.1:8080/v1", "https://api.example/v1/"] {
        assert_eq!(BaseUrl.read(text).map(String::from).as_deref(), Some(text));
    }
    for text in [
        "",
        "api.example",
        "ftp://h/",
        "http://u:p@h/",
        "http://u@h/",
        "http://h/?k=v",
        "http://h/#f",
    ] {
        assert!(BaseUrl.read(text).is_none(), "{text:?}");
    }
}

#[test]
fn plain_http_leaves_this_machine_only_where_that_is_allowed() {
    let refused = |url, allowed| {
        let url = ("INFERENCE_GENERATION_BASE_URL", url);
        refused(&[MODEL, url, ("ALLOW_INSECURE_HTTP", allowed)])
    };
    let none: [&str; 0] = [];
    for url in [
        "http://localhost/v1",
        "http://127.9.9.9/v1",
        "http://[::1]:9/v1",
        "https://h/v1",
    ] {
        assert_eq!(refused(url, "false"), none, "{url}");
    }
    for url in ["http://h/v1", "http://10.0.0.1/v1", "http://localhost.h/v1"] {
        assert_eq!(refused(url, "false"), ["INFERENCE_GENERATION_BASE_URL"], "{url}");
        assert_eq!(refused(url, "true"), none, "{url}");
        let generation = set(&[
            MODEL,
            ("INFERENCE_GENERATION_BASE_URL", url),
            ("ALLOW_INSECURE_HTTP", "true"),
        ]);
        assert!(generation.allow_insecure_http);
    }
}

#[test]
fn headers_are_an_object_of_texts_and_never_shown() {
    let generation = set(&[
        MODEL,
        URL,
        (
            "INFERENCE_GENERATION_HEADERS",
            r#"{"X-Tenant": "blue team", "x-key": "hunter2"}"#,
        ),
    ]);
    assert_eq!(generation.headers["X-Tenant"].expose_secret(), "blue team");
    assert!(!format!("{generation:?}").contains("hunter2"));
    let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(HEADER_BYTES_MAX));
    assert!(Headers.read(&long).is_some());
    let many = |n| {
        let pairs: Vec<_> = (0..n).map(|n| format!(r#""h{n}": "x""#)).collect();
        format!("{{{}}}", pairs.join(","))
    };
    assert!(Headers.read(&many(HEADERS_MAX)).is_some());
    for text in [
        "",
        "[]",
        "hunter2",
        r#"{"a": 1}"#,
        r#"{"a": null}"#,
        r#"{"a b": "x"}"#,
        r#"{"": "x"}"#,
        r#"{"a": "x\n"}"#,
        r#"{"a": "é"}"#,
        r#"{"Content-Length": "1"}"#,
        r#"{"HOST": "h"}"#,
        &long.replace("x\"", "xx\""),
        &many(HEADERS_MAX + 1),
    ] {
        let told = Headers.parse(text).expect_err(text);
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn model_settings_are_an_object_without_what_the_client_sets() {
    let text = r#"{"temperature": 0, "max_tokens": 100}"#;
    let generation = set(&[MODEL, URL, ("INFERENCE_GENERATION_MODEL_SETTINGS", text)]);
    assert_eq!(generation.model_settings["max_tokens"], 100);
    for own in OWN_MEMBERS {
        assert!(ModelSettings.read(&format!(r#"{{"{own}": {{}}}}"#)).is_none(), "{own}");
    }
    let told = ModelSettings.parse(r#"{"extra_headers": {"a": "hunter2"}}"#);
    let told = told.expect_err("refused");
    assert!(
        told.contains("INFERENCE_GENERATION_HEADERS") && !told.contains("hunter2"),
        "{told}"
    );
    let padded = |n: usize| format!("{{}}{}", " ".repeat(n - 2));
    assert!(ModelSettings.read(&padded(SETTINGS_BYTES_MAX)).is_some());
    assert!(ModelSettings.read(&padded(SETTINGS_BYTES_MAX + 1)).is_none());
    for text in ["", "[]", "1", "{"] {
        assert!(ModelSettings.read(text).is_none(), "{text:?}");
    }
}
