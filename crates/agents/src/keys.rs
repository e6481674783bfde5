//! The variables in which people keep keys. None of them is let into an agent's world unless its
//! descriptor says that the client needs it itself.

/// Names that are known to hold keys of models, clouds, forges and registries.
pub const KNOWN: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CURSOR_API_KEY",
    "COPILOT_PROVIDER_API_KEY",
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "MISTRAL_API_KEY",
    "GROQ_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
    "TOGETHER_API_KEY",
    "COHERE_API_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AZURE_CLIENT_SECRET",
    "NPM_TOKEN",
    "NODE_AUTH_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "PYPI_TOKEN",
    "TWINE_PASSWORD",
    "DOCKER_AUTH_CONFIG",
    "MOCK_API_KEY",
];

/// What the name of a variable ends with that holds a key of something that is not known here.
const ENDINGS: &[&str] = &[
    "_API_KEY",
    "_APIKEY",
    "_TOKEN",
    "_SECRET",
    "_SECRET_KEY",
    "_ACCESS_KEY",
    "_PASSWORD",
    "_PASSWD",
    "_CREDENTIALS",
    "_PRIVATE_KEY",
    "_AUTH",
];

/// Whether a variable may hold a key.
pub fn may_be_key(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    KNOWN.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_name_or_by_how_names_end() {
        for name in [
            "ANTHROPIC_API_KEY",
            "MY_CORP_TOKEN",
            "db_password",
            "FOO_API_KEY",
        ] {
            assert!(may_be_key(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "TERM",
            "EDITOR",
            "TOKENIZERS_PARALLELISM",
            "XAUTHORITY",
        ] {
            assert!(!may_be_key(name), "{name}");
        }
    }
}
