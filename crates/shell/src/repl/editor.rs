//! The line editor: rustyline, with completion, colours, hints and the verdict while one types.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustyline::completion::{Completer, Pair};
use rustyline::config::{BellStyle, Configurer};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::{History, SearchDirection};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Context, EditMode, Editor,
    Event, EventContext, EventHandler, ExternalPrinter, Helper, KeyCode, KeyEvent, Modifiers,
    RepeatCount,
};

use substrate_sys::{process_group, terminal};

use super::completion::WantsTerminal;
use super::highlight::Painter;
use super::history::SharedHistory;
use super::keys::{self, Flow};
use super::prompt::Looks;
use super::{completion, words};
use crate::engine::{Bound, Engine};
use crate::gate::{self, Gate, Verdict};
use crate::notice::Announcer;

/// What the editor's callbacks share with the session.
pub struct Shared<'g> {
    /// The engine.
    pub engine: Rc<RefCell<Engine>>,
    /// The judge.
    pub gate: &'g dyn Gate,
    /// Where the engine stands.
    pub cwd: RefCell<PathBuf>,
    /// The shell that says whether a line is complete.
    pub shell: RefCell<PathBuf>,
    /// What the terminal can show.
    pub looks: Looks,
}

/// The editor with our helper and history.
pub type LineEditor<'s, 'g> = Editor<Assistant<'s, 'g>, SharedHistory>;

/// A judgement that takes longer than this is asked for only when no more keys wait.
const QUICK: Duration = Duration::from_millis(4);

/// What rustyline asks while a line is edited.
pub struct Assistant<'s, 'g> {
    shared: &'s Shared<'g>,
    flow: Arc<Flow>,
    painter: RefCell<Painter>,
    judged: RefCell<(String, Option<gate::Hint>)>,
    slow: Cell<bool>,
    signals: Signals,
}

/// A suggestion from history, and a note on the verdict.
pub struct Suggestion {
    display: String,
    completion: Option<String>,
}

impl Hint for Suggestion {
    fn display(&self) -> &str {
        &self.display
    }

    fn completion(&self) -> Option<&str> {
        self.completion.as_deref()
    }
}

/// Signals from key bindings to the session.
#[derive(Clone, Default)]
pub struct Signals {
    /// The line is to be opened in an editor.
    pub wants_editor: Arc<AtomicBool>,
    /// The last word of the line before.
    pub last_word: Arc<Mutex<String>>,
    /// A key was pressed that a command of the shell is bound to.
    pub pressed: Arc<Mutex<Option<Pressed>>>,
}

impl Signals {
    /// Whether the line was taken from the editor for something else than to be run.
    pub fn interrupted(&self) -> bool {
        self.wants_editor.load(Ordering::SeqCst) || lock(&self.pressed).is_some()
    }

    /// The key that was pressed.
    pub fn pressed(&self) -> std::sync::MutexGuard<'_, Option<Pressed>> {
        lock(&self.pressed)
    }

    /// The key that was pressed, once.
    pub fn take_pressed(&self) -> Option<Pressed> {
        lock(&self.pressed).take()
    }
}

/// A key that a command is bound to, and the line it was pressed in.
#[derive(Clone)]
pub struct Pressed {
    /// What is to be done.
    pub bound: Bound,
    /// The line.
    pub line: String,
    /// The cursor, in bytes.
    pub position: usize,
    /// It is a completion, and this is what is asked.
    pub question: Option<completion::Question>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The engine, for key bindings: the editor wants them fit for any thread, and uses them on ours.
    static ENGINE: RefCell<Weak<RefCell<Engine>>> = const { RefCell::new(Weak::new()) };
}

/// Looks whether the shell has bound a command to a key, which its start-up files may have done and any
/// line may do.
struct BoundKeys(Arc<Mutex<Option<Pressed>>>);

impl ConditionalEventHandler for BoundKeys {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, at: &EventContext<'_>) -> Option<Cmd> {
        let Event::KeySeq(keys) = event else {
            return None;
        };
        let [KeyEvent(KeyCode::Char(key), modifiers)] = keys.as_slice() else {
            return None;
        };
        let key = u8::try_from(*key).ok().filter(u8::is_ascii)?;
        let sent = match *modifiers {
            Modifiers::CTRL => vec![key & 0x1f],
            Modifiers::ALT => vec![0x1b, key],
            _ => return None,
        };
        if sent == [keys::HAND_OVER] && lock(&self.0).is_some() {
            return Some(Cmd::AcceptLine);
        }
        let engine = ENGINE.with_borrow(Weak::upgrade)?;
        let mut engine = engine.try_borrow_mut().ok()?;
        let bound = engine.bound().iter().find(|bound| bound.keys == sent)?;
        *lock(&self.0) = Some(Pressed {
            bound: bound.clone(),
            line: at.line().to_owned(),
            position: at.pos(),
            question: None,
        });
        Some(Cmd::AcceptLine)
    }
}

