//! The pattern language: text of a rule to what the matcher compares.

use substrate_command::{Args, Models, Word};
use substrate_compiled::{OperandPattern, Program, Stage};

use crate::settings::{EffectPattern, ObjectPattern};
use crate::terms::HostRule;
use substrate_command::{Action, Source};

/// Named sets of programs, used as `@name`.
pub type Sets = std::collections::BTreeMap<String, Vec<String>>;

/// More `**` than this in one word could make matching slow.
const MAX_DEEP: usize = 4;

/// Reads a command pattern.
pub fn command(text: &str, sets: &Sets, models: &dyn Models) -> Result<Vec<Stage>, String> {
    let stages: Vec<Stage> = split(text)?
        .iter()
        .map(|words| stage(words, sets, models))
        .collect::<Result<_, _>>()?;
    if stages.is_empty() {
        Err("the pattern is empty".to_owned())
    } else {
        Ok(stages)
    }
}

/// A word of a pattern; quoted wildcards are escaped.
struct Token {
    text: String,
    quoted: bool,
}

fn stage(words: &[Token], sets: &Sets, models: &dyn Models) -> Result<Stage, String> {
    let (program, rest) = words.split_first().ok_or("a side of `|` is empty")?;
    for word in words {
        valid_glob(&word.text)?;
    }
    let programs = programs(program, sets)?;
    let name = match programs.first() {
        Some(Program::Name(name) | Program::Path(name)) => {
            substrate_compiled::paths::base_name(name).to_vec()
        }
        None => return Err(format!("the set `{}` is empty", program.text)),
    };
    let tool = models.tool(&name);
    let is_any = |word: &Token| word.text == "*" && !word.quoted;

    // The words are read as the tool itself would read them, so that `-rf`, `-r -f` and
    // `--recursive --force` are the same pattern.
    let kept: Vec<usize> = (0..rest.len()).filter(|at| !is_any(&rest[*at])).collect();
    let mut argv = vec![Word::literal(name)];
    argv.extend(
        kept.iter()
            .map(|at| Word::literal(rest[*at].text.as_bytes())),
    );
    let args = Args::parse(&argv, tool.as_ref());

    let options = args
        .options
        .iter()
        .map(|option| {
            (
                option.name.clone(),
                option.value.as_ref().map(|value| value.text().into_owned()),
            )
        })
        .collect();
    let mut operands: Vec<(usize, OperandPattern)> = args
        .operands
        .iter()
        .filter_map(|operand| {
            let at = *kept.get(operand.index.checked_sub(1)?)?;
            Some((at, OperandPattern::Word(rest[at].text.as_bytes().to_vec())))
        })
        .collect();
    operands.extend(
        (0..rest.len())
            .filter(|at| is_any(&rest[*at]))
            .map(|at| (at, OperandPattern::Any)),
    );
    operands.sort_by_key(|(at, _)| *at);
    Ok(Stage {
        programs,
        options,
        operands: operands.into_iter().map(|(_, operand)| operand).collect(),
    })
}

fn programs(word: &Token, sets: &Sets) -> Result<Vec<Program>, String> {
    if let Some(name) = word.text.strip_prefix('@').filter(|_| !word.quoted) {
        let members = sets.get(name).ok_or_else(|| {
            let known: Vec<String> = sets.keys().map(|name| format!("@{name}")).collect();
            format!("there is no set `@{name}`; known are {}", known.join(", "))
        })?;
        return Ok(members.iter().map(|member| program(member)).collect());
    }
    Ok(vec![program(&word.text)])
}

fn program(text: &str) -> Program {
    let bytes = text.as_bytes().to_vec();
    if text.contains('/')
        || text.starts_with('~')
        || text.starts_with("$HOME")
        || text.starts_with("$PROJECT")
    {
        Program::Path(bytes)
    } else {
        Program::Name(bytes)
    }
}

/// Splits into stages and words, quotes as in a shell.
fn split(text: &str) -> Result<Vec<Vec<Token>>, String> {
    let mut stages = vec![Vec::new()];
    let mut word: Option<Token> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => finish(&mut stages, &mut word),
            '|' => {
                finish(&mut stages, &mut word);
                if chars.peek() == Some(&'|') {
                    return Err("`||` is not part of a pattern; write two rules".to_owned());
                }
                stages.push(Vec::new());
            }
            ';' | '&' | '\n' | '<' | '>' | '(' | ')' | '`' => {
                return Err(format!(
                    "`{c}` is not part of a pattern; quote it, or write one rule for each command"
                ));
            }
            '\'' | '"' => {
                let token = word.get_or_insert_with(Token::empty);
                token.quoted = true;
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => token.literal(chars.next().unwrap_or('\\')),
                        Some(inner) => token.literal(inner),
                        None => return Err(format!("the {c} quote is not closed")),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(next) => word.get_or_insert_with(Token::empty).literal(next),
                None => return Err("a backslash ends the pattern".to_owned()),
            },
            _ => word.get_or_insert_with(Token::empty).text.push(c),
        }
    }
    finish(&mut stages, &mut word);
    Ok(stages)
}

