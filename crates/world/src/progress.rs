//! How far a long piece of work on a result has come.

/// How far a long piece of work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Entries done so far.
    pub done: u64,
    /// Entries in all, where that is known.
    pub total: Option<u64>,
}

/// The parts that long pieces of work consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Comparing the result with the host.
    Comparing,
    /// Copying new content next to where it belongs; nothing is visible yet.
    Staging,
    /// Putting it in place.
    Committing,
    /// Putting back what was there.
    Undoing,
    /// Removing what is no longer needed.
    Removing,
}

/// Is told how far the work has come; answering false ends it at a safe point.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> bool;
