//! What runs from where to where on a line: pipes, substitutions, descriptors, and files that the line itself writes.

use std::collections::BTreeMap;

use substrate_command::{Action, Cwd, Invocation, Line, Object, RedirectKind, Source, Word};
use substrate_compiled::paths;

/// Most invocations of a line whose files are compared.
const MAX_FILES: usize = 512;

/// For each invocation those that get what it prints or writes.
pub(crate) struct Flows(Vec<Vec<usize>>);

impl Flows {
    pub fn of(line: &Line) -> Self {
        let count = line.invocations.len();
        let mut flows = vec![Vec::new(); count];
        let mut stages: BTreeMap<u32, Vec<(u32, usize)>> = BTreeMap::new();
        for (index, invocation) in line.invocations.iter().enumerate() {
            let stage = invocation.pipeline;
            let members = stages.entry(stage.pipeline).or_default();
            members.push((stage.index, index));
        }
        for members in stages.values() {
            for (at, from) in members {
                let later = members.iter().filter(|(other, _)| other > at);
                flows[*from].extend(later.map(|(_, to)| *to));
            }
        }
        for (from, to) in &line.flows {
            if *from < count && *to < count {
                flows[*from].push(*to);
            }
        }
        let mut written: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for (index, invocation) in line.invocations.iter().enumerate().take(MAX_FILES) {
            for path in opened(invocation) {
                for from in written.get(&path).into_iter().flatten() {
                    flows[*from].push(index);
                }
            }
            for effect in &invocation.effects {
                if let (Action::Write, Object::Path(word)) = (effect.action, &effect.object)
                    && let Some(path) = place(invocation, word)
                {
                    written.entry(path).or_default().push(index);
                }
            }
        }
        Self(flows)
    }

    /// Everything that what these print or write comes to.
    pub fn reach(&self, from: &[usize]) -> Vec<usize> {
        let mut seen = vec![false; self.0.len()];
        let mut open: Vec<usize> = from.to_vec();
        while let Some(at) = open.pop() {
            for to in &self.0[at] {
                if !std::mem::replace(&mut seen[*to], true) {
                    open.push(*to);
                }
            }
        }
        (0..seen.len()).filter(|at| seen[*at]).collect()
    }
}

/// The files that an invocation reads, runs, or is.
fn opened(invocation: &Invocation) -> Vec<Vec<u8>> {
    let effects = invocation.effects.iter();
    let words = effects.filter_map(|effect| match (effect.action, &effect.object) {
        (Action::Read, Object::Path(word)) | (_, Object::Code(Source::File, word)) => Some(word),
        _ => None,
    });
    let redirects = invocation.redirects.iter();
    let read = redirects.filter(|redirect| redirect.kind == RedirectKind::Read);
    let program = invocation.argv.first();
    let program = program.filter(|word| word.known_prefix().contains(&b'/'));
    words
        .chain(read.map(|redirect| &redirect.target))
        .chain(program)
        .filter_map(|word| place(invocation, word))
        .collect()
}

/// A path that is the same for whoever of the line means the same file, where that is plain.
fn place(invocation: &Invocation, word: &Word) -> Option<Vec<u8>> {
    let path = word.value()?;
    // Where the line starts stands for itself; directories are compared as they are written.
    let mut directory = b"/.".to_vec();
    match &invocation.cwd {
        Cwd::Start => {}
        Cwd::Moved(steps) => {
            for step in steps {
                directory = paths::absolute(&directory, step.value()?);
            }
        }
        Cwd::Unknown if path.starts_with(b"/") => {}
        Cwd::Unknown => return None,
    }
    Some(paths::absolute(&directory, path))
}
