//! What the words of a command mean according to its tool model.

use crate::analyse::{Analyser, Origin, Surroundings};
use crate::args::{self, Args, Levels};
use crate::condition::{consequences, is_inert};
use crate::effect::{Action, Effect, Object, Source};
use crate::findings::{Findings, Nested};
use crate::finds::Finds;
use crate::flow::{self, Flow, push_piece};
use crate::invoke::base_name;
use crate::line::Assignment;
use crate::model::{Arity, Language, Meaning, OperandSpec, Product, Stdin, fits};
use crate::word::{Piece, Word};
use crate::{code, script, sniff};

/// Most values from a known input that are handed on to the command of `xargs`.
const MAX_ITEMS: usize = 256;

/// What code in another language costs, of what an analysis may spend.
const CODE_COST: usize = 512 * 1024;

/// How words stand that only standard input will tell.
const INPUT: &[u8] = b"<input>";

/// What a program takes text for that it runs.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    pub shell: bool,
    pub language: Option<Language>,
}

impl Runs {
    /// Shell text.
    pub const SHELL: Runs = Runs {
        shell: true,
        language: None,
    };
}

/// Where meanings are collected for one call.
struct Call<'c> {
    name: &'c [u8],
    argv: &'c [Word],
    stdin: Stdin,
    /// Something else than standard input gives the code to run.
    has_code: bool,
    /// The code to run comes on standard input by name (`-`, `/dev/stdin`).
    reads_code: bool,
    /// What a program that looks for files puts in place of `{}`.
    finds: Option<Finds>,
    /// What `xargs -I` replaces.
    placeholder: Option<Vec<u8>>,
    /// `xargs -a`: the arguments come from a file.
    other_input: bool,
    environment: Vec<Assignment>,
    /// Commands found, and whether their words are shell text joined by blanks.
    commands: Vec<(Vec<Word>, bool)>,
    /// Operands in order, for shell text that gets the following ones as its parameters.
    operands: Vec<Word>,
    /// The language of what it runs.
    language: Option<Language>,
}

