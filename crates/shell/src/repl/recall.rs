//! Lines that come from the shell and not from the keyboard: history expansion, `fc`, an editor. They are
//! judged like any other, and never carry the person's authority.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use substrate_sys::bounded::{self, Links};

use super::{Next, Session, say};
use crate::engine::quote;
use substrate_text::visible;

impl Session<'_, '_> {
    /// The line with `!!` and its like replaced, as the engine's own history has them.
    pub(super) fn expand_history(&mut self, text: &[u8]) -> Result<Vec<u8>, String> {
        let mut engine = self.shared.engine.borrow_mut();
        let report = engine.report();
        let marks = &report.history_characters;
        let bang = marks.first().copied().unwrap_or(b'!');
        let quick = marks.get(1).copied().unwrap_or(b'^');
        let wanted = text.contains(&bang) || text.first() == Some(&quick);
        if !report.history_expansion || !wanted {
            return Ok(text.to_vec());
        }
        let Some(answer) = engine.ask(&[b"__substrate_expand", text], Duration::from_secs(2))
        else {
            return Ok(text.to_vec());
        };
        let Some(expanded) = answer.strip_suffix(b"\0ok") else {
            return Err(format!(
                "{}: event not found",
                String::from_utf8_lossy(text)
            ));
        };
        let expanded = expanded.strip_suffix(b"\n").unwrap_or(expanded);
        if expanded != text {
            self.typed = false;
            let _ = writeln!(io::stderr(), "{}", shown(expanded));
        }
        Ok(expanded.to_vec())
    }

    /// `fc` runs lines of the past: they are fetched here and judged like any other.
    pub(super) fn reissue(&mut self, text: &[u8]) -> Option<Next> {
        let line = String::from_utf8_lossy(text).into_owned();
        let line = self.without_alias(&line);
        if line.contains([';', '|', '&', '<', '>', '$', '`']) {
            return None;
        }
        let mut words = line.split_whitespace().peekable();
        while words
            .next_if(|word| matches!(*word, "builtin" | "command"))
            .is_some()
        {}
        if words.next() != Some("fc") {
            return None;
        }
        let mut editor = None;
        let mut again = false;
        let mut operands: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "-e" => editor = words.next().map(str::to_owned),
                "-s" => again = true,
                _ if word.starts_with('-')
                    && word.len() > 1
                    && word.chars().skip(1).all(|c| "lnr".contains(c)) =>
                {
                    if word.contains('l') {
                        return None;
                    }
                }
                _ => operands.push(word),
            }
        }
        again |= editor.as_deref() == Some("-");
        let change = operands
            .first()
            .filter(|_| again)
            .and_then(|word| word.split_once('='));
        if change.is_some() {
            operands.remove(0);
        }
        let first = operands.first().copied().unwrap_or("-1");
        let last = if again {
            first
        } else {
            operands.get(1).copied().unwrap_or(first)
        };
        let answer = self.shared.engine.borrow_mut().ask(
            &[b"__substrate_recall", first.as_bytes(), last.as_bytes()],
            Duration::from_secs(2),
        )?;
        let recalled: Vec<String> = String::from_utf8_lossy(&answer)
            .lines()
            .map(|line| line.strip_prefix("\t ").unwrap_or(line).to_owned())
            .collect();
        let mut recalled = recalled.join("\n");
        if recalled.is_empty() {
            say("fc: no such line");
            self.shared.engine.borrow_mut().set_status(1);
            return Some(Next::Prompt);
        }
        if let Some((old, new)) = change {
            recalled = recalled.replacen(old, new, 1);
        }
        if again {
            let _ = writeln!(io::stderr(), "{}", shown(recalled.as_bytes()));
            return Some(Next::Line(recalled.into_bytes()));
        }
        Some(self.edit(recalled.as_bytes(), editor.as_deref()))
    }

    /// The line with its first word replaced if that is an alias, such as `r` for `fc -s`.
    fn without_alias(&self, line: &str) -> String {
        let line = line.trim_start();
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (first, rest) = line.split_at(end);
        let mut engine = self.shared.engine.borrow_mut();
        let aliases = &engine.names().aliases;
        let replacement = aliases.iter().find(|(name, _)| name == first);
        match replacement.and_then(|(_, value)| value.to_str()) {
            Some(value) => format!("{value}{rest}"),
            None => line.to_owned(),
        }
    }

    /// Opens text in the user's editor; what is saved comes back as the next line.
    pub(super) fn edit(&mut self, text: &[u8], editor: Option<&str>) -> Next {
        let name = format!("substrate-line-{}.sh", std::process::id());
        let (path, inside) = self.shared.engine.borrow().scratch_file(&name);
        let written = private_file(&path).and_then(|mut file| {
            file.write_all(text)?;
            file.write_all(b"\n")
        });
        if let Err(error) = written {
            say(&format!("cannot write {}: {error}", path.display()));
            return Next::Prompt;
        }
        let setting = self.shared.engine.borrow().report().editor.clone();
        let setting = editor.map_or(setting, |name| name.as_bytes().to_vec());
        let mut command = if setting.is_empty() {
            b"vi".to_vec()
        } else {
            setting
        };
        command.push(b' ');
        command.extend_from_slice(&quote::single(inside.as_os_str().as_encoded_bytes()));
        self.typed = false;
        let next = self.judge_and_run(&command);
        let failed = self.shared.engine.borrow().report().status != 0;
        let saved = read_back(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        if matches!(next, Next::End(_)) || failed {
            return next;
        }
        let saved = saved.trim_ascii_end().to_vec();
        if saved.is_empty() {
            return Next::Prompt;
        }
        let _ = writeln!(io::stderr(), "{}", shown(&saved));
        Next::Line(saved)
    }
}

/// Text that the shell made of a line, row by row, with nothing in it that a terminal would act on.
pub(super) fn shown(text: &[u8]) -> String {
    let rows: Vec<String> = text.split(|&byte| byte == b'\n').map(visible).collect();
    rows.join("\n")
}

/// Longest text that comes back from an editor.
const LONGEST: u64 = 16 << 20;

/// What was saved. The file may lie where programs of the session can put a link or a pipe in its
/// place; neither is followed.
fn read_back(path: &Path) -> io::Result<Vec<u8>> {
    Ok(bounded::read(path, Links::Refuse, LONGEST)?)
}

fn private_file(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
