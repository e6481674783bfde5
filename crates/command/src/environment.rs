//! Environment variables that make programs run things.

use crate::line::Assignment;
use crate::word::Word;

/// What a variable does to the programs that see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its mere presence loads code, or changes which code runs, where it is fetched from or what is kept of it.
    Code,
    /// Its value is shell text, or a program with its arguments.
    Shell,
    /// Its value is a list of options, of which the ones that hold these texts run code.
    Options(&'static [&'static str]),
    /// A search path for the modules of a language.
    Modules,
}

/// Variables by name, sorted; a trailing `*` stands for any ending.
const TABLE: [(&str, Kind); 123] = [
    ("ALL_PROXY", Kind::Code),
    ("AR", Kind::Code),
    ("BASH_ENV", Kind::Code),
    ("BASH_FUNC_*", Kind::Code),
    ("BASH_LOADABLES_PATH", Kind::Code),
    ("BASH_XTRACEFD", Kind::Code),
    ("BROWSER", Kind::Shell),
    ("BUNDLE_GEMFILE", Kind::Code),
    ("CARGO_BUILD_RUSTC", Kind::Code),
    ("CARGO_BUILD_RUSTC_WRAPPER", Kind::Code),
    ("CC", Kind::Code),
    ("CLASSPATH", Kind::Modules),
    ("CMAKE_TOOLCHAIN_FILE", Kind::Code),
    ("COMPILER_PATH", Kind::Code),
    ("CORECLR_PROFILER*", Kind::Code),
    ("COSIGN_SKIP_TLOG", Kind::Code),
    ("CURL_HOME", Kind::Code),
    ("CVS_RSH", Kind::Shell),
    ("CXX", Kind::Code),
    ("DOCKER_HOST", Kind::Code),
    ("DOTNET_STARTUP_HOOKS", Kind::Code),
    ("DYLD_*", Kind::Code),
    ("EDITOR", Kind::Shell),
    ("ENV", Kind::Code),
    ("FCEDIT", Kind::Shell),
    ("GCC_EXEC_PREFIX", Kind::Code),
    ("GCONV_PATH", Kind::Code),
    ("GEM_HOME", Kind::Code),
    ("GEM_PATH", Kind::Code),
    ("GIT_ALTERNATE_OBJECT_DIRECTORIES", Kind::Code),
    ("GIT_ASKPASS", Kind::Shell),
    ("GIT_CONFIG", Kind::Code),
    ("GIT_CONFIG_*", Kind::Code),
    ("GIT_EDITOR", Kind::Shell),
    ("GIT_EXEC_PATH", Kind::Code),
    ("GIT_EXTERNAL_DIFF", Kind::Shell),
    ("GIT_PAGER", Kind::Shell),
    ("GIT_PROXY_COMMAND", Kind::Shell),
    ("GIT_SEQUENCE_EDITOR", Kind::Shell),
    ("GIT_SSH", Kind::Shell),
    ("GIT_SSH_COMMAND", Kind::Shell),
    ("GIT_TEMPLATE_DIR", Kind::Code),
    ("GNUPGHOME", Kind::Code),
    (
        "GOFLAGS",
        Kind::Options(&["-toolexec", "-exec", "-overlay"]),
    ),
    ("GOINSECURE", Kind::Code),
    ("GONOSUMDB", Kind::Code),
    ("GOPROXY", Kind::Code),
    ("HISTCONTROL", Kind::Code),
    ("HISTFILE", Kind::Code),
    ("HISTFILESIZE", Kind::Code),
    ("HISTIGNORE", Kind::Code),
    ("HISTSIZE", Kind::Code),
    ("HOME", Kind::Code),
    ("HTTPS_PROXY", Kind::Code),
    ("HTTP_PROXY", Kind::Code),
    ("INPUTRC", Kind::Code),
    (
        "JAVA_TOOL_OPTIONS",
        Kind::Options(&[
            "-agent",
            "-javaagent",
            "-XX:OnError",
            "-XX:OnOutOfMemoryError",
        ]),
    ),
    (
        "JDK_JAVA_OPTIONS",
        Kind::Options(&[
            "-agent",
            "-javaagent",
            "-XX:OnError",
            "-XX:OnOutOfMemoryError",
            "@",
        ]),
    ),
    ("KUBECONFIG", Kind::Code),
    ("LD", Kind::Code),
    ("LD_*", Kind::Code),
    ("LESSCLOSE", Kind::Shell),
    ("LESSOPEN", Kind::Shell),
    ("MAKEFILES", Kind::Code),
    (
        "MAKEFLAGS",
        Kind::Options(&["--eval", "SHELL=", "-f", "--file", "--makefile", "-I"]),
    ),
    ("MANOPT", Kind::Options(&["-P", "--pager", "-H", "--html"])),
    ("MANPAGER", Kind::Shell),
    ("MAVEN_OPTS", Kind::Options(&["-agent", "-javaagent"])),
    (
        "NODE_OPTIONS",
        Kind::Options(&[
            "-r",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "--eval",
            "--inspect",
        ]),
    ),
    ("NODE_PATH", Kind::Modules),
    ("NPM_CONFIG_*", Kind::Code),
    ("NPM_CONFIG_GIT", Kind::Shell),
    ("NPM_CONFIG_GLOBALCONFIG", Kind::Code),
    ("NPM_CONFIG_NODE_OPTIONS", Kind::Code),
    ("NPM_CONFIG_REGISTRY", Kind::Code),
    ("NPM_CONFIG_SCRIPT_SHELL", Kind::Shell),
    ("NPM_CONFIG_USERCONFIG", Kind::Code),
    ("OPENSSL_CONF", Kind::Code),
    ("OPENSSL_ENGINES", Kind::Code),
    ("PAGER", Kind::Shell),
    ("PATH", Kind::Code),
    ("PERL5DB", Kind::Code),
    ("PERL5LIB", Kind::Modules),
    ("PERL5OPT", Kind::Code),
    ("PERLLIB", Kind::Modules),
    ("PIP_CONFIG_FILE", Kind::Code),
    ("PIP_EXTRA_INDEX_URL", Kind::Code),
    ("PIP_INDEX_URL", Kind::Code),
    ("PKG_CONFIG_PATH", Kind::Modules),
    ("PROMPT_COMMAND", Kind::Shell),
    ("PS0", Kind::Code),
    ("PS4", Kind::Code),
    ("PYTHONBREAKPOINT", Kind::Code),
    ("PYTHONHOME", Kind::Code),
    ("PYTHONINSPECT", Kind::Code),
    ("PYTHONPATH", Kind::Modules),
    ("PYTHONSTARTUP", Kind::Code),
    ("PYTHONUSERBASE", Kind::Code),
    ("PYTHONWARNINGS", Kind::Options(&["."])),
    ("RSYNC_RSH", Kind::Shell),
    ("RUBYLIB", Kind::Modules),
    ("RUBYOPT", Kind::Options(&["-r", "-I", "-e"])),
    ("RUSTC", Kind::Shell),
    ("RUSTC_WORKSPACE_WRAPPER", Kind::Shell),
    ("RUSTC_WRAPPER", Kind::Shell),
    ("RUSTDOC", Kind::Shell),
    ("R_PROFILE", Kind::Code),
    ("SHELL", Kind::Shell),
    ("SHELLOPTS", Kind::Code),
    ("SSH_AUTH_SOCK", Kind::Code),
    ("SSL_CERT_FILE", Kind::Code),
    ("SUDO_ASKPASS", Kind::Shell),
    ("SUDO_EDITOR", Kind::Shell),
    ("TAPE", Kind::Code),
    ("TAR_OPTIONS", Kind::Code),
    ("VISUAL", Kind::Shell),
    ("WGETRC", Kind::Code),
    ("XDG_CONFIG_HOME", Kind::Code),
    ("XDG_DATA_HOME", Kind::Code),
    ("all_proxy", Kind::Code),
    ("http_proxy", Kind::Code),
    ("https_proxy", Kind::Code),
    ("npm_config_*", Kind::Code),
];

