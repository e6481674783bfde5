//! Where the engine and the front end meet, and the control text that lets no code of the user's do anything
//! to it.

use super::quote;

/// The numbers and names that control text uses.
#[derive(Clone, Debug)]
pub struct Door {
    /// The number that the control socket has beside 0 while control text runs.
    control: i32,
    /// The terminal, as the engine opens it; a variable of the engine's until it has said its name.
    terminal: Vec<u8>,
}

/// No number that the front end asks for is higher.
const HIGHEST: u64 = 100;

/// Words of the shell that control text stands on.
const WORDS: &str = "builtin . eval exec set unset trap return break continue export read printf history shopt \
    local declare bind alias compgen jobs complete fc mapfile kill umask shift";

/// The same for those that an alias could hide.
const RESERVED: &str =
    "{ } if then elif else fi case esac in for while until do done [[ function time !";

impl Door {
    /// Below the limit of descriptors, also one that people set; above what they and bash open.
    pub fn below(limit: u64) -> Self {
        Self {
            control: i32::try_from(limit.min(HIGHEST)).unwrap_or(0) - 1,
            terminal: br#""$__substrate_tty""#.to_vec(),
        }
    }

    /// The terminal has this name in the engine.
    pub fn on(self, terminal: &[u8]) -> Self {
        Self {
            terminal: quote::ansi_c(terminal),
            ..self
        }
    }

    /// The number of the control socket.
    pub fn control(&self) -> i32 {
        self.control
    }

    /// Tells the definitions of the terminal.
    pub fn tell(&self) -> Vec<u8> {
        [b"__substrate_tty=", self.terminal.as_slice(), b"; "].concat()
    }

    /// The terminal as a word of the shell.
    pub fn terminal(&self) -> &[u8] {
        &self.terminal
    }

    /// Control text as one command, with the terminal as its standard input and the control socket beside it, so
    /// that traps and hooks can do nothing to what the engine reads next. It must hold no newline.
    pub fn scoped(&self, text: &[u8]) -> Vec<u8> {
        let end = format!("; }} {}>&0 <>", self.control);
        [b"{ ", text, end.as_bytes(), &self.terminal].concat()
    }

    /// The definitions, as a file.
    pub fn definitions(&self) -> String {
        self.fill(include_str!("setup.bash"))
    }

    /// What the front end can ask.
    pub fn questions(&self) -> String {
        self.fill(include_str!("questions.bash"))
    }

    fn fill(&self, text: &str) -> String {
        text.replace("@CONTROL@", &self.control.to_string())
    }

    /// Tells which of the shell's own words that control text stands on are switched off, and switches them on.
    pub fn words(&self) -> String {
        format!(
            "\\builtin enable -n $__substrate_ >&{0}; \\builtin enable {WORDS} $__substrate_; \
             \\builtin printf '\\0E\\0' $__substrate_ >&{0}",
            self.control
        )
    }

    /// Runs the text in `__substrate_l` as a sourced file would be. Where a RETURN trap may be, it is told of
    /// before this file ends, which would run it.
    pub fn run_line(&self, with_return_trap: bool) -> Vec<u8> {
        let (closed, told) = match with_return_trap {
            false => (String::new(), String::new()),
            true => (
                format!(" {}>&-", self.control),
                format!(
                    "\\builtin trap -p RETURN $__substrate_ >&{}; \\builtin trap - RETURN $__substrate_",
                    self.control
                ),
            ),
        };
        // Nothing comes after it, which `set -v` would show.
        let text = include_str!("line.bash")
            .trim_end()
            .replace("@CLOSED@", &closed)
            .replace("@RETURN@", &told);
        let source = source(&text);
        match with_return_trap {
            false => source,
            true => self.scoped(&source),
        }
    }

    /// Brings back what control text stands on, after functions, aliases or `enable -n` took it away. A shell
    /// finds special builtins before functions only under POSIX rules, for which an assignment is enough.
    pub fn repair(&self) -> Vec<u8> {
        let text = format!(
            "{{ if [[ -o posix ]]; then __substrate_x=1; else __substrate_x=; fi; POSIXLY_CORRECT=y; \
             \\unset -f enable {WORDS}; \\enable {WORDS}; \
             if [[ $__substrate_x != 1 ]]; then \\set +o posix; fi; }} >/dev/null 2>&1"
        );
        let words = format!("\\unalias {RESERVED} 2>/dev/null\n");
        [words.as_bytes(), &self.scoped(text.as_bytes()), b"\n"].concat()
    }
}

/// Reads this text as a file: in an interactive `eval`, `set -o vi` makes bash read the terminal.
pub fn source(text: &str) -> Vec<u8> {
    let text = quote::ansi_c(text.as_bytes());
    [b"\\builtin . /dev/fd/0 <<<", text.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_text_is_one_line_in_a_scope_of_its_own() {
        let door = Door::below(1024).on(b"/dev/pts/3");
        assert_eq!(
            String::from_utf8(door.scoped(b"word")).unwrap(),
            "{ word; } 99>&0 <>$'/dev/pts/3'"
        );
        assert_eq!(Door::below(20).control(), 19);
        for text in [door.run_line(false), door.run_line(true)] {
            assert!(!text.contains(&b'\n'));
        }
    }
}
