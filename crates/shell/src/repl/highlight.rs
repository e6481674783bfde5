//! Colours for the line being typed.

use tree_sitter::{Node, Parser};

use crate::gate::Verdict;

/// Lines longer than this stay plain: a keystroke must not wait for them.
const LONGEST: usize = 4096;

/// Colours lines from their syntax tree.
pub struct Painter {
    parser: Option<Parser>,
}

impl Painter {
    /// A painter, which leaves lines plain if the grammar cannot be loaded.
    pub fn new() -> Self {
        let mut parser = Parser::new();
        let language = tree_sitter_bash::LANGUAGE.into();
        Self {
            parser: parser.set_language(&language).is_ok().then_some(parser),
        }
    }

    /// The line with colours, tinted by its verdict.
    pub fn paint(&mut self, line: &str, verdict: Verdict) -> String {
        let tint = match verdict {
            Verdict::Allow => "",
            Verdict::Isolate => "4;36",
            Verdict::Ask => "4;33",
            Verdict::Deny => "4;31",
        };
        if !tint.is_empty() {
            return per_line(line, tint);
        }
        let mut codes: Vec<&'static str> = vec![""; line.len()];
        if line.len() <= LONGEST
            && let Some(tree) = self
                .parser
                .as_mut()
                .and_then(|parser| parser.parse(line, None))
        {
            mark(tree.root_node(), &mut codes);
        }
        render(line, &codes)
    }
}

fn per_line(line: &str, code: &str) -> String {
    line.split('\n')
        .map(|part| format!("\x1b[{code}m{part}\x1b[0m"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn mark(node: Node<'_>, codes: &mut [&'static str]) {
    if let Some(code) = code_for(node.kind())
        && let Some(span) = codes.get_mut(node.byte_range())
    {
        span.fill(code);
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        mark(child, codes);
    }
}

fn code_for(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "command_name" => "1",
        "string" | "raw_string" | "ansi_c_string" | "heredoc_body" | "heredoc_start"
        | "heredoc_end" => "33",
        "variable_name" | "simple_expansion" | "expansion" | "special_variable_name" => "36",
        "command_substitution" | "process_substitution" => "0",
        "comment" => "2",
        "if" | "then" | "else" | "elif" | "fi" | "for" | "in" | "do" | "done" | "while"
        | "until" | "case" | "esac" | "function" | "select" | "time" | "[[" | "]]" | "{" | "}"
        | "declare" | "export" | "local" | "readonly" | "unset" => "34",
        "|" | "||" | "&&" | ";" | "&" | ">" | "<" | ">>" | "<<" | "<<<" | "2>" | "&>" | "|&" => {
            "35"
        }
        _ => return None,
    })
}

fn render(line: &str, codes: &[&'static str]) -> String {
    let mut painted = String::with_capacity(line.len() * 2);
    let mut current = "";
    for (at, character) in line.char_indices() {
        let code = codes.get(at).copied().unwrap_or("");
        if code != current {
            if !current.is_empty() {
                painted.push_str("\x1b[0m");
            }
            if !code.is_empty() {
                painted.push_str("\x1b[");
                painted.push_str(code);
                painted.push('m');
            }
            current = code;
        }
        painted.push(character);
    }
    if !current.is_empty() {
        painted.push_str("\x1b[0m");
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repl::prompt::without_escapes;

    #[test]
    fn painting_adds_nothing_visible() {
        let mut painter = Painter::new();
        for line in [
            "echo \"a $b\" | wc -l # x",
            "for x in é; do :; done",
            "((x",
            "a\nb 'c\nd'",
        ] {
            for verdict in [Verdict::Allow, Verdict::Deny] {
                let painted = painter.paint(line, verdict);
                assert_ne!(painted, line);
                assert_eq!(without_escapes(&painted), line);
            }
        }
    }
}