impl Analyser<'_> {
    /// Adds what the models say about a call.
    pub fn tool_findings(
        &mut self,
        argv: &[Word],
        args: &Args,
        levels: &Levels,
        place: &Surroundings,
        findings: &mut Findings,
    ) {
        let Some(leaf) = levels.last() else { return };
        if is_inert(levels, args, argv) {
            return;
        }
        let name = argv
            .first()
            .and_then(Word::value)
            .map(base_name)
            .unwrap_or_default();
        let mut operands: Vec<Word> = args
            .operands
            .iter()
            .filter(|operand| !operand.subcommand)
            .filter_map(|operand| argv.get(operand.index).cloned())
            .collect();
        let finds = Finds::of(args, &mut operands);
        let stdin = leaf.stdin;
        let mut call = Call {
            name,
            argv,
            stdin,
            has_code: false,
            reads_code: stdin == Stdin::Shell && args.has("-s"),
            finds,
            placeholder: None,
            other_input: stdin == Stdin::Arguments && args.has("-a"),
            environment: Vec::new(),
            commands: Vec::new(),
            operands,
            language: levels.iter().rev().find_map(|level| level.language),
        };
        let first_effect = findings.effects.len();
        if stdin == Stdin::Arguments {
            let replaces = args.options.iter().find(|option| {
                matches!(option.name.as_slice(), b"-I" | b"-i" | b"--replace" | b"-J")
            });
            call.placeholder = replaces.map(|option| {
                option
                    .value
                    .as_ref()
                    .and_then(Word::value)
                    .map_or(b"{}".to_vec(), <[u8]>::to_vec)
            });
        }
        if let Some(usage) = leaf
            .usages
            .iter()
            .find(|usage| usage.when.holds(args, argv))
        {
            self.operands(&usage.operands, &mut call, findings);
        }
        for option in args.options.iter().filter(|option| option.known) {
            let (Some(model), Some(value)) = (args::option(levels, &option.name), &option.value)
            else {
                continue;
            };
            if let Arity::Several(meanings) = &model.value {
                let values = argv.get(option.index + 1..).unwrap_or_default();
                for (meaning, value) in meanings.iter().zip(values) {
                    self.mean(meaning, value, &[], &mut call, findings);
                }
                continue;
            }
            let (Arity::Required(meaning) | Arity::Optional(meaning)) = &model.value else {
                continue;
            };
            match meaning {
                Meaning::CommandUntil => {
                    let end = args::command_end(argv, option.index + 1);
                    let stop = if argv
                        .get(end)
                        .is_some_and(|word| matches!(word.value(), Some(b";" | b"+")))
                    {
                        end
                    } else {
                        argv.len()
                    };
                    let words = argv.get(option.index + 1..stop).unwrap_or_default();
                    let attached = Some(value).filter(|value| words.first() != Some(value));
                    let command = attached.into_iter().chain(words).cloned();
                    call.commands.push((command.collect(), false));
                }
                Meaning::Command => {
                    let attached = argv.get(option.index + 1) != Some(value);
                    let from = if attached {
                        option.index + 1
                    } else {
                        option.index + 2
                    };
                    let mut command = vec![value.clone()];
                    command.extend_from_slice(argv.get(from..).unwrap_or_default());
                    call.commands.push((command, false));
                }
                other => self.mean(other, value, &[], &mut call, findings),
            }
        }
        let recursive = leaf
            .recursive
            .as_ref()
            .is_some_and(|condition| condition.holds(args, argv));
        if recursive || place.deep {
            for effect in &mut findings.effects[first_effect..] {
                effect.recursive |= matches!(effect.object, Object::Path(_));
            }
        }
        #[cfg(feature = "parse")]
        self.found_names(&mut findings.effects[first_effect..]);
        for root in call.finds.iter().flat_map(|finds| &finds.roots) {
            let deleted = findings.effects[first_effect..]
                .iter_mut()
                .filter(|effect| {
                    effect.action == Action::Delete
                        && matches!(&effect.object, Object::Path(path) if *path == root.word)
                });
            for effect in deleted.filter(|_| !root.all) {
                effect.object = Object::Path(below(&root.word));
                effect.recursive = false;
            }
        }
        consequences(levels, args, argv, recursive || place.deep, findings);
        let commands = std::mem::take(&mut call.commands);
        for (command, text) in commands {
            self.wrapped(command, text, &mut call, place, findings);
        }
        self.standard_input(&call, place, findings);
        if findings.output.is_none() && call.finds.as_ref().is_some_and(Finds::some) {
            findings.output = Some(Flow {
                some: true,
                ..Flow::unknown()
            });
        }
        if findings.output.is_none() {
            let product = leaf
                .produces
                .iter()
                .find(|product| product.when.holds(args, argv));
            findings.output = product
                .map(|product| product.what)
                .map(|product| self.product(product, args, &call, place));
        }
    }

    /// Deleting every name that a look through a tree finds deletes the tree.
    #[cfg(feature = "parse")]
    fn found_names(&self, effects: &mut [Effect]) {
        let looks = |producer: &usize| {
            let invocation = self.line.invocations.get(*producer);
            invocation.is_some_and(|invocation| {
                invocation.effects.iter().any(|effect| {
                    effect.recursive && matches!(effect.action, Action::List | Action::Read)
                })
            })
        };
        let all_of_tree = |piece: &Piece| match piece {
            Piece::Unknown(source) => self
                .origins
                .get(source)
                .is_some_and(|origin| !origin.some && origin.producers.iter().any(looks)),
            _ => false,
        };
        for effect in effects {
            if effect.action == Action::Delete
                && let Object::Path(path) = &effect.object
                && path.pieces.iter().any(all_of_tree)
            {
                effect.recursive = true;
            }
        }
    }

    /// Gives each operand the meaning of its place in the synopsis.
    fn operands(&mut self, specs: &[OperandSpec], call: &mut Call, findings: &mut Findings) {
        let words = call.operands.clone();
        let mut next = 0;
        for (index, spec) in specs.iter().enumerate() {
            let after = &specs[index + 1..];
            let left = words.len().saturating_sub(next);
            if spec.means == Meaning::Assignment {
                while let Some((name, value)) = words.get(next).and_then(split_assignment) {
                    call.environment.push(Assignment {
                        name,
                        value,
                        exported: true,
                    });
                    next += 1;
                    if !spec.repeated {
                        break;
                    }
                }
                continue;
            }
            let takes_rest = matches!(
                spec.means,
                Meaning::Command | Meaning::CommandUntil | Meaning::Shell
            );
            let count = if takes_rest {
                left
            } else if spec.repeated {
                left.saturating_sub(after.len())
            } else {
                // An operand that is left out is the one before those that must be there.
                left.min(1)
            };
            let Some(taken) = words
                .get(next..next + count)
                .filter(|taken| !taken.is_empty())
            else {
                continue;
            };
            next += count;
            match spec.means {
                Meaning::Command => call.commands.push((taken.to_vec(), false)),
                Meaning::CommandUntil => {
                    let end = taken
                        .iter()
                        .position(|word| matches!(word.value(), Some(b";" | b"+")))
                        .unwrap_or(taken.len());
                    call.commands.push((taken[..end].to_vec(), false));
                }
                Meaning::Shell if call.stdin == Stdin::Arguments => {
                    call.commands.push((taken.to_vec(), true));
                }
                Meaning::Shell => {
                    call.has_code = true;
                    let text = if taken.len() == 1 {
                        taken[0].clone()
                    } else {
                        joined(taken)
                    };
                    findings.nested.push(Nested::text(text));
                }
                _ => {
                    for (offset, word) in taken.iter().enumerate() {
                        let following = words.get(next - count + offset + 1..).unwrap_or_default();
                        self.mean(&spec.means, word, following, call, findings);
                    }
                }
            }
        }
    }

    /// Applies one meaning to one word.
    fn mean(
        &mut self,
        meaning: &Meaning,
        word: &Word,
        following: &[Word],
        call: &mut Call,
        findings: &mut Findings,
    ) {
        match meaning {
            Meaning::Text => {}
            Meaning::Path(actions) => {
                for &action in actions {
                    sniff::path(action, word, &mut findings.effects);
                }
            }
            Meaning::Directory => findings.directories.push(word.clone()),
            Meaning::Url => sniff::url(word, &mut findings.effects),
            Meaning::Host => sniff::host(word, &mut findings.effects),
            Meaning::Remote(actions) => sniff::remote(word, actions, &mut findings.effects),
            Meaning::Port => {
                let text = word
                    .value()
                    .map(|text| text.rsplit(|&byte| byte == b':').next().unwrap_or(text));
                let port = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                findings
                    .effects
                    .push(Effect::new(Action::Listen, Object::Port(port)));
            }
            Meaning::Command | Meaning::CommandUntil => {
                call.commands.push((vec![word.clone()], false))
            }
            Meaning::Shell => {
                call.has_code = true;
                findings.nested.push(Nested::text(word.clone()));
            }
            Meaning::ShellWord => {
                call.has_code = true;
                // The first word behind the text is `$0`.
                let positional = Some(following.get(1..).unwrap_or_default().to_vec());
                findings.nested.push(Nested::Text {
                    text: word.clone(),
                    positional,
                    zero: following.first().cloned(),
                    here: false,
                    later: false,
                    via: None,
                });
            }
            Meaning::Program => {
                let argv = match word.value() {
                    Some(text) => text
                        .split(|byte| byte.is_ascii_whitespace())
                        .filter(|part| !part.is_empty())
                        .map(Word::literal)
                        .collect(),
                    None => vec![word.clone()],
                };
                if !argv.is_empty() {
                    findings.nested.push(Nested::Words {
                        argv,
                        assignments: Vec::new(),
                        here: false,
                    });
                }
            }
            Meaning::Code => {
                call.has_code = true;
                let source = self
                    .origin_of(word)
                    .map_or(Source::Inline, |(source, _)| source);
                let read = word.value().filter(|_| source == Source::Inline);
                let given = call.operands.as_slice();
                if read.is_none_or(|text| !self.code(text, given, call.language, findings)) {
                    findings.code(source, word.clone());
                }
            }
            Meaning::Script => self.script_file(word, following, call, findings),
            Meaning::Assignment => {
                if let Some((name, value)) = split_assignment(word) {
                    call.environment.push(Assignment {
                        name,
                        value,
                        exported: true,
                    });
                }
            }
            Meaning::Sed => script::sed(word, findings),
            Meaning::Awk => script::awk(word, findings),
            Meaning::EditorCommand => script::editor(word, findings),
            Meaning::Volume => sniff::volume(word, &mut findings.effects),
            Meaning::Keyed(entries) => self.keyed(entries, word, call, findings),
            Meaning::Sql => {
                sniff::sql(word, &mut findings.effects);
                script::client_escapes(word, findings);
            }
            Meaning::Argument => sniff::argument(word, &mut findings.effects),
            Meaning::AtFile => sniff::at_file(word, &mut findings.effects),
            Meaning::Alias => match word.known_prefix().trim_ascii_start().starts_with(b"!") {
                true => {
                    let mark = word
                        .known_prefix()
                        .iter()
                        .position(|&byte| byte == b'!')
                        .map_or(0, |at| at + 1);
                    findings.nested.push(Nested::text(word.tail(mark)));
                }
                false => {
                    let mut argv = vec![Word::literal(call.name)];
                    match word.value() {
                        Some(text) => argv.extend(
                            text.split(u8::is_ascii_whitespace)
                                .filter(|part| !part.is_empty())
                                .map(Word::literal),
                        ),
                        None => argv.push(word.clone()),
                    }
                    findings.nested.push(Nested::Words {
                        argv,
                        assignments: Vec::new(),
                        here: false,
                    });
                }
            },
            Meaning::Mode => {
                if sniff::sets_identity(word) {
                    findings
                        .effects
                        .push(Effect::new(Action::Privilege, Object::Unspecified));
                }
            }
        }
    }

    fn keyed(
        &mut self,
        entries: &[(String, Meaning)],
        word: &Word,
        call: &mut Call,
        findings: &mut Findings,
    ) {
        let prefix = word.known_prefix();
        let (key, value) = match prefix.iter().position(|&byte| byte == b'=') {
            Some(equals) => (&prefix[..equals], word.tail(equals + 1)),
            None => (b"".as_slice(), word.clone()),
        };
        let found = entries.iter().find(|(pattern, _)| fits(pattern, key));
        if let Some((_, meaning)) = found {
            self.mean(meaning, &value, &[], call, findings);
        }
    }

    /// A file whose content is run: a real one, standard input, or the output of another command.
    fn script_file(
        &mut self,
        word: &Word,
        following: &[Word],
        call: &mut Call,
        findings: &mut Findings,
    ) {
        if call.reads_code {
            return;
        }
        if word
            .value()
            .is_some_and(|path| matches!(path, b"-" | b"/dev/stdin" | b"/dev/fd/0"))
        {
            call.reads_code = true;
            return;
        }
        call.has_code = true;
        if let [Piece::Unknown(source)] = word.pieces.as_slice()
            && let Some(origin) = self.origins.get(source)
            && (origin.from.is_some() || origin.text.is_some())
        {
            let flow = Flow {
                fed: true,
                text: origin.text.clone(),
                from: origin.from.clone(),
                some: origin.some,
                producers: origin.producers.clone(),
            };
            self.run_flow(
                &flow,
                Runs {
                    shell: call.stdin == Stdin::Shell || call.stdin == Stdin::Data,
                    language: call.language,
                },
                Some(following.to_vec()),
                findings,
            );
            return;
        }
        if word.known_prefix().starts_with(b"http://")
            || word.known_prefix().starts_with(b"https://")
        {
            sniff::url(word, &mut findings.effects);
            findings.code(Source::Network, word.clone());
            return;
        }
        findings.code(Source::File, word.clone());
        if matches!(call.stdin, Stdin::Shell)
            && let Some(text) = self.written_text(word)
        {
            findings.nested.push(Nested::Text {
                text,
                positional: Some(following.to_vec()),
                zero: None,
                here: false,
                later: false,
                via: None,
            });
        } else if call.language.is_some()
            && let Some(text) = self.written_text(word)
            && let Some(text) = text.value()
        {
            self.code(text, following, call.language, findings);
        }
    }

    /// Looks into code; `true` when it does nothing but what was noted of it.
    fn code(
        &mut self,
        text: &[u8],
        given: &[Word],
        language: Option<Language>,
        findings: &mut Findings,
    ) -> bool {
        // A grammar costs more than most lines do, whatever its text.
        let Some(language) = language.filter(|_| self.spend(CODE_COST)) else {
            return false;
        };
        let place = code::Place {
            given,
            home: self.context.home,
        };
        let imported = findings.effects.len();
        let plain = code::read(language, text, &place, findings);
        // What it loads may be what the line itself has written.
        let loaded: Vec<Word> = findings.effects[imported..]
            .iter()
            .filter_map(|effect| match &effect.object {
                Object::Code(Source::File, file) => self.written_text(file),
                _ => None,
            })
            .collect();
        for text in loaded {
            if let Some(text) = text.value() {
                code::read(language, text, &place, findings);
            }
        }
        plain
    }

    /// What reading a file gives: the output of a process substitution, or the file's content.
    pub fn file_flow(&self, file: &Word) -> Flow {
        if let [Piece::Unknown(source)] = file.pieces.as_slice()
            && let Some(origin) = self.origins.get(source)
        {
            return Flow {
                fed: true,
                text: origin.text.clone(),
                from: origin.from.clone(),
                some: origin.some,
                producers: origin.producers.clone(),
            };
        }
        Flow::source(Source::File, file.clone())
    }

    /// Text that is run: read on if it is shell text that we know, else noted by where it comes from.
    pub fn run_flow(
        &mut self,
        flow: &Flow,
        runs: Runs,
        positional: Option<Vec<Word>>,
        findings: &mut Findings,
    ) {
        match (&flow.text, &flow.from) {
            (Some(pieces), _) if runs.shell => {
                let text = Word {
                    pieces: pieces.clone(),
                    splits: false,
                    quoted: true,
                };
                findings.nested.push(Nested::Text {
                    text,
                    positional,
                    zero: None,
                    here: false,
                    later: false,
                    via: None,
                });
            }
            (Some(pieces), _) => {
                let text = Word {
                    pieces: pieces.clone(),
                    splits: false,
                    quoted: true,
                };
                let given = positional.unwrap_or_default();
                let read = text.value();
                if read.is_none_or(|text| !self.code(text, &given, runs.language, findings)) {
                    findings.code(Source::Inline, text);
                }
            }
            (None, Some((source, word))) => findings.code(*source, word.clone()),
            (None, None) => findings.code(Source::Stdin, Word::default()),
        }
    }

    /// A command inside this one, with what the wrapper adds to it.
    fn wrapped(
        &mut self,
        mut argv: Vec<Word>,
        text: bool,
        call: &mut Call,
        place: &Surroundings,
        findings: &mut Findings,
    ) {
        if argv.is_empty() {
            return;
        }
        // GNU parallel: values behind `:::` are the arguments.
        let mut values: Option<Vec<Word>> = None;
        if let Some(at) = argv
            .iter()
            .position(|word| matches!(word.value(), Some(b":::" | b":::+" | b"::::")))
        {
            let file = argv[at].value() == Some(b"::::");
            let given = argv.split_off(at);
            if !file {
                let skip = |word: &&Word| !matches!(word.value(), Some(b":::" | b":::+"));
                values = Some(given.iter().filter(skip).take(MAX_ITEMS).cloned().collect());
            }
            if argv.is_empty() {
                for value in values.unwrap_or_default() {
                    findings.nested.push(Nested::text(value));
                }
                return;
            }
        }
        let assignments = call.environment.clone();
        if call.stdin == Stdin::Arguments {
            let origin = Origin {
                from: place.input.from.clone(),
                producers: place.input.producers.clone(),
                ..Origin::default()
            };
            self.origins.insert(INPUT.to_vec(), origin);
            let input = match call.other_input {
                true => &Flow::unknown(),
                false => &place.input,
            };
            let many = values.is_none() && input.literal().is_none() && !input.some;
            let mut items = values.unwrap_or_else(|| items(input));
            if text {
                items.iter_mut().for_each(quote);
            }
            let marker = call
                .placeholder
                .clone()
                .or_else(|| (call.name == b"parallel").then(|| b"{}".to_vec()));
            let marked = marker
                .as_ref()
                .is_some_and(|marker| argv.iter().any(|word| contains(word, marker)));
            match marker.filter(|_| marked) {
                Some(marker) => {
                    // Nobody knows how many names come that way: it may be all there are.
                    findings.deep |= many
                        && argv
                            .iter()
                            .any(|word| word.value() == Some(marker.as_slice()));
                    for item in &items {
                        let argv = argv
                            .iter()
                            .map(|word| replaced(word, &marker, item))
                            .collect();
                        findings.nested.push(inner(argv, text, &assignments));
                    }
                    return;
                }
                None => {
                    findings.deep |= many;
                    argv.extend(items);
                }
            }
        } else if let Some(finds) = &call.finds {
            let has = |argv: &[Word], marks: &[&[u8]]| {
                let mut marks = marks.iter();
                marks.any(|mark| argv.iter().any(|word| contains(word, mark)))
            };
            if finds.appends && !has(&argv, finds.marks) {
                argv.push(Word::literal(finds.marks[0]));
            }
            if has(&argv, finds.marks) {
                // The directory of what was found may be the place itself.
                let parts = has(&argv, &finds.marks[1..]);
                for root in finds.roots.iter().take(MAX_ITEMS) {
                    let all = root.all || parts;
                    findings.deep |= all;
                    let found = if all {
                        root.word.clone()
                    } else {
                        below(&root.word)
                    };
                    let argv = argv.iter().map(|word| {
                        let marks = finds.marks.iter();
                        marks.fold(word.clone(), |word, mark| replaced(&word, mark, &found))
                    });
                    findings
                        .nested
                        .push(inner(argv.collect(), text, &assignments));
                }
                if finds.roots.len() > MAX_ITEMS {
                    findings.unclear("it looks in too many places");
                }
                return;
            }
        }
        findings.nested.push(inner(argv, text, &assignments));
    }

    /// Code that a program takes from standard input.
    fn standard_input(&mut self, call: &Call, place: &Surroundings, findings: &mut Findings) {
        let runs = matches!(call.stdin, Stdin::Shell | Stdin::Code);
        if !runs || !place.input.fed || (call.has_code && !call.reads_code) {
            return;
        }
        let positional = Some(
            call.operands
                .iter()
                .filter(|word| word.value() != Some(b"-"))
                .cloned()
                .collect(),
        );
        self.run_flow(
            &place.input,
            Runs {
                shell: call.stdin == Stdin::Shell,
                language: call.language,
            },
            positional,
            findings,
        );
    }

    /// What a program prints.
    fn product(
        &mut self,
        product: Product,
        args: &Args,
        call: &Call,
        place: &Surroundings,
    ) -> Flow {
        match product {
            Product::Network => {
                let address = call.operands.first().cloned().unwrap_or_default();
                Flow::source(Source::Network, address)
            }
            Product::Operands => match call.name {
                b"printf" => flow::printf(call.argv).map_or_else(Flow::unknown, Flow::text),
                _ => Flow::text(flow::echo(call.argv)),
            },
            Product::Files => match call.operands.first() {
                Some(file) if file.value() != Some(b"-") => call
                    .operands
                    .iter()
                    .take(MAX_ITEMS)
                    .map(|file| self.file_flow(file))
                    .reduce(Flow::then)
                    .unwrap_or_else(Flow::unknown),
                _ => place.input.clone(),
            },
            Product::Input if call.name == b"tee" => {
                for file in call.operands.iter().take(MAX_ITEMS) {
                    self.keep_file(file, &place.input, args.has("-a"));
                }
                place.input.clone()
            }
            Product::Input => match call.name {
                b"cat" | b"tee" | b"pv" | b"buffer" | b"sponge" | b"stdbuf" => place.input.clone(),
                _ if place.input.fed => place.input.changed(),
                _ => Flow::unknown(),
            },
            Product::Decoded => self.decoded(args, call, place),
        }
    }

    /// The result of a decoder, when both its kind and its input are known.
    fn decoded(&self, args: &Args, call: &Call, place: &Surroundings) -> Flow {
        let input = place.input.literal();
        let decoded = input.and_then(|text| match call.name {
            b"base64" | b"gbase64" => flow::base64(text),
            b"base32" => flow::base32(text),
            b"xxd" => flow::hexadecimal(text),
            b"openssl"
                if args.has("-base64")
                    || args.has("-a")
                    || args.subcommands.iter().any(|name| name == "base64") =>
            {
                flow::base64(text)
            }
            _ => None,
        });
        match decoded {
            Some(bytes) => Flow::bytes(bytes),
            None => match &place.input.from {
                // A download stays a download, however it is unpacked.
                Some((Source::Network, word)) => Flow::source(Source::Network, word.clone()),
                _ => Flow::source(
                    Source::Decoded,
                    call.operands.first().cloned().unwrap_or_default(),
                ),
            },
        }
    }
}

