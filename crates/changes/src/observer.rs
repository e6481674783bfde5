//! Who follows an apply, and can end it.

use substrate_world::progress::OnProgress;

use crate::apply_error::ApplyError;

/// Follows a piece of work, and can end it.
pub struct Observer<'a> {
    pub(crate) progress: OnProgress<'a>,
    pub(crate) crash: Option<&'a mut dyn FnMut(&'static str) -> bool>,
    pub(crate) exchange: bool,
}

impl<'a> Observer<'a> {
    /// Only wants to know how far it has come.
    pub fn new(progress: OnProgress<'a>) -> Self {
        Self {
            progress,
            crash: None,
            exchange: true,
        }
    }

    /// Is asked after every step; answering true ends the work there as a crash would, with
    /// nothing tidied up.
    pub fn crashing(
        progress: OnProgress<'a>,
        crash: &'a mut dyn FnMut(&'static str) -> bool,
    ) -> Self {
        Self {
            progress,
            crash: Some(crash),
            exchange: true,
        }
    }

    /// Works as on a file system that cannot let two names change places at once.
    pub fn without_exchange(mut self) -> Self {
        self.exchange = false;
        self
    }

    pub(crate) fn point(&mut self, step: &'static str) -> Result<(), ApplyError> {
        if self.crash.as_mut().is_some_and(|crash| crash(step)) {
            return Err(ApplyError::Interrupted);
        }
        Ok(())
    }
}
