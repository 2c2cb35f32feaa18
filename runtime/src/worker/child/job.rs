//! What a child is told of its family: settings, and the secrets of that family alone.
//!
//! It crosses in the first frame and stands nowhere else: in no argument, no environment and no file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::config::{GenerationSettings, Provider};
use crate::families::Family;
use crate::families::memory::{self, MemoryFamily, MemorySettings};
use crate::inference::anthropic::Anthropic;
use crate::inference::openai::OpenAiChat;
use crate::inference::{ClientFault, ClientSettings, Generator};

/// One family as a child can build it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FamilyJob {
    /// Memory.
    Memory {
        /// What the deployment sets.
        settings: MemorySettings,
        /// The model it asks.
        model: ModelJob,
    },
    /// A family that only tests have.
    #[cfg(feature = "test-families")]
    TestOnly(crate::families::test_only::Job),
}

impl FamilyJob {
    /// Builds the processor.
    ///
    /// # Errors
    /// [`ClientFault`] when the model's settings make no client.
    pub fn family(&self) -> Result<Arc<dyn Family>, ClientFault> {
        match self {
            Self::Memory { settings, model } => {
                // Caps, timeout and retry are the worker's to apply.
                Ok(Arc::new(MemoryFamily::new(
                    memory::spec(),
                    *settings,
                    model.generator()?,
                )))
            }
            #[cfg(feature = "test-families")]
            Self::TestOnly(job) => Ok(job.family()),
        }
    }
}

/// A model's client as it crosses to a child.
#[derive(Clone, Serialize, Deserialize)]
pub struct ModelJob {
    is_anthropic: bool,
    model: String,
    base_url: String,
    allow_insecure_http: bool,
    api_key: Option<Crossing>,
    headers: BTreeMap<String, Crossing>,
    model_settings: Map<String, Value>,
    timeout: Duration,
    requests_max: u32,
}

impl ModelJob {
    /// The client that the settings describe.
    ///
    /// # Errors
    /// [`ClientFault`] when they make none.
    pub fn generator(&self) -> Result<Arc<dyn Generator>, ClientFault> {
        let secret = |crossing: &Crossing| crossing.0.clone();
        let client = ClientSettings {
            allow_insecure_http: self.allow_insecure_http,
            api_key: self.api_key.as_ref().map(secret),
            headers: self
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), secret(value)))
                .collect(),
            model_settings: self.model_settings.clone(),
            timeout: self.timeout,
            requests_max: self.requests_max,
            ..ClientSettings::new(self.model.clone(), self.base_url.clone())
        };
        Ok(if self.is_anthropic {
            Arc::new(Anthropic::new(client)?)
        } else {
            Arc::new(OpenAiChat::new(client)?)
        })
    }
}

impl From<&GenerationSettings> for ModelJob {
    fn from(settings: &GenerationSettings) -> Self {
        let crossing = |secret: &SecretString| Crossing(secret.clone());
        Self {
            is_anthropic: settings.provider == Provider::Anthropic,
            model: settings.model.clone(),
            base_url: settings.base_url.clone(),
            allow_insecure_http: settings.allow_insecure_http,
            api_key: settings.api_key.as_ref().map(crossing),
            headers: settings
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), crossing(value)))
                .collect(),
            model_settings: settings.model_settings.clone(),
            timeout: settings.timeout.as_std(),
            requests_max: settings.requests_max,
        }
    }
}

impl fmt::Debug for ModelJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelJob")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// A secret that may be written to the pipe of a child, and nowhere else.
#[derive(Clone)]
struct Crossing(SecretString);

impl Serialize for Crossing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for Crossing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}