/// The arguments that a known input becomes, or one that nobody knows.
fn items(input: &Flow) -> Vec<Word> {
    match input.literal() {
        Some(text) => text
            .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
            .filter(|item| !item.is_empty())
            .take(MAX_ITEMS)
            .map(|item| {
                Word::literal(
                    item.iter()
                        .copied()
                        .filter(|byte| !b"'\"\\".contains(byte))
                        .collect::<Vec<u8>>(),
                )
            })
            .collect(),
        None => {
            let mut items = input.text.as_deref().map_or_else(Vec::new, known_in_part);
            items.push(Word {
                pieces: vec![Piece::Unknown(INPUT.to_vec())],
                splits: true,
                quoted: false,
            });
            items
        }
    }
}

/// The arguments in a text of which parts are globs or unknown.
fn known_in_part(pieces: &[Piece]) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word = Word::default();
    for piece in pieces {
        let Piece::Known(bytes) = piece else {
            word.pieces.push(piece.clone());
            continue;
        };
        let mut parts = bytes.split(u8::is_ascii_whitespace);
        word.push_known(parts.next().unwrap_or_default());
        for part in parts {
            words.push(std::mem::take(&mut word));
            word.push_known(part);
        }
    }
    words.push(word);
    words.retain(|word| !word.pieces.is_empty());
    words.truncate(MAX_ITEMS);
    words
}

