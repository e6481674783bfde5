//! How much of a text a shell reads before it runs something.

use super::lexer::Parser;

/// Where the first command line of a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// After this many bytes, its newline and here-documents included.
    Whole(usize),
    /// Not in this text.
    Open,
    /// It cannot be told: the text is no shell syntax, or not yet.
    Unclear,
}

/// The first command line: everything up to a newline outside all constructs. The text ends in a newline.
pub fn first_command(text: &[u8]) -> Extent {
    let mut parser = Parser::new(text, MAX_DEPTH);
    match parser.first_line() {
        Ok(true) => Extent::Whole(parser.pos),
        Ok(false) => Extent::Open,
        Err(_) => Extent::Unclear,
    }
}

/// As deep as an analysis goes by default.
const MAX_DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_ends_where_bash_would_run_it() {
        for (first, rest) in [
            ("echo a\n", "echo b\n"),
            ("\n", "echo b\n"),
            ("# it's a comment\n", "echo b\n"),
            ("echo a; echo b # c\n", "echo d\n"),
            ("echo a \\\n b\n", "echo c\n"),
            ("a &&\n b |\n c\n", "d\n"),
            ("if a\nthen b\nfi\n", "c\n"),
            ("f() {\n  a\n}\n", "f\n"),
            ("cat <<E\nif\nE\n", "b\n"),
            ("cat <<A; cat <<-'B'\nx\nA\n\ty\n\tB\n", "c\n"),
            ("echo 'a\nb'\n", "c\n"),
            ("a &\n", "b\n"),
            ("x=(1\n2)\n", "c\n"),
            ("case x in\na) b ;;\nesac\n", "c\n"),
        ] {
            let text = format!("{first}{rest}");
            let extent = first_command(text.as_bytes());
            assert_eq!(extent, Extent::Whole(first.len()), "{text:?}");
        }
        for open in ["cat <<E\nx\n", "echo \\\n", "a &&\n", "a |\n"] {
            assert_ne!(
                first_command(open.as_bytes()),
                Extent::Whole(open.len()),
                "{open:?}"
            );
        }
    }
}
