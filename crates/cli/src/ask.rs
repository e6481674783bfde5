//! Questions that management commands put to a person.

use substrate_shell::asking;

use crate::failure::Failure;

/// Shows a text on the terminal and asks yes or no; the answer is no unless a person says yes.
pub fn confirm(text: &str, question: &str) -> Result<bool, Failure> {
    asking::confirm(&format!("{text}{question}")).map_err(failed)
}

/// Whether a person typed the line that we carry out; asked only where a program could have typed it.
pub fn typed_by_a_person() -> Result<bool, Failure> {
    asking::typed_by_a_person().map_err(failed)
}

/// Lets a person choose; `None` when he does not.
pub fn choose(question: &str, items: &[&str], default: usize) -> Result<Option<usize>, Failure> {
    asking::choose(question, items, default).map_err(failed)
}

fn failed(error: std::io::Error) -> Failure {
    Failure::File {
        what: "cannot ask on the terminal".to_owned(),
        error,
    }
}