/// Makes an editor over the shared state.
pub fn make<'s, 'g>(
    shared: &'s Shared<'g>,
    flow: Arc<Flow>,
    history: SharedHistory,
    painter: Painter,
    signals: &Signals,
    announcer: &Announcer,
) -> rustyline::Result<LineEditor<'s, 'g>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .completion_prompt_limit(200)
        .color_mode(if shared.looks.colour {
            ColorMode::Forced
        } else {
            ColorMode::Disabled
        })
        .bell_style(BellStyle::None)
        .auto_add_history(false)
        .bracketed_paste(true)
        .build();
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Assistant {
        shared,
        flow,
        painter: RefCell::new(painter),
        judged: RefCell::default(),
        slow: Cell::new(false),
        signals: signals.clone(),
    }));
    let printer = process_group::privately(|| editor.create_external_printer());
    if let Ok(mut printer) = printer {
        announcer.print_with(Box::new(move |text| {
            let _ = printer.print(text);
        }));
    }
    editor.bind_sequence(
        Event::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]),
        EventHandler::Conditional(Box::new(OpenEditor(Arc::clone(&signals.wants_editor)))),
    );
    editor.bind_sequence(
        KeyEvent::new('.', Modifiers::ALT),
        EventHandler::Conditional(Box::new(LastWord(Arc::clone(&signals.last_word)))),
    );
    ENGINE.replace(Rc::downgrade(&shared.engine));
    editor.bind_sequence(
        Event::Any,
        EventHandler::Conditional(Box::new(BoundKeys(Arc::clone(&signals.pressed)))),
    );
    // Stopping and quitting are for programs; at the prompt these keys do nothing.
    editor.bind_sequence(KeyEvent::ctrl('Z'), Cmd::Noop);
    editor.bind_sequence(KeyEvent::ctrl('\\'), Cmd::Noop);
    Ok(editor)
}

/// Sets the editing style.
pub fn set_mode(editor: &mut LineEditor<'_, '_>, vi: bool) {
    editor.set_edit_mode(if vi { EditMode::Vi } else { EditMode::Emacs });
}

struct OpenEditor(Arc<AtomicBool>);

impl ConditionalEventHandler for OpenEditor {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::SeqCst);
        Some(Cmd::AcceptLine)
    }
}

struct LastWord(Arc<Mutex<String>>);

impl ConditionalEventHandler for LastWord {
    fn handle(&self, _: &Event, count: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        let word = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Cmd::Insert(count, word.clone()))
    }
}

impl Assistant<'_, '_> {
    /// The verdict on the line, asked once per text and not at all while keys come quickly and
    /// the judge is slow.
    fn verdict(&self, line: &str) -> Option<gate::Hint> {
        if line.trim().is_empty() {
            return None;
        }
        let mut judged = self.judged.borrow_mut();
        if judged.0 == line {
            return judged.1.clone();
        }
        // Standard input is the editor's own terminal, where the next keys wait.
        if self.slow.get() && terminal::has_input(std::io::stdin()) {
            return judged.1.clone();
        }
        let mut engine = self.shared.engine.try_borrow_mut().ok()?;
        let names = engine.names();
        let started = Instant::now();
        let gate = self.shared.gate;
        let hint = gate.hint(&keys::to_bytes(line), &self.shared.cwd.borrow(), names);
        // Nobody would be asked about half a line, only about the whole one.
        let hint = hint
            .filter(|hint| hint.verdict != Verdict::Ask || !hint.unclear || !words::goes_on(line));
        self.slow.set(started.elapsed() > QUICK);
        *judged = (line.to_owned(), hint.clone());
        hint
    }
}

impl Helper for Assistant<'_, '_> {}

impl Completer for Assistant<'_, '_> {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Ok(mut engine) = self.shared.engine.try_borrow_mut() else {
            return Ok((cursor, Vec::new()));
        };
        let cwd = self.shared.cwd.borrow().clone();
        let found = completion::complete(&mut engine, self.shared.gate, &cwd, line, cursor);
        Ok(found.unwrap_or_else(|WantsTerminal(question)| {
            // It is run anew where the line was, with the terminal, as what is bound to a key is.
            *lock(&self.signals.pressed) = Some(Pressed {
                bound: question.as_bound(),
                line: line.to_owned(),
                position: cursor,
                question: Some(question),
            });
            self.flow.hand_over();
            (cursor, Vec::new())
        }))
    }
}

impl Hinter for Assistant<'_, '_> {
    type Hint = Suggestion;

    fn hint(&self, line: &str, cursor: usize, context: &Context<'_>) -> Option<Suggestion> {
        let verdict = self
            .verdict(line)
            .filter(|hint| hint.verdict != Verdict::Allow);
        let completion = suggestion(line, cursor, context.history(), context.history_index());
        if verdict.is_none() && completion.is_none() {
            return None;
        }
        let mut display = completion.clone().unwrap_or_default();
        if let Some(hint) = verdict {
            let mark = if self.shared.looks.unicode {
                "\u{2190}"
            } else {
                "<-"
            };
            let note: String = hint
                .note
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(60)
                .collect();
            display.push_str(&format!("  {mark} {note}"));
        }
        Some(Suggestion {
            display,
            completion,
        })
    }
}

/// The rest of the newest line that starts like this one.
fn suggestion(line: &str, cursor: usize, history: &dyn History, index: usize) -> Option<String> {
    if line.is_empty() || cursor < line.len() || line.contains('\n') {
        return None;
    }
    let start = if index == history.len() {
        index.checked_sub(1)?
    } else {
        index
    };
    let found = history
        .starts_with(line, start, SearchDirection::Reverse)
        .ok()??;
    let rest = found.entry.get(line.len()..)?;
    let first = rest.split('\n').next()?;
    (!first.is_empty()).then(|| first.to_owned())
}

impl Highlighter for Assistant<'_, '_> {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if !self.shared.looks.colour || line.is_empty() {
            return Cow::Borrowed(line);
        }
        let judged = self.judged.borrow();
        let verdict = if judged.0 == line {
            judged
                .1
                .as_ref()
                .map_or(Verdict::Allow, |hint| hint.verdict)
        } else {
            Verdict::Allow
        };
        Cow::Owned(self.painter.borrow_mut().paint(line, verdict))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(self.shared.looks.paint("2", hint))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        kind != CmdKind::MoveCursor
    }
}

/// A row is handed over whenever it is; whether more are needed is the session's question, which asks for them with
/// the shell's own prompt.
impl Validator for Assistant<'_, '_> {
    fn validate(&self, _: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(ValidationResult::Valid(None))
    }
}
