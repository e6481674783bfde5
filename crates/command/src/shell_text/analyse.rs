//! Lines of shell text: what of them is plain words, what has to be parsed, and what hides.

use std::ops::Range;

use crate::analyse::{Analyser, Context, Surroundings, split_plain};
use crate::flow::Flow;
use crate::line::{Line, Stage};
use crate::scope::Scope;
use crate::word::Word;

/// Takes a line of shell text apart.
pub fn analyse(text: &[u8], context: &Context) -> Line {
    let mut analyser = Analyser::new(context);
    if text.len() > context.limits.max_bytes {
        analyser.unclear(format!(
            "the line is longer than {} bytes",
            context.limits.max_bytes
        ));
        return analyser.line;
    }
    let mut scope = Scope::default();
    let place = Surroundings::top();
    let words = split_plain(text).filter(|words| !analyser.begins_with_alias(words, &scope));
    if let Some(words) = words {
        analyser.plain(text, words, &mut scope, &place);
    } else {
        analyser.text(text, &mut scope, &place, true);
        if is_evaluated_later(text) {
            analyser.unclear("it has text that bash evaluates at another place or time");
        }
        if hides_characters(text) {
            analyser.unclear(
                "the line has characters that cannot be seen or change the order of others",
            );
        }
    }
    analyser.finish()
}

/// Whether quoted text may become a command: subscripts in arithmetic, expansion as a prompt, and the tables by
/// which bash finds commands.
fn is_evaluated_later(text: &[u8]) -> bool {
    const SIGNS: [&[u8]; 5] = [b"[$(", b"[`", b"@P}", b"BASH_CMDS", b"BASH_ALIASES"];
    SIGNS
        .iter()
        .any(|sign| text.windows(sign.len()).any(|window| window == *sign))
}

/// Whether somebody who reads the line sees something else than what runs. A joiner between
/// pictures is part of many of them; beside plain letters it only hides.
fn hides_characters(text: &[u8]) -> bool {
    if text.is_ascii() {
        return false;
    }
    let text = String::from_utf8_lossy(text);
    let mut before = ' ';
    text.chars().any(|c| {
        let hidden = match c {
            '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2060}' => true,
            '\u{200d}' => before.is_ascii(),
            _ => false,
        };
        before = c;
        hidden
    })
}

impl Analyser<'_> {
    /// The next stage of a pipeline.
    pub fn next_stage(&mut self, pipeline: u32) -> Stage {
        let mut index = 0;
        if let Some(next) = self.stages.get_mut(pipeline as usize) {
            index = *next;
            *next += 1;
        }
        Stage { pipeline, index }
    }

    pub(crate) fn nested_program(
        &mut self,
        text: &[u8],
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        self.text(text, scope, place, false)
    }

    pub(crate) fn call_function(
        &mut self,
        index: usize,
        name: &str,
        argv: &[Word],
        source: Range<usize>,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        let Some(functions) = scope.functions.0.get(name.as_bytes()).cloned() else {
            return Flow::unknown();
        };
        // A function that calls itself has been looked at already.
        if self
            .following
            .active
            .iter()
            .any(|active| active == name.as_bytes())
        {
            return Flow::unknown();
        }
        let mut inner = place.inside(index, name, source);
        inner.stage = self.stage_of(index);
        self.following.active.push(name.as_bytes().to_vec());
        let before = scope.clone();
        let mut flow: Option<Flow> = None;
        // Every body counts, whichever of them the line gives the name in the end.
        for (number, function) in functions.bodies.iter().enumerate() {
            let mut other = before.clone();
            let branch = if number == 0 { &mut *scope } else { &mut other };
            let printed = self.call(function, argv, branch, &inner);
            if number > 0 {
                scope.blur(&other);
            }
            flow = Some(flow.map_or(printed.clone(), |before| before.or(printed)));
        }
        if !functions.certain {
            scope.blur(&before);
            flow = flow.map(|flow| flow.or(Flow::unknown()));
        }
        self.following.active.pop();
        flow.unwrap_or_else(Flow::unknown)
    }
}
