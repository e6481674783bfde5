//! Completion, by asking the engine.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustyline::completion::Pair;

use super::keys;
use super::words::{self, Command};
use crate::engine::Engine;
use crate::gate::Gate;

const PATIENCE: Duration = Duration::from_secs(5);
const MOST: usize = 5000;

/// What can stand in place of the word before the cursor, and where that word starts.
pub fn complete(
    engine: &mut Engine,
    gate: &mut dyn Gate,
    cwd: &Path,
    line: &str,
    cursor: usize,
) -> (usize, Vec<Pair>) {
    let text = line.get(..cursor).unwrap_or(line);
    let command = words::command_at_end(text);
    let Some(word) = command.words.last() else {
        return (cursor, Vec::new());
    };
    let known: Vec<OsString> = command
        .words
        .iter()
        .map(|word| OsString::from_vec(keys::to_bytes(&word.plain)))
        .collect();
    if command.words.len() > 1 && !command.redirection {
        let offered = gate.complete(&known);
        if !offered.is_empty() {
            return (word.start, plain_pairs(&offered, word.open_quote));
        }
    }
    if let Some(found) = special(engine, word) {
        return found;
    }
    if command.words.len() == 1 && !command.redirection && !word.plain.contains('/') {
        let names = engine
            .ask(&[b"compgen", b"-c", b"--", word.plain.as_bytes()], PATIENCE)
            .map(|answer| lines(&answer))
            .unwrap_or_default();
        if !names.is_empty() {
            return (word.start, plain_pairs(&names, word.open_quote));
        }
    } else if !command.redirection
        && command.words.len() > 1
        && let Some(found) = programmable(engine, &command, cwd, line, cursor)
    {
        return found;
    }
    let executables = command.words.len() == 1 && !command.redirection;
    (word.start, files(engine, cwd, word, executables, false))
}

/// Variables, users and hosts, recognised by how the word starts.
fn special(engine: &mut Engine, word: &words::Word) -> Option<(usize, Vec<Pair>)> {
    if word.open_quote == Some('\'') {
        return None;
    }
    let raw = word.raw.as_str();
    if let Some(at) = raw.rfind('$') {
        let name = raw.get(at + 1..)?;
        let (brace, name) = match name.strip_prefix('{') {
            Some(name) => ("{", name),
            None => ("", name),
        };
        if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let names = lines(&engine.ask(&[b"compgen", b"-v", b"--", name.as_bytes()], PATIENCE)?);
            let head = raw.get(..=at)?;
            let close = if brace.is_empty() { "" } else { "}" };
            let pairs = names
                .iter()
                .filter_map(|name| name.to_str())
                .filter(|name| !name.starts_with("__substrate_"))
                .map(|name| Pair {
                    display: name.to_owned(),
                    replacement: format!("{head}{brace}{name}{close}"),
                })
                .collect();
            return Some((word.start, pairs));
        }
    }
    if let Some(name) = raw.strip_prefix('~')
        && !name.contains('/')
    {
        let users = lines(&engine.ask(&[b"compgen", b"-u", b"--", name.as_bytes()], PATIENCE)?);
        let pairs = users
            .iter()
            .filter_map(|user| user.to_str())
            .map(|user| Pair {
                display: format!("~{user}"),
                replacement: format!("~{user}/"),
            })
            .collect();
        return Some((word.start, pairs));
    }
    if let Some(at) = raw.rfind('@') {
        let name = raw.get(at + 1..)?;
        let answer = engine.ask(
            &[b"compgen", b"-A", b"hostname", b"--", name.as_bytes()],
            PATIENCE,
        )?;
        let hosts = lines(&answer);
        if !hosts.is_empty() {
            let head = raw.get(..=at)?;
            let pairs = hosts
                .iter()
                .filter_map(|host| host.to_str())
                .map(|host| Pair {
                    display: host.to_owned(),
                    replacement: format!("{head}{host} "),
                })
                .collect();
            return Some((word.start, pairs));
        }
    }
    None
}

