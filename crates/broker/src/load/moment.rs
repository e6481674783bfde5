//! A moment: what the machine looked like when somebody began to ask about many lines.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ground;
use super::policies::State;
use super::request::Request;
use crate::facts::Looked;
use crate::profile::Profile;

/// How long a moment lasts. Whoever asks about a line after an edit waits no longer for it to count.
const LASTS: Duration = Duration::from_millis(50);

/// Keeps what was looked up for lines that are explained at one go. Nothing is run by what it keeps.
#[derive(Debug, Default)]
pub struct Moment {
    began: Cell<Option<Instant>>,
    cwd: RefCell<PathBuf>,
    search_path: RefCell<OsString>,
    state: RefCell<Option<Arc<State>>>,
    looked: RefCell<Rc<Looked>>,
    profiles: RefCell<HashMap<PathBuf, Rc<Vec<Profile>>>>,
    nothing_granted: Cell<Option<bool>>,
}

impl Moment {
    /// Forgets what is too old, or about another directory or `PATH`.
    pub(crate) fn begin(&self, request: &Request<'_>) {
        let now = Instant::now();
        let recent = |began: Instant| now.duration_since(began) < LASTS;
        if !self.began.get().is_some_and(recent) {
            self.began.set(Some(now));
            self.state.take();
            self.looked.take();
            self.profiles.take();
            self.nothing_granted.take();
        }
        let same = self.cwd.borrow().as_path() == request.cwd
            && self.search_path.borrow().as_os_str() == request.search_path;
        if !same {
            self.looked.take();
            request.cwd.clone_into(&mut self.cwd.borrow_mut());
            OsStr::clone_into(request.search_path, &mut self.search_path.borrow_mut());
        }
    }

    pub(crate) fn state(&self, find: impl FnOnce() -> Arc<State>) -> Arc<State> {
        self.state.borrow_mut().get_or_insert_with(find).clone()
    }

    pub(crate) fn looked(&self) -> Rc<Looked> {
        self.looked.borrow().clone()
    }

    pub(crate) fn profiles(&self, directory: &Path) -> Rc<Vec<Profile>> {
        if let Some(known) = self.profiles.borrow().get(directory) {
            return known.clone();
        }
        let found = Rc::new(ground::profiles_of(directory));
        let mut known = self.profiles.borrow_mut();
        known.insert(directory.to_owned(), found.clone());
        found
    }

    pub(crate) fn nothing_granted(&self, find: impl FnOnce() -> bool) -> bool {
        if let Some(known) = self.nothing_granted.get() {
            return known;
        }
        let found = find();
        self.nothing_granted.set(Some(found));
        found
    }
}