fn finish(stages: &mut [Vec<Token>], word: &mut Option<Token>) {
    if let (Some(stage), Some(word)) = (stages.last_mut(), word.take()) {
        stage.push(word);
    }
}

impl Token {
    fn empty() -> Self {
        Self {
            text: String::new(),
            quoted: false,
        }
    }

    /// Adds a character that stands for itself.
    fn literal(&mut self, c: char) {
        if matches!(c, '*' | '?' | '[' | '\\') {
            self.text.push('\\');
        }
        self.text.push(c);
    }
}

/// Refuses what the matcher would take literally by accident: an open class, a backwards range.
pub fn valid_glob(text: &str) -> Result<(), String> {
    if text.matches("**").count() > MAX_DEEP {
        return Err(format!("`{text}` has more than {MAX_DEEP} `**`"));
    }
    if text.len() > 4096 {
        return Err("a word of the pattern is longer than 4096 bytes".to_owned());
    }
    // Braces are ordinary characters here; globset would expand them.
    let plain = text.replace('{', "\\{").replace('}', "\\}");
    globset::GlobBuilder::new(&plain)
        .backslash_escape(true)
        .build()
        .map(|_| ())
        .map_err(|error| format!("`{text}`: {}", error.kind()))
}

/// Checks a pattern for names of tools: whose they are, and which. `*` stands for any text.
pub fn tool(text: &str) -> Result<(), String> {
    valid_glob(text)?;
    let (whose, which) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}` does not say whose tools are meant"))?;
    if whose.is_empty()
        || !whose
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    {
        return Err(format!(
            "`{text}`: whose tools are meant must be said with letters"
        ));
    }
    let right = match whose {
        "mcp" => {
            which
                .split_once('/')
                .is_some_and(|(server, tool)| !server.is_empty() && !tool.is_empty())
                || which == "*"
        }
        _ => !which.is_empty() && !which.contains('/'),
    };
    match right {
        true => Ok(()),
        false if whose == "mcp" => Err(format!("`{text}` does not name a server and a tool")),
        false => Err(format!("`{text}` does not name a tool")),
    }
}

/// Reads an effect pattern: `action[:recursive][:object]`, several joined by `|` for a flow.
pub fn effect(text: &str, classes: &[(String, Vec<String>)]) -> Result<Vec<EffectPattern>, String> {
    text.split('|')
        .map(|step| effect_step(step.trim(), classes))
        .collect()
}

fn effect_step(text: &str, classes: &[(String, Vec<String>)]) -> Result<EffectPattern, String> {
    let (action, rest) = text
        .split_once(':')
        .map_or((text, None), |(action, rest)| (action, Some(rest)));
    let action = Action::from_name(action).ok_or_else(|| {
        let known: Vec<&str> = Action::ALL.into_iter().map(Action::name).collect();
        format!(
            "`{action}` is not an effect; known are {}",
            known.join(", ")
        )
    })?;
    let (recursive, rest) = match rest {
        Some("recursive") => (true, None),
        Some(rest) => match rest.strip_prefix("recursive:") {
            Some(rest) => (true, Some(rest)),
            None => (false, Some(rest)),
        },
        None => (false, None),
    };
    let object = match rest {
        None | Some("*") => ObjectPattern::Any,
        Some("dynamic") => ObjectPattern::Dynamic,
        Some("outside") => ObjectPattern::Outside,
        Some("unlisted") if action == Action::Connect => ObjectPattern::Unlisted,
        Some(class) if class.starts_with('@') => {
            let name = &class[1..];
            if !classes.iter().any(|(known, _)| known == name) {
                let known: Vec<String> = classes
                    .iter()
                    .map(|(known, _)| format!("@{known}"))
                    .collect();
                return Err(format!(
                    "there is no path class `{class}`; known are {}",
                    known.join(", ")
                ));
            }
            ObjectPattern::Class(name.to_owned())
        }
        Some(path) if path.starts_with(['/', '~', '$']) || path.starts_with("**/") => {
            valid_glob(path)?;
            ObjectPattern::Path(path.to_owned())
        }
        Some(object) => match action {
            Action::RunCode => {
                ObjectPattern::Source(Source::from_name(object).ok_or_else(|| {
                    let known: Vec<&str> = Source::ALL.into_iter().map(Source::name).collect();
                    format!(
                        "`{object}` is not a source of code; known are {}",
                        known.join(", ")
                    )
                })?)
            }
            Action::Connect => ObjectPattern::Host(HostRule::parse(object)?),
            _ => {
                let known = substrate_command::model::RESOURCES;
                if !object.contains('*') && !known.iter().any(|(name, _)| *name == object) {
                    let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                    return Err(format!(
                        "`{object}` is neither a path (write `/…`, `~/…`, `$PROJECT/…`) nor one of {}",
                        known.join(", ")
                    ));
                }
                ObjectPattern::Resource(object.to_owned())
            }
        },
    };
    Ok(EffectPattern {
        action,
        recursive,
        object,
    })
}
