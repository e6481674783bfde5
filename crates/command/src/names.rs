//! The words that the shell itself answers for.

/// Reserved words, which count only where a command may start.
const KEYWORDS: [&[u8]; 22] = [
    b"!",
    b"[[",
    b"]]",
    b"case",
    b"coproc",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"esac",
    b"fi",
    b"for",
    b"function",
    b"if",
    b"in",
    b"select",
    b"then",
    b"time",
    b"until",
    b"while",
    b"{",
    b"}",
];

/// Builtins of bash, sorted.
const BUILTINS: [&[u8]; 61] = [
    b".",
    b":",
    b"[",
    b"alias",
    b"bg",
    b"bind",
    b"break",
    b"builtin",
    b"caller",
    b"cd",
    b"command",
    b"compgen",
    b"complete",
    b"compopt",
    b"continue",
    b"declare",
    b"dirs",
    b"disown",
    b"echo",
    b"enable",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"false",
    b"fc",
    b"fg",
    b"getopts",
    b"hash",
    b"help",
    b"history",
    b"jobs",
    b"kill",
    b"let",
    b"local",
    b"logout",
    b"mapfile",
    b"popd",
    b"printf",
    b"pushd",
    b"pwd",
    b"read",
    b"readarray",
    b"readonly",
    b"return",
    b"set",
    b"shift",
    b"shopt",
    b"source",
    b"suspend",
    b"test",
    b"times",
    b"trap",
    b"true",
    b"type",
    b"typeset",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"wait",
];

/// Whether bash answers for this name itself.
pub fn is_builtin(name: &[u8]) -> bool {
    BUILTINS.binary_search(&name).is_ok()
}

/// Whether this is a reserved word of the shell.
pub fn is_keyword(name: &[u8]) -> bool {
    keyword(name).is_some()
}

pub(crate) fn keyword(name: &[u8]) -> Option<&'static [u8]> {
    KEYWORDS
        .binary_search(&name)
        .ok()
        .map(|index| KEYWORDS[index])
}

/// Whether a name is a function of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsFunction {
    No,
    /// On some way through the line it is; on another the name means a builtin or a program.
    Perhaps,
    Certainly,
}

#[cfg(test)]
mod tests {
    use super::{BUILTINS, KEYWORDS, is_builtin, is_keyword};

    #[test]
    fn tables_are_sorted() {
        assert!(BUILTINS.is_sorted());
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn knows_both_kinds() {
        assert!(is_builtin(b"cd") && is_builtin(b".") && !is_builtin(b"rm"));
        assert!(is_keyword(b"while") && is_keyword(b"{") && !is_keyword(b"cd"));
    }
}