/// The completion that the user's shell has for this command; `None` if it has none.
fn programmable(
    engine: &mut Engine,
    command: &Command,
    cwd: &Path,
    line: &str,
    cursor: usize,
) -> Option<(usize, Vec<Pair>)> {
    let (list, start) = words::completion_words(command);
    let number = (list.len().checked_sub(1)?).to_string();
    let text = line.get(command.start..)?;
    let point = (cursor - command.start).to_string();
    let bytes: Vec<Vec<u8>> = list.iter().map(|word| keys::to_bytes(word)).collect();
    let mut question: Vec<&[u8]> = vec![
        b"__substrate_complete",
        number.as_bytes(),
        point.as_bytes(),
        text.as_bytes(),
    ];
    question.extend(bytes.iter().map(Vec::as_slice));
    let answer = engine.ask(&question, PATIENCE)?;
    let mut fields = answer.split(|&byte| byte == 0);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let options: Vec<&str> = options.split(' ').collect();
    if options.first() != Some(&"spec") {
        return None;
    }
    let has = |name: &str| options.contains(&name);
    let word = command.words.last()?;
    let mut pairs: Vec<Pair> = Vec::new();
    for candidate in fields.filter(|candidate| !candidate.is_empty()).take(MOST) {
        let name = keys::to_text(candidate);
        let is_name = has("filenames") || word.open_quote.is_some();
        let is_directory = has("filenames") && resolve(engine, cwd, &name).is_dir();
        let mut replacement = if is_name && !has("noquote") {
            let quoted = words::quote_name(name.trim_end_matches('/'), word.open_quote);
            format!(
                "{}{quoted}",
                word.open_quote.map(String::from).unwrap_or_default()
            )
        } else {
            name.clone()
        };
        if is_directory {
            replacement.push('/');
        } else if !has("nospace") && !replacement.ends_with([' ', '=', '/']) {
            replacement.extend(word.open_quote);
            replacement.push(' ');
        }
        pairs.push(Pair {
            display: name,
            replacement,
        });
    }
    if pairs.is_empty() || has("plusdirs") {
        let wants_files = has("default") || has("bashdefault");
        if wants_files || has("dirnames") || has("plusdirs") {
            let word = words::Word {
                start,
                raw: list.last()?.clone(),
                plain: word
                    .plain
                    .get(
                        word.plain.len()
                            - word.plain.len().min(word.raw.len() - (start - word.start))..,
                    )?
                    .to_owned(),
                open_quote: word.open_quote,
            };
            pairs.extend(files(engine, cwd, &word, false, !wants_files));
        }
    }
    pairs.sort_by(|a, b| a.display.cmp(&b.display));
    pairs.dedup_by(|a, b| a.replacement == b.replacement);
    // A lone separator is not part of what is replaced.
    Some((start, pairs))
}

fn plain_pairs(names: &[OsString], open_quote: Option<char>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = names
        .iter()
        .filter(|name| !name.as_bytes().starts_with(b"__substrate_"))
        .map(|name| {
            let name = keys::to_text(name.as_bytes());
            let quote = open_quote.map(String::from).unwrap_or_default();
            Pair {
                replacement: format!("{quote}{}{quote} ", words::quote_name(&name, open_quote)),
                display: name,
            }
        })
        .collect();
    pairs.sort_by(|a, b| a.display.cmp(&b.display));
    pairs.dedup_by(|a, b| a.display == b.display);
    pairs
}

fn lines(answer: &[u8]) -> Vec<OsString> {
    answer
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .take(MOST)
        .map(|line| OsString::from_vec(line.to_vec()))
        .collect()
}

/// Where a name that may start with a tilde leads.
fn resolve(engine: &mut Engine, cwd: &Path, name: &str) -> PathBuf {
    let bytes = keys::to_bytes(name);
    if name.starts_with('~') {
        let end = name.find('/').unwrap_or(name.len());
        let (user, rest) = name.split_at(end);
        let safe = user
            .chars()
            .skip(1)
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if safe
            && let Some(home) = engine.ask(&[b"__substrate_directory", user.as_bytes()], PATIENCE)
        {
            let mut path = home;
            path.extend_from_slice(&keys::to_bytes(rest));
            return PathBuf::from(OsString::from_vec(path));
        }
    }
    cwd.join(OsString::from_vec(bytes))
}

/// Files that start like the word.
fn files(
    engine: &mut Engine,
    cwd: &Path,
    word: &words::Word,
    executables: bool,
    directories: bool,
) -> Vec<Pair> {
    let (head, base) = match word.plain.rfind('/') {
        Some(at) => word.plain.split_at(at + 1),
        None => ("", word.plain.as_str()),
    };
    let directory = if head.is_empty() {
        cwd.to_path_buf()
    } else {
        resolve(engine, cwd, head)
    };
    let base = keys::to_bytes(base);
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    // A tilde at the front must stay one, so what was typed is kept as it is up to the last slash.
    let typed_head = match word.raw.rfind('/') {
        Some(at) => word.raw.get(..=at).unwrap_or_default().to_owned(),
        None => word.open_quote.map(String::from).unwrap_or_default(),
    };
    let mut pairs = Vec::new();
    for entry in entries.flatten().take(MOST * 4) {
        let name = entry.file_name();
        let bytes = name.as_bytes();
        if !bytes.starts_with(&base) || (bytes.starts_with(b".") && !base.starts_with(b".")) {
            continue;
        }
        let is_directory = std::fs::metadata(entry.path()).is_ok_and(|data| data.is_dir());
        if (directories && !is_directory)
            || (executables && !is_directory && !is_executable(&entry.path()))
        {
            continue;
        }
        let text = keys::to_text(bytes);
        let mut replacement = format!("{typed_head}{}", words::quote_name(&text, word.open_quote));
        if is_directory {
            replacement.push('/');
        } else {
            replacement.extend(word.open_quote);
            replacement.push(' ');
        }
        let slash = if is_directory { "/" } else { "" };
        pairs.push(Pair {
            display: format!("{text}{slash}"),
            replacement,
        });
        if pairs.len() >= MOST {
            break;
        }
    }
    pairs.sort_by(|a, b| a.display.cmp(&b.display));
    pairs
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}
