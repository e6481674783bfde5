//! Which model an agent is pointed to, from the variables that a person has set.

use std::fmt;

use substrate_modelgate::{Credential, Url, UrlError};

use crate::descriptor::{Descriptor, Model};

/// A model, where it is, and the key for it.
#[derive(Debug)]
pub struct Chosen<'a> {
    /// The model.
    pub model: &'a Model,
    /// Where it is.
    pub upstream: Url,
    /// The key, as it is sent.
    pub credential: Credential,
    /// The variable that the key was found in.
    pub variable: &'a str,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum NoModel {
    /// No variable holds a key; these would be looked at.
    NoKey(Vec<String>),
    /// The variable of the base URL says nothing that can be dialled.
    BadUrl(String, UrlError),
    /// Nobody says where the model is; this variable would.
    NoHost(String),
    /// The key cannot be sent.
    BadKey(String),
}

impl fmt::Display for NoModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoModel::NoKey(names) => write!(f, "no key is set; set {}", names.join(" or ")),
            NoModel::BadUrl(name, error) => write!(f, "{name}: {error}"),
            NoModel::NoHost(name) => write!(f, "{name} is not set, which says where the model is"),
            NoModel::BadKey(name) => write!(
                f,
                "{name} holds a line break or something else that no key has"
            ),
        }
    }
}

/// The first model whose key is set. What the variable of its base URL says goes before the descriptor's host.
pub fn choose<'a>(
    descriptor: &'a Descriptor,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Chosen<'a>, NoModel> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let keys = descriptor
        .models
        .iter()
        .flat_map(|model| model.keys.iter().map(move |key| (model, key)));
    for (model, key) in keys {
        let Some(value) = set(&key.env) else {
            continue;
        };
        let value = value.trim();
        if !value.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
            return Err(NoModel::BadKey(key.env.clone()));
        }
        return Ok(Chosen {
            model,
            upstream: upstream(model, &set)?,
            credential: Credential {
                header: key.header.clone(),
                value: format!("{}{value}", key.prefix),
            },
            variable: &key.env,
        });
    }
    let all = descriptor.models.iter().flat_map(|model| &model.keys);
    Err(NoModel::NoKey(all.map(|key| key.env.clone()).collect()))
}

fn upstream(model: &Model, set: &impl Fn(&str) -> Option<String>) -> Result<Url, NoModel> {
    let named = model
        .base_url
        .as_ref()
        .and_then(|name| Some((name, set(name)?)));
    if let Some((name, text)) = named {
        return Url::parse(text.trim()).map_err(|error| NoModel::BadUrl(name.clone(), error));
    }
    let mut url = match &model.host {
        Some(url) => url.clone(),
        None => return Err(NoModel::NoHost(model.base_url.clone().unwrap_or_default())),
    };
    url.base = format!("{}{}", url.base, model.base);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::Shelf;

    fn of(name: &str, variables: &[(&str, &str)]) -> Result<(String, String), NoModel> {
        let shelf = Shelf::shipped();
        let found = choose(shelf.get(name).unwrap(), |name| {
            let same = variables.iter().find(|(known, _)| *known == name);
            same.map(|(_, value)| (*value).to_owned())
        });
        found.map(|found| (found.upstream.to_string(), found.credential.value))
    }

    #[test]
    fn the_first_key_that_is_set_decides() {
        let anthropic = ("https://api.anthropic.com".to_owned(), "k".to_owned());
        assert_eq!(
            of("claude", &[("ANTHROPIC_API_KEY", "k\n")]).unwrap(),
            anthropic
        );
        let openai = (
            "https://api.openai.com/v1".to_owned(),
            "Bearer k".to_owned(),
        );
        assert_eq!(of("codex", &[("OPENAI_API_KEY", "k")]).unwrap(), openai);
        assert_eq!(of("opencode", &[("OPENAI_API_KEY", "k")]).unwrap(), openai);
        let own = [
            ("OPENAI_API_KEY", "k"),
            ("OPENAI_BASE_URL", "https://gw.example/x/"),
        ];
        assert_eq!(of("codex", &own).unwrap().0, "https://gw.example/x");
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = of("gemini", &[("GEMINI_API_KEY", "")])
            .unwrap_err()
            .to_string();
        assert!(none.contains("GEMINI_API_KEY or GOOGLE_API_KEY"), "{none}");
        let none = of("copilot", &[("COPILOT_PROVIDER_API_KEY", "k")]).unwrap_err();
        assert_eq!(
            none,
            NoModel::NoHost("COPILOT_PROVIDER_BASE_URL".to_owned())
        );
        let clear = [
            ("ANTHROPIC_API_KEY", "k"),
            ("ANTHROPIC_BASE_URL", "http://gw.example"),
        ];
        assert!(matches!(of("claude", &clear), Err(NoModel::BadUrl(..))));
        let injected = [("ANTHROPIC_API_KEY", "k\r\nX: y")];
        assert!(matches!(of("claude", &injected), Err(NoModel::BadKey(_))));
    }
}
