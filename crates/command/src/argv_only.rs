//! What stands in for shell text where only argument vectors are understood: it stays unread, and is
//! said to.

use std::ops::Range;

use crate::analyse::{Analyser, Surroundings};
use crate::flow::Flow;
use crate::scope::Scope;
use crate::word::Word;

/// Nothing is kept in mind of text that nobody reads.
pub(crate) mod state {
    use crate::names::IsFunction;

    /// No function is known.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub(crate) struct Functions;

    impl Functions {
        pub fn knows(&self, _name: &[u8]) -> IsFunction {
            IsFunction::No
        }

        pub fn forget(&mut self, _name: &[u8]) {}

        pub fn for_child(&self) -> Functions {
            Functions
        }
    }

    /// No group is around a command.
    pub(crate) type Around = ();

    /// Nothing is followed.
    #[derive(Debug, Default)]
    pub(crate) struct Following;
}

impl Analyser<'_> {
    pub(crate) fn nested_program(
        &mut self,
        _text: &[u8],
        _scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        const WHY: &str = "it runs shell text";
        self.unclear(WHY);
        if let Some(parent) = place
            .parent
            .and_then(|parent| self.line.invocations.get_mut(parent))
        {
            parent.unclear.get_or_insert_with(|| WHY.to_owned());
        }
        Flow::unknown()
    }

    pub(crate) fn call_function(
        &mut self,
        _index: usize,
        _name: &str,
        _argv: &[Word],
        _source: Range<usize>,
        _scope: &mut Scope,
        _place: &Surroundings,
    ) -> Flow {
        Flow::unknown()
    }
}
