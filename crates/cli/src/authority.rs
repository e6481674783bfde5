//! Who may change what Substrate permits: a person, at a terminal that no session encloses, or at the
//! session's own prompt.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;

use substrate_broker::{Caller, person};

use crate::commands::ask;
use crate::failure::Failure;

thread_local! {
    static TYPED: Cell<bool> = const { Cell::new(false) };
    static SHELL: RefCell<Vec<(OsString, OsString)>> = const { RefCell::new(Vec::new()) };
}

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A person at a terminal: approvals and trust.
    Person,
    /// No session around us, and a person unless `--yes` was given: setting up.
    Outside {
        /// `--yes`.
        yes: bool,
    },
}

/// Refuses with a sentence when the command may not be carried out from here.
pub fn require(needs: Needs) -> Result<(), Failure> {
    if TYPED.get() {
        // A line at the prompt is a person's word, unless a program could have typed it.
        return match ask::typed_by_a_person()? {
            true => Ok(()),
            false => Err(Failure::Refused("nothing was changed".to_owned())),
        };
    }
    let caller = Caller::own();
    let barrier = match needs {
        Needs::Person => person::barrier(&caller),
        Needs::Outside { yes } => caller
            .enclosure()
            .map(person::Barrier::Enclosed)
            .or_else(|| if yes { None } else { person::no_terminal() }),
    };
    match barrier {
        None => Ok(()),
        Some(barrier) => {
            let hint = match (needs, barrier) {
                (Needs::Outside { .. }, person::Barrier::NoTerminal) => {
                    "; `--yes` goes on without one"
                }
                _ => "",
            };
            Err(Failure::Refused(format!(
                "nothing was changed: {barrier}{hint}"
            )))
        }
    }
}

/// Whether programs of the caller's choice, such as a pager or a browser, may be started: what runs
/// below a session would start them past the policy.
pub fn free() -> bool {
    TYPED.get() || Caller::own().enclosure().is_none()
}

/// Carries out what a person typed at a prompt of ours, with these variables of the shell behind it.
pub fn as_typed<T>(shell: Vec<(OsString, OsString)>, action: impl FnOnce() -> T) -> T {
    let before = (TYPED.replace(true), SHELL.replace(shell));
    let result = action();
    TYPED.set(before.0);
    SHELL.replace(before.1);
    result
}

/// The variables of the shell at whose prompt this was typed that are taken over; for programs that are
/// started on the person's behalf.
pub fn shell_variables() -> Vec<(OsString, OsString)> {
    SHELL.with_borrow(Clone::clone)
}

/// A variable, as the shell has it at whose prompt this was typed, else our own.
pub fn variable(name: &str) -> Option<OsString> {
    let told = SHELL.with_borrow(|shell| {
        let found = shell.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    });
    told.or_else(|| std::env::var_os(name))
}
