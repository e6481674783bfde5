//! What secrets look like and where they stand: data for the redactor.

/// Characters that the body of a token may have.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Dashed,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// Capital letters and digits.
    Upper,
}

impl Body {
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Dashed => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        }
    }
}

/// A token that is known by how it starts. `run` letters and digits in a row tell
/// a token from a hyphenated name.
pub(super) struct Token {
    pub prefix: &'static str,
    pub body: Body,
    pub least: usize,
    pub run: usize,
}

const fn token(prefix: &'static str, body: Body, least: usize, run: usize) -> Token {
    Token {
        prefix,
        body,
        least,
        run,
    }
}

/// No token is shorter than this.
pub(super) const SHORTEST_TOKEN: usize = 15;

/// Longer prefixes stand before their own beginnings.
pub(super) const TOKENS: &[Token] = &[
    token("ghp_", Body::Alnum, 20, 20),
    token("gho_", Body::Alnum, 20, 20),
    token("ghu_", Body::Alnum, 20, 20),
    token("ghs_", Body::Alnum, 20, 20),
    token("ghr_", Body::Alnum, 20, 20),
    token("github_pat_", Body::Word, 20, 16),
    token("glpat-", Body::Dashed, 16, 8),
    token("gldt-", Body::Dashed, 16, 8),
    token("glrt-", Body::Dashed, 16, 8),
    token("glptt-", Body::Dashed, 16, 8),
    token("glsa_", Body::Word, 20, 16),
    token("sk-ant-", Body::Dashed, 16, 8),
    token("sk-proj-", Body::Dashed, 16, 8),
    token("sk-", Body::Dashed, 20, 16),
    token("sk_live_", Body::Alnum, 16, 16),
    token("sk_test_", Body::Alnum, 16, 16),
    token("rk_live_", Body::Alnum, 16, 16),
    token("rk_test_", Body::Alnum, 16, 16),
    token("whsec_", Body::Alnum, 16, 16),
    token("xoxa-", Body::Dashed, 10, 8),
    token("xoxb-", Body::Dashed, 10, 8),
    token("xoxp-", Body::Dashed, 10, 8),
    token("xoxr-", Body::Dashed, 10, 8),
    token("xoxs-", Body::Dashed, 10, 8),
    token("xapp-", Body::Dashed, 10, 8),
    token("AKIA", Body::Upper, 16, 16),
    token("ASIA", Body::Upper, 16, 16),
    token("AIza", Body::Dashed, 35, 4),
    token("ya29.", Body::Dotted, 20, 8),
    token("GOCSPX-", Body::Dashed, 20, 4),
    token("npm_", Body::Alnum, 30, 30),
    token("pypi-", Body::Dashed, 32, 16),
    token("hf_", Body::Alnum, 30, 30),
    token("dop_v1_", Body::Alnum, 32, 32),
    token("dckr_pat_", Body::Dashed, 20, 8),
    token("shpat_", Body::Alnum, 32, 32),
    token("tskey-", Body::Dashed, 20, 8),
    token("lin_api_", Body::Alnum, 20, 20),
    token("rubygems_", Body::Alnum, 32, 32),
    token("AGE-SECRET-KEY-1", Body::Upper, 40, 40),
    token("SG.", Body::Dotted, 40, 8),
    token("hvs.", Body::Dashed, 24, 16),
];

/// Endings of names that hold secrets, lower case and without separators.
pub(super) const SURE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "secretkey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "accountkey",
    "sharedkey",
    "connectionstring",
    "bearer",
];

/// Names that end in `pass` and mean it, although nothing separates it.
pub(super) const GLUED_PASS: &[&str] = &[
    "storepass",
    "keypass",
    "dbpass",
    "userpass",
    "smtppass",
    "rootpass",
    "adminpass",
    "sshpass",
];

/// Endings of names that may hold a secret: only a value that looks random counts.
pub(super) const MAYBE: &[&str] = &[
    "key",
    "auth",
    "pat",
    "credential",
    "credentials",
    "session",
    "sessionid",
    "signature",
];

/// Headers whose value is a secret, lower case.
pub(super) const HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "private-token",
    "job-token",
    "deploy-token",
    "x-vault-token",
    "x-amz-security-token",
    "x-goog-api-key",
    "x-csrf-token",
];

/// Words that name the kind of credentials that follow, lower case.
pub(super) const SCHEMES: &[&str] = &["bearer", "basic", "token", "digest", "negotiate", "apikey"];

/// Where in a word the secret stands.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Whole,
    /// After the first of this byte; without it there is no secret.
    After(u8),
}

