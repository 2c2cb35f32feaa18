//! The model that generates: its provider, its address, its key, and what else goes into a request.
//!
//! Prompts hold what people captured, and headers hold keys, so plain http leaves this machine only where the deployment
//! says so. The rules here never show a text: base URL, headers and model settings are all places where keys end up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use powercontext_core::time::Span;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::fault::Origin;
use super::keys::{self, Key};
use super::reader::{Given, Reader, Refused};
use super::rule::{Reason, Rule, Secret};

/// The model that generates.
#[derive(Clone)]
pub struct GenerationSettings {
    /// Who runs it.
    pub provider: Provider,
    /// Its name at the provider.
    pub model: String,
    /// Address of the provider: https, or http where that is allowed.
    pub base_url: String,
    /// Whether plain http may leave this machine.
    pub allow_insecure_http: bool,
    /// Key of the provider, if it wants one.
    pub api_key: Option<SecretString>,
    /// More headers of every request.
    pub headers: BTreeMap<String, SecretString>,
    /// More members of every request's body; may hold what nobody should see.
    pub model_settings: Map<String, Value>,
    /// Time for one answer.
    pub timeout: Span,
    /// Most requests for one answer, 1 to 10.
    pub requests_max: u32,
    /// Context window of the model, in tokens.
    pub context_window_tokens: u64,
}

impl std::fmt::Debug for GenerationSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenerationSettings")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// An interface that this build has a client for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Chat completions of `OpenAI`, and of all who are compatible with it.
    OpenAiChat,
    /// Messages of Anthropic.
    Anthropic,
}

impl Provider {
    /// Where its requests go when no base URL is set.
    const fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAiChat => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
        }
    }

    const fn api_key(self) -> &'static Key<Secret> {
        match self {
            Self::OpenAiChat => &keys::OPENAI_API_KEY,
            Self::Anthropic => &keys::ANTHROPIC_API_KEY,
        }
    }
}

/// The providers by the names that a model's name may begin with.
const PROVIDERS: [(&str, Provider); 3] = [
    ("openai-chat", Provider::OpenAiChat),
    ("openai", Provider::OpenAiChat),
    ("anthropic", Provider::Anthropic),
];
/// Providers that people will try, because other implementations know them.
const OTHERS: [&str; 5] = ["azure", "azure-responses", "deepseek", "openai-responses", "openrouter"];
const MODEL_CHARS_MAX: usize = 256;

/// The name of a model.
pub(super) struct Model;

impl Rule for Model {
    /// The provider, and the model's name there.
    type Out = (Provider, String);

    fn accepted(&self) -> Cow<'static, str> {
        format!(
            "openai-chat:NAME (or openai:NAME) or anthropic:NAME, the name without blanks and at most {MODEL_CHARS_MAX} characters"
        )
        .into()
    }

    fn read(&self, text: &str) -> Option<(Provider, String)> {
        let (provider, name) = text.split_once(':')?;
        let (_, provider) = PROVIDERS.into_iter().find(|(known, _)| *known == provider)?;
        let fits = (1..=MODEL_CHARS_MAX).contains(&name.chars().count());
        let is_plain = !name.chars().any(|c| c.is_whitespace() || c.is_control());
        (fits && is_plain).then(|| (provider, name.to_owned()))
    }

    fn refused(&self, text: &str) -> Option<Reason> {
        let (provider, _) = text.split_once(':')?;
        OTHERS.contains(&provider).then(|| {
            format!(
                "names a provider without a client here; if it is compatible, use openai-chat:NAME with {}",
                keys::INFERENCE_GENERATION_BASE_URL.name
            )
            .into()
        })
    }
}

/// Address of a provider.
pub(super) struct BaseUrl;

impl Rule for BaseUrl {
    type Out = reqwest::Url;

    fn accepted(&self) -> Cow<'static, str> {
        "an https URL without user, query or fragment (http on loopback, or where `ALLOW_INSECURE_HTTP` is true)".into()
    }

    fn read(&self, text: &str) -> Option<reqwest::Url> {
        let url = reqwest::Url::parse(text).ok()?;
        let plain = url.username().is_empty() && url.password().is_none();
        let whole = url.query().is_none() && url.fragment().is_none();
        let good = matches!(url.scheme(), "http" | "https") && url.has_host() && plain && whole;
        good.then_some(url)
    }

    /// A path may hold what a gateway takes for a key.
    fn shown(&self, text: &str) -> Option<String> {
        let url = self.read(text)?;
        let path = match url.path() {
            path @ ("/" | "/v1" | "/v1/") => path,
            _ => "/…",
        };
        Some(format!("{}{path}", url.origin().ascii_serialization()))
    }
}

/// Whether requests to this address can be read by others on their way.
fn is_insecure(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme() == "http" && !is_loopback
}

const HEADERS_MAX: usize = 32;
const HEADER_BYTES_MAX: usize = 4096;
/// Headers that belong to the connection or to the client.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// More headers, as a JSON object.
pub(super) struct Headers;

impl Rule for Headers {
    type Out = BTreeMap<String, SecretString>;

