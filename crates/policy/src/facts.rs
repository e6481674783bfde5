//! What a judgement may know of the machine. The broker looks; tests make it up.

use substrate_compiled::paths::Variables;

/// Facts about where a line would run, the variables of path patterns included.
pub trait Facts: Variables {
    /// The directory that the line starts in, absolute and normalised.
    fn cwd(&self) -> &[u8];
    /// The file that would run for a program name or path typed in `cwd`, links resolved.
    fn program(&self, typed: &[u8], cwd: &[u8]) -> Option<Vec<u8>>;
    /// An absolute path with every link resolved, as far as it exists.
    fn real(&self, path: &[u8]) -> Option<Vec<u8>>;
    /// Every program that the line starts is judged by itself before it runs.
    fn guarded(&self) -> bool {
        false
    }
}

/// Facts that are given, for tests and for judging what is not here.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// See [`Facts::cwd`].
    pub cwd: Vec<u8>,
    /// See [`Variables::home`].
    pub home: Option<Vec<u8>>,
    /// See [`Variables::other_homes`].
    pub other_homes: Vec<Vec<u8>>,
    /// See [`Variables::project`].
    pub project: Option<Vec<u8>>,
    /// See [`Variables::substrate_home`].
    pub substrate_home: Option<Vec<u8>>,
    /// Programs by typed name.
    pub programs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Links by path.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Variables for Given {
    fn home(&self) -> Option<&[u8]> {
        self.home.as_deref()
    }

    fn other_homes(&self) -> &[Vec<u8>] {
        &self.other_homes
    }

    fn project(&self) -> Option<&[u8]> {
        self.project.as_deref()
    }

    fn substrate_home(&self) -> Option<&[u8]> {
        self.substrate_home.as_deref()
    }
}

impl Facts for Given {
    fn cwd(&self) -> &[u8] {
        &self.cwd
    }

    fn program(&self, typed: &[u8], _cwd: &[u8]) -> Option<Vec<u8>> {
        self.programs
            .iter()
            .find(|(name, _)| name == typed)
            .map(|(_, path)| path.clone())
    }

    fn real(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.links
            .iter()
            .find(|(from, _)| from == path)
            .map(|(_, to)| to.clone())
    }
}
