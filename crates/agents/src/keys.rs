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

/// Words in the name of a variable that holds a key of something that is not known here.
const WORDS: &[&str] = &[
    "KEY",
    "APIKEY",
    "KEYS",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PASSPHRASE",
    "PWD",
    "PAT",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTH",
    "AUTHORIZATION",
    "COOKIE",
    "PGPASSWORD",
    "HEADERS",
];

/// Names that have such a word in them and hold none.
const HARMLESS: &[&str] = &["PWD", "OLDPWD", "SSH_AUTH_SOCK"];

/// Whether a variable may hold a key: by its name, or because its value is an address with a password in it.
pub fn may_be_key(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let named = KNOWN.contains(&name.as_str())
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| WORDS.contains(&word));
    (named && !HARMLESS.contains(&name.as_str())) || has_password(value)
}

/// Whether a text has an address with a password in it: `scheme://user:password@host`.
fn has_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
        let who = authority.rsplit_once('@').map(|(who, _)| who);
        who.and_then(|who| who.split_once(':'))
            .is_some_and(|(_, password)| !password.is_empty())
    })
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
            "OPENAI_KEY",
            "PGPASSWORD",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "ANTHROPIC_CUSTOM_HEADERS",
            "KEY_OF_MINE",
        ] {
            assert!(may_be_key(name, "x"), "{name}");
        }
        for value in [
            "postgres://me:secret@db/x",
            "http://u:p@proxy:3128",
            "a b=https://x:y@z",
        ] {
            assert!(may_be_key("DATABASE_URL", value), "{value}");
        }
        for value in [
            "https://host/x@y:z",
            "http://user@host:80/",
            "http://host:80",
        ] {
            assert!(!may_be_key("SOME_URL", value), "{value}");
        }
        for name in [
            "PATH",
            "HOME",
            "TERM",
            "EDITOR",
            "TOKENIZERS_PARALLELISM",
            "XAUTHORITY",
            "PWD",
            "SSH_AUTH_SOCK",
            "GIT_AUTHOR_NAME",
            "KEYBOARD",
        ] {
            assert!(!may_be_key(name, "/usr/bin"), "{name}");
        }
    }
}