/// An option of one tool whose value is a secret.
pub(super) struct Option {
    pub tools: &'static [&'static str],
    /// The option counts only after this subcommand.
    pub after: &'static str,
    pub flag: &'static str,
    /// The value may be glued to the flag.
    pub attached: bool,
    /// The value may be the next word.
    pub next: bool,
    pub part: Part,
}

const fn option(tools: &'static [&'static str], flag: &'static str) -> Option {
    Option {
        tools,
        after: "",
        flag,
        attached: false,
        next: true,
        part: Part::Whole,
    }
}

const fn attached(tools: &'static [&'static str], flag: &'static str) -> Option {
    Option {
        attached: true,
        next: false,
        ..option(tools, flag)
    }
}

const CURL: &[&str] = &["curl", "curlie"];
const MYSQL: &[&str] = &[
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mysqlimport",
    "mysqlsh",
    "mariadb",
    "mariadb-dump",
    "mariadb-admin",
];
const MONGO: &[&str] = &[
    "mongo",
    "mongosh",
    "mongodump",
    "mongorestore",
    "mongoexport",
];
const LDAP: &[&str] = &[
    "ldapsearch",
    "ldapadd",
    "ldapmodify",
    "ldapdelete",
    "ldapwhoami",
];
const SEVEN: &[&str] = &["7z", "7za", "7zr", "rar", "unrar"];
const LOGIN: &[&str] = &[
    "docker", "podman", "nerdctl", "buildah", "helm", "oras", "skopeo", "az",
];
const SMB: &[&str] = &["smbclient", "smbmap", "rpcclient", "net"];

const REDIS: &[&str] = &["redis-cli", "valkey-cli"];
const ZIP: &[&str] = &["zip", "unzip", "zipcloak"];
const SQLCMD: &[&str] = &["sqlcmd", "bcp"];
const USERS: &[&str] = &["useradd", "usermod"];
const SSHPASS: &[&str] = &["sshpass"];
const OPENSSL: &[&str] = &["openssl"];
const IPMI: &[&str] = &["ipmitool"];
const NMCLI: &[&str] = &["nmcli"];

/// All tools that have such options.
pub(super) const TOOLS: &[&[&str]] = &[
    CURL, MYSQL, MONGO, LDAP, SEVEN, LOGIN, SMB, REDIS, ZIP, SQLCMD, USERS, SSHPASS, OPENSSL, IPMI,
    NMCLI,
];

/// Short options whose meaning depends on the tool.
pub(super) const OPTIONS: &[Option] = &[
    attached(MYSQL, "-p"),
    Option {
        attached: true,
        ..option(SSHPASS, "-p")
    },
    Option {
        attached: true,
        part: Part::After(b':'),
        ..option(CURL, "-u")
    },
    Option {
        attached: true,
        part: Part::After(b':'),
        ..option(CURL, "-U")
    },
    Option {
        part: Part::After(b':'),
        ..option(CURL, "--user")
    },
    Option {
        part: Part::After(b':'),
        ..option(CURL, "--proxy-user")
    },
    Option {
        part: Part::After(b'='),
        ..option(CURL, "-b")
    },
    Option {
        part: Part::After(b'='),
        ..option(CURL, "--cookie")
    },
    option(CURL, "--oauth2-bearer"),
    option(REDIS, "-a"),
    Option {
        after: "login",
        ..option(LOGIN, "-p")
    },
    Option {
        part: Part::After(b':'),
        ..option(&["skopeo", "buildah", "podman"], "--creds")
    },
    Option {
        part: Part::After(b':'),
        ..option(&["skopeo"], "--src-creds")
    },
    Option {
        part: Part::After(b':'),
        ..option(&["skopeo"], "--dest-creds")
    },
    option(LDAP, "-w"),
    option(MONGO, "-p"),
    option(ZIP, "-P"),
    attached(SEVEN, "-p"),
    attached(&["rar", "unrar"], "-hp"),
    Option {
        attached: true,
        ..option(SQLCMD, "-P")
    },
    Option {
        part: Part::After(b'%'),
        ..option(SMB, "-U")
    },
    Option {
        part: Part::After(b':'),
        ..option(OPENSSL, "-passin")
    },
    Option {
        part: Part::After(b':'),
        ..option(OPENSSL, "-passout")
    },
    Option {
        part: Part::After(b':'),
        ..option(OPENSSL, "-pass")
    },
    option(OPENSSL, "-k"),
    option(OPENSSL, "-K"),
    option(IPMI, "-P"),
    option(USERS, "-p"),
    option(NMCLI, "password"),
    option(NMCLI, "wifi-sec.psk"),
];
