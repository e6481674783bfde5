//! The prompt: the user's own, or ours with directory, branch, policy and last status.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use substrate_sys::bounded::{self, Links};

use super::keys;
use crate::gate::Standing;
use substrate_text::visible;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Colours are welcome.
    pub colour: bool,
    /// Characters beyond ASCII can be shown.
    pub unicode: bool,
    /// The terminal can move its cursor.
    pub cursor: bool,
}

impl Looks {
    /// Reads the environment: `NO_COLOR`, `TERM` and the locale.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let cursor = !matches!(term.to_str(), Some("" | "dumb" | "cons25" | "emacs"));
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"))
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        Self {
            colour: cursor && set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
            cursor,
        }
    }

    /// The text in a colour, if colours are welcome.
    pub fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A prompt in two forms: what takes up room, and what is written.
pub type Prompt = (String, String);

/// The user's prompt as the shell expanded it.
pub fn from_shell(expanded: &[u8], looks: Looks) -> Prompt {
    let styled: String = keys::to_text(expanded)
        .chars()
        .filter(|character| !matches!(character, '\u{1}' | '\u{2}'))
        .collect();
    let raw = without_escapes(&styled);
    if looks.colour {
        (raw, styled)
    } else {
        (raw.clone(), raw)
    }
}

/// What stands before the last row of a prompt of the user's: that this is Substrate, and by which policy.
pub fn signed(prompt: Prompt, standing: &Standing, looks: Looks) -> Prompt {
    if standing.policy.is_empty() {
        return prompt;
    }
    let sign = format!("[{}] ", visible(standing.policy.as_bytes()));
    let code = if standing.mode == "enforce" {
        "32"
    } else {
        "2"
    };
    let (raw, styled) = prompt;
    let put = |text: &str, sign: &str| {
        let at = text.rfind('\n').map_or(0, |at| at + 1);
        let (above, row) = text.split_at(at);
        format!("{above}{sign}{row}")
    };
    (put(&raw, &sign), put(&styled, &looks.paint(code, &sign)))
}

/// Our own prompt.
pub fn own(cwd: &Path, standing: &Standing, status: i32, root: bool, looks: Looks) -> Prompt {
    let mut raw = String::new();
    let mut styled = String::new();
    let mut add = |code: &str, text: &str| {
        raw.push_str(text);
        styled.push_str(&looks.paint(code, text));
    };
    add(
        "1;34",
        &visible(short_directory(cwd, home_directory().as_deref()).as_bytes()),
    );
    if let Some(branch) = git_branch(cwd) {
        add("35", &format!(" {}", visible(branch.as_bytes())));
    }
    if !standing.policy.is_empty() {
        let code = if standing.mode == "enforce" {
            "32"
        } else {
            "33"
        };
        add(
            code,
            &format!(" {}:{}", visible(standing.policy.as_bytes()), standing.mode),
        );
        if let Some(level) = &standing.level {
            let code = if level == "full" { "32" } else { "1;31" };
            add(code, &format!(":{level}"));
        }
    }
    if status != 0 {
        add("31", &format!(" {status}"));
    }
    let mark = match (root, looks.unicode) {
        (true, _) => " # ",
        (false, true) => " \u{276f} ",
        (false, false) => " $ ",
    };
    add(if status == 0 { "1" } else { "1;31" }, mark);
    (raw, styled)
}

fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
}

fn short_directory(cwd: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| cwd.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => cwd.display().to_string(),
    }
}

/// The branch or commit that is checked out here, read from the files of git, which is not run.
pub fn git_branch(cwd: &Path) -> Option<String> {
    let dot_git = cwd
        .ancestors()
        .map(|directory| directory.join(".git"))
        .find(|path| path.exists())?;
    let directory = if dot_git.is_dir() {
        dot_git
    } else {
        let pointer = small_file(&dot_git)?;
        let target = pointer.trim().strip_prefix("gitdir: ")?.to_owned();
        dot_git.parent()?.join(target)
    };
    let head = small_file(&directory.join("HEAD"))?;
    let head = head.trim();
    match head.strip_prefix("ref: ") {
        Some(reference) => Some(
            reference
                .strip_prefix("refs/heads/")
                .unwrap_or(reference)
                .to_owned(),
        ),
        None => head.get(..7).map(str::to_owned),
    }
}

fn small_file(path: &Path) -> Option<String> {
    let content = bounded::read(path, Links::Follow, 4096).ok()?;
    String::from_utf8(content).ok()
}

/// The text without terminal control sequences.
pub fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            if character == '\n' || character == '\t' || !character.is_control() {
                plain.push(character);
            }
            continue;
        }
        match characters.next() {
            Some('[') => {
                for next in characters.by_ref() {
                    if ('\u{40}'..='\u{7e}').contains(&next) {
                        break;
                    }
                }
            }
            Some(']' | 'P' | '_' | '^') => {
                while let Some(next) = characters.next() {
                    if next == '\x07' {
                        break;
                    }
                    if next == '\x1b' {
                        characters.next_if_eq(&'\\');
                        break;
                    }
                }
            }
            Some('(' | ')' | '#' | ' ') => {
                characters.next();
            }
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Looks = Looks {
        colour: false,
        unicode: false,
        cursor: true,
    };

    #[test]
    fn escapes_take_no_room() {
        let styled = "\x1b]0;title\x07\x1b[01;32mme@host\x1b[00m:\x1b(B~$ ";
        assert_eq!(without_escapes(styled), "me@host:~$ ");
        let looks = Looks {
            colour: true,
            ..PLAIN
        };
        assert_eq!(from_shell(styled.as_bytes(), looks).1, styled);
        assert_eq!(from_shell(styled.as_bytes(), PLAIN).1, "me@host:~$ ");
    }

    #[test]
    fn ours_names_directory_policy_and_status() {
        let standing = Standing {
            policy: "default".into(),
            mode: "enforce".into(),
            level: Some("full".into()),
        };
        let prompt = own(Path::new("/nowhere/x"), &standing, 3, false, PLAIN);
        assert_eq!(prompt.0, "/nowhere/x default:enforce:full 3 $ ");
    }

    #[test]
    fn the_branch_is_read_without_git() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir_all(git.join("worktrees/w")).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/topic/x\n").unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(git_branch(&below).as_deref(), Some("topic/x"));
        let linked = dir.path().join("a/linked");
        std::fs::create_dir(&linked).unwrap();
        std::fs::write(linked.join(".git"), "gitdir: ../../.git/worktrees/w\n").unwrap();
        std::fs::write(git.join("worktrees/w/HEAD"), "0123456789abcdef\n").unwrap();
        assert_eq!(git_branch(&linked).as_deref(), Some("0123456"));
    }

    #[test]
    fn the_environment_decides_the_looks() {
        let looks = |pairs: &[(&str, &str)]| {
            Looks::from_environment(|name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.into())
            })
        };
        let full = looks(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]);
        assert!(full.colour && full.unicode && full.cursor);
        assert!(!looks(&[("TERM", "xterm"), ("NO_COLOR", "1")]).colour);
        assert!(!looks(&[("TERM", "dumb"), ("LANG", "C.UTF-8")]).cursor);
        assert!(!looks(&[("TERM", "xterm"), ("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]).unicode);
    }
}
