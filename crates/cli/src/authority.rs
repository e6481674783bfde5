//! Who may change what Substrate permits: a person, at a terminal that no session encloses, or at the
//! session's own prompt.

use std::cell::Cell;

use substrate_broker::{enclosure, person};

use crate::commands::ask;
use crate::failure::Failure;

thread_local! {
    static TYPED: Cell<bool> = const { Cell::new(false) };
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
    let marked = enclosure::marked();
    let barrier = match needs {
        Needs::Person => person::barrier(marked),
        Needs::Outside { yes } => person::enclosed(marked)
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
    TYPED.get() || person::enclosed(enclosure::marked()).is_none()
}

/// Carries out what a person typed at a prompt of ours.
pub fn as_typed<T>(action: impl FnOnce() -> T) -> T {
    let before = TYPED.replace(true);
    let result = action();
    TYPED.set(before);
    result
}