/// Names whose value no common program takes for code, a path to write or a place to connect to.
const HARMLESS: [&str; 29] = [
    "CGO_ENABLED",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBIAN_FRONTEND",
    "DEBUG",
    "FORCE_COLOR",
    "GIT_TERMINAL_PROMPT",
    "GOARCH",
    "GOOS",
    "IFS",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOG_LEVEL",
    "NODE_ENV",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "RACK_ENV",
    "RAILS_ENV",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
    "TERM",
    "TZ",
    "VERBOSE",
];

/// Names of the table that most sessions have a value for.
const USUAL: [&str; 33] = [
    "ALL_PROXY",
    "BROWSER",
    "DOCKER_HOST",
    "EDITOR",
    "ENV",
    "FCEDIT",
    "GNUPGHOME",
    "HISTCONTROL",
    "HISTFILE",
    "HISTFILESIZE",
    "HISTIGNORE",
    "HISTSIZE",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "INPUTRC",
    "KUBECONFIG",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "PATH",
    "PROMPT_COMMAND",
    "SHELL",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SUDO_EDITOR",
    "VISUAL",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "all_proxy",
    "http_proxy",
    "https_proxy",
];

/// Programs that pagers and editors are commonly set to, which do nothing of their own accord.
const HARMLESS_PROGRAMS: [&[u8]; 14] = [
    b"",
    b":",
    b"cat",
    b"less",
    b"less -F",
    b"less -FRX",
    b"less -R",
    b"more",
    b"true",
    b"vi",
    b"vim",
    b"nano",
    b"emacs",
    b"code --wait",
];