    fn accepted(&self) -> Cow<'static, str> {
        format!(
            "a JSON object of at most {HEADERS_MAX} header names, each with a text of printable ASCII of at most {HEADER_BYTES_MAX} bytes; not {}",
            OWN_HEADERS.join(", ")
        )
        .into()
    }

    fn read(&self, text: &str) -> Option<Self::Out> {
        let headers: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let is_token = |name: &str| reqwest::header::HeaderName::try_from(name).is_ok();
        let is_own = |name: &str| OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name));
        let fits = |value: &str| value.len() <= HEADER_BYTES_MAX && value.bytes().all(|b| (0x20..0x7f).contains(&b));
        let good = headers.len() <= HEADERS_MAX
            && headers
                .iter()
                .all(|(name, value)| is_token(name) && !is_own(name) && fits(value));
        good.then(|| {
            let secret = |(name, value)| (name, SecretString::from(value));
            headers.into_iter().map(secret).collect()
        })
    }

    fn shown(&self, text: &str) -> Option<String> {
        is_empty_object(text).then(|| text.to_owned())
    }
}

fn is_empty_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|object| object.is_empty())
}

const SETTINGS_BYTES_MAX: usize = 16 * 1024;
/// Members that the client sets itself, or that headers have a setting of their own for.
const OWN_MEMBERS: [&str; 5] = ["model", "messages", "stream", "system", "extra_headers"];

/// More members of a request's body, as a JSON object.
pub(super) struct ModelSettings;

impl Rule for ModelSettings {
    type Out = Map<String, Value>;

    fn accepted(&self) -> Cow<'static, str> {
        format!(
            "a JSON object of at most {SETTINGS_BYTES_MAX} bytes, without {}",
            OWN_MEMBERS.join(", ")
        )
        .into()
    }

    fn read(&self, text: &str) -> Option<Self::Out> {
        if text.len() > SETTINGS_BYTES_MAX {
            return None;
        }
        let settings: Map<String, Value> = serde_json::from_str(text).ok()?;
        (!OWN_MEMBERS.iter().any(|own| settings.contains_key(*own))).then_some(settings)
    }

    fn shown(&self, text: &str) -> Option<String> {
        is_empty_object(text).then(|| text.to_owned())
    }

    fn refused(&self, text: &str) -> Option<Reason> {
        let settings: Map<String, Value> = serde_json::from_str(text).ok()?;
        settings.contains_key("extra_headers").then(|| {
            let headers = keys::INFERENCE_GENERATION_HEADERS.name;
            format!("must not hold extra_headers: {headers} is kept secret, this is not").into()
        })
    }
}

/// Reads the section.
pub(super) fn generation(r: &mut Reader) -> Result<Option<GenerationSettings>, Refused> {
    let model = r.optional(&keys::INFERENCE_GENERATION_MODEL);
    let base_url = r.optional(&keys::INFERENCE_GENERATION_BASE_URL);
    let insecure = r.get(&keys::ALLOW_INSECURE_HTTP);
    let headers = r.get(&keys::INFERENCE_GENERATION_HEADERS);
    let model_settings = r.get(&keys::INFERENCE_GENERATION_MODEL_SETTINGS);
    let timeout = r.get(&keys::INFERENCE_GENERATION_TIMEOUT_SECONDS);
    let requests = r.get(&keys::INFERENCE_GENERATION_MAX_REQUESTS);
    let window = r.get(&keys::INFERENCE_GENERATION_MODEL_CONTEXT_WINDOW_TOKENS);
    let openai_key = r.optional(&keys::OPENAI_API_KEY);
    let anthropic_key = r.optional(&keys::ANTHROPIC_API_KEY);
    let allow_insecure_http = insecure?.value;
    let base_url = checked(r, base_url?, allow_insecure_http);
    let (openai_key, anthropic_key) = (openai_key?, anthropic_key?);
    let Some(model) = model? else {
        return base_url?.map_or(Ok(None), |url| {
            let reason = format!("is set, but {} is not", keys::INFERENCE_GENERATION_MODEL.name);
            Err(r.refuse(&keys::INFERENCE_GENERATION_BASE_URL, url.origin, reason))
        });
    };
    let (provider, model) = model.value;
    let base_url = base_url?;
    let api_key = match provider {
        Provider::OpenAiChat => openai_key,
        Provider::Anthropic => anthropic_key,
    };
    if base_url.is_none() && api_key.is_none() {
        let reason = format!(
            "must be set for the provider of {}; for another one set {}",
            keys::INFERENCE_GENERATION_MODEL.name,
            keys::INFERENCE_GENERATION_BASE_URL.name
        );
        return Err(r.refuse(provider.api_key(), Origin::Default, reason));
    }
    Ok(Some(GenerationSettings {
        provider,
        model,
        base_url: base_url.map_or_else(|| provider.default_base_url().to_owned(), |url| url.value.into()),
        allow_insecure_http,
        api_key: api_key.map(|key| key.value),
        headers: headers?.value,
        model_settings: model_settings?.value,
        timeout: timeout?.value,
        requests_max: requests?.value,
        context_window_tokens: window?.value.into(),
    }))
}

/// Refuses an address where prompts and keys could be read on their way.
fn checked(
    r: &mut Reader,
    url: Option<Given<reqwest::Url>>,
    allow_insecure_http: bool,
) -> Result<Option<Given<reqwest::Url>>, Refused> {
    match url {
        Some(url) if is_insecure(&url.value) && !allow_insecure_http => {
            let reason = format!(
                "must be https, because it is no loopback address and prompts and keys would go there in plain text; or set {} to true",
                keys::ALLOW_INSECURE_HTTP.name
            );
            Err(r.refuse(&keys::INFERENCE_GENERATION_BASE_URL, url.origin, reason))
        }
        url => Ok(url),
    }
}

#[cfg(test)]
#[path = "generation_tests.rs"]
mod tests;