/// The command inside a wrapper, as words or as the text that they make.
fn inner(argv: Vec<Word>, text: bool, assignments: &[Assignment]) -> Nested {
    if text {
        return Nested::text(joined(&argv));
    }
    Nested::Words {
        argv,
        assignments: assignments.to_vec(),
        here: false,
    }
}

/// Something that is found under a starting point.
fn below(root: &Word) -> Word {
    let mut word = root.clone();
    if !word.known_suffix().ends_with(b"/") {
        word.push_known(b"/");
    }
    word.pieces.push(Piece::Unknown(b"{}".to_vec()));
    word
}

/// Makes a known word safe to stand in shell text.
fn quote(word: &mut Word) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    if let Some(text) = word.value()
        && !text.iter().all(plain)
    {
        let escaped = text
            .split(|&byte| byte == b'\'')
            .collect::<Vec<_>>()
            .join(b"'\\''".as_slice());
        *word = Word::literal([b"'".as_slice(), &escaped, b"'"].concat());
    }
}

fn contains(word: &Word, marker: &[u8]) -> bool {
    !marker.is_empty()
        && word.pieces.iter().any(|piece| {
            matches!(piece, Piece::Known(bytes) if bytes.windows(marker.len()).any(|window| window == marker))
        })
}

/// A word with a marker replaced.
fn replaced(word: &Word, marker: &[u8], by: &Word) -> Word {
    if !contains(word, marker) {
        return word.clone();
    }
    let mut result = Word {
        pieces: Vec::new(),
        splits: word.splits || by.splits,
        quoted: word.quoted,
    };
    for piece in &word.pieces {
        let Piece::Known(bytes) = piece else {
            result.pieces.push(piece.clone());
            continue;
        };
        let mut rest = bytes.as_slice();
        while let Some(at) = rest
            .windows(marker.len())
            .position(|window| window == marker)
        {
            result.push_known(&rest[..at]);
            by.pieces
                .iter()
                .cloned()
                .for_each(|piece| push_piece(&mut result.pieces, piece));
            rest = &rest[at + marker.len()..];
            if result.pieces.len() > MAX_ITEMS {
                return result;
            }
        }
        result.push_known(rest);
    }
    result
}

/// Words joined by blanks, as `eval` and `ssh` do.
pub(crate) fn joined(words: &[Word]) -> Word {
    let mut text = Word {
        quoted: true,
        ..Word::default()
    };
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            text.push_known(b" ");
        }
        word.pieces
            .iter()
            .cloned()
            .for_each(|piece| push_piece(&mut text.pieces, piece));
    }
    text
}

/// `NAME=value` in its two halves.
pub(crate) fn split_assignment(word: &Word) -> Option<(Vec<u8>, Word)> {
    let prefix = word.known_prefix();
    let equals = prefix.iter().position(|&byte| byte == b'=')?;
    let name = prefix[..equals]
        .strip_suffix(b"+")
        .unwrap_or(&prefix[..equals]);
    let valid = name
        .first()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    valid.then(|| (name.to_vec(), word.tail(equals + 1)))
}