/// Whether a variable of this name is no matter for a policy (`LANG`, `LC_ALL`, `NO_COLOR`, …).
pub fn harmless_assignment(name: &[u8]) -> bool {
    name.starts_with(b"LC_") || HARMLESS.iter().any(|harmless| harmless.as_bytes() == name)
}

/// Whether a variable of this value makes programs run, fetch or keep something else than their words say.
pub fn changes_meaning(name: &[u8], value: &[u8]) -> bool {
    runs(name, &Word::literal(value)) != Runs::Nothing
}

/// Whether an assignment does so, as far as its value can be known.
pub fn assignment_changes_meaning(set: &Assignment) -> bool {
    runs(&set.name, &set.value) != Runs::Nothing
}

/// Whether most sessions have a variable of this name, so that only a change of it says something.
pub fn is_usual(name: &[u8]) -> bool {
    USUAL.iter().any(|usual| usual.as_bytes() == name)
}

/// What an assignment makes programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    Nothing,
    /// Code that the line does not show.
    Code,
    /// The value itself, which is shell text.
    Shell,
}

/// What setting this variable to this value makes programs run.
pub(crate) fn runs(name: &[u8], value: &Word) -> Runs {
    let Some(kind) = kind(name) else {
        return Runs::Nothing;
    };
    match kind {
        Kind::Code if value.value() == Some(b"") => Runs::Nothing,
        Kind::Code => Runs::Code,
        Kind::Shell => match value.value() {
            Some(text)
                if HARMLESS_PROGRAMS.contains(&text) || name == b"SHELL" && is_shell(text) =>
            {
                Runs::Nothing
            }
            _ => Runs::Shell,
        },
        Kind::Options(markers) => match value.value() {
            Some(text) => {
                let runs = markers.iter().any(|marker| {
                    text.windows(marker.len())
                        .any(|window| window == marker.as_bytes())
                });
                if runs { Runs::Code } else { Runs::Nothing }
            }
            None => Runs::Code,
        },
        Kind::Modules => match value.value() {
            // Modules of the project itself run anyway when the project's program does.
            Some(text) if text.split(|&byte| byte == b':').all(is_local) => Runs::Nothing,
            _ => Runs::Code,
        },
    }
}

fn is_shell(text: &[u8]) -> bool {
    let name = text.rsplit(|&byte| byte == b'/').next().unwrap_or(text);
    (text.starts_with(b"/bin/") || text.starts_with(b"/usr/bin/"))
        && matches!(name, b"sh" | b"bash" | b"dash" | b"zsh" | b"fish")
}

fn is_local(path: &[u8]) -> bool {
    !path.starts_with(b"/")
        && !path.starts_with(b"~")
        && !path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

fn kind(name: &[u8]) -> Option<Kind> {
    // npm reads its settings in either case; the others do not.
    let npm = name
        .get(..11)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"npm_config_"));
    TABLE
        .iter()
        .find(|(known, _)| match known.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix.as_bytes()),
            None if npm => known.as_bytes().eq_ignore_ascii_case(name),
            None => known.as_bytes() == name,
        })
        .map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::{Runs, TABLE, USUAL, harmless_assignment, runs};
    use crate::word::Word;

    #[test]
    fn table_is_sorted_and_disjoint_from_the_harmless() {
        assert!(TABLE.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in TABLE {
            assert!(!harmless_assignment(name.as_bytes()), "{name}");
        }
        for usual in USUAL {
            assert!(TABLE.iter().any(|(name, _)| *name == usual), "{usual}");
        }
    }

    #[test]
    fn values_decide_where_they_can() {
        let cases = [
            ("LD_PRELOAD", "./x.so", Runs::Code),
            ("GIT_PAGER", "cat", Runs::Nothing),
            ("GIT_PAGER", "sh -c x", Runs::Shell),
            ("NODE_OPTIONS", "--max-old-space-size=4096", Runs::Nothing),
            ("NODE_OPTIONS", "--require ./x.js", Runs::Code),
            ("PYTHONPATH", "src:.", Runs::Nothing),
            ("PYTHONPATH", "/tmp/x", Runs::Code),
            ("PYTHONPATH", "../x", Runs::Code),
            ("PATH", "/x:/usr/bin", Runs::Code),
            ("GIT_CONFIG_COUNT", "1", Runs::Code),
            ("MAKEFLAGS", "-j8", Runs::Nothing),
            ("npm_config_script_shell", "x", Runs::Shell),
            ("LANG", "C", Runs::Nothing),
            ("MY_VARIABLE", "x", Runs::Nothing),
        ];
        for (name, value, expected) in cases {
            assert_eq!(
                runs(name.as_bytes(), &Word::from(value)),
                expected,
                "{name}={value}"
            );
        }
        assert_eq!(runs(b"NODE_OPTIONS", &Word::unknown("$x")), Runs::Code);
    }
}
