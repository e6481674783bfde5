//! Models that were decoded before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::codec;
use crate::model::{Models, Tool};

/// Keeps every model that was asked for, for callers that analyse many lines.
pub struct Cached<M> {
    models: M,
    known: RefCell<BTreeMap<Vec<u8>, Known>>,
}

/// A model that was asked for before.
struct Known {
    tool: Option<Rc<Tool>>,
    /// Its subcommands are decoded too.
    unpacked: bool,
}

/// Most names that are kept: lines can name any number of programs that do not exist.
const MAX_CACHED: usize = 4096;

impl<M: Models> Cached<M> {
    /// A cache before these models.
    pub fn new(models: M) -> Self {
        Self {
            models,
            known: RefCell::new(BTreeMap::new()),
        }
    }
}

impl<M: Models> Models for Cached<M> {
    fn tool(&self, name: &[u8]) -> Option<Tool> {
        self.models.tool(name)
    }

    fn shared(&self, name: &[u8]) -> Option<Rc<Tool>> {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get_mut(name) {
            // What is asked for twice will be asked for often: its subcommands are decoded for good.
            if !known.unpacked {
                known.unpacked = true;
                let whole = known.tool.as_deref().and_then(codec::unpack);
                known.tool = whole.map(Rc::new).or(known.tool.take());
            }
            return known.tool.clone();
        }
        let tool = self.models.shared(name);
        if known.len() < MAX_CACHED {
            let known_now = Known {
                tool: tool.clone(),
                unpacked: false,
            };
            known.insert(name.to_vec(), known_now);
        }
        tool
    }
}
