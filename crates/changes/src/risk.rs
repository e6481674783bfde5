//! Changed files that can run later, outside every world: what a person should look at before
//! a result is applied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::change::{Change, ChangeKind};
use crate::entry::{Entry, NodeKind};

/// Why a changed file can run later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunsLater {
    /// Git runs it on commit, checkout, push and the like.
    GitHook,
    /// Git's configuration names programs: aliases, filters, pagers, hooks.
    GitConfig,
    /// Part of a repository that git does not change in its daily work: it may send git elsewhere.
    GitInside,
    /// It tells where a project begins, and so what a policy means by it.
    ProjectMarker,
    /// direnv runs it on `cd`.
    Envrc,
    /// It chooses which tools run here, or what they are given.
    ToolChoice,
    /// It chooses Substrate's policy for this directory.
    SubstrateProfile,
    /// The package manager runs its scripts.
    PackageScripts,
    /// A build tool runs its recipes.
    BuildFile,
    /// A shell runs it at its start or end.
    ShellStartup,
    /// An editor or IDE runs its tasks or settings.
    EditorTask,
    /// Python runs it when it starts, or when its tests do.
    PythonStartup,
    /// A coding agent runs what it names, or does what it says.
    AgentSettings,
    /// A container is built or started from it.
    Container,
    /// A build server runs it.
    Workflow,
    /// cron runs it.
    Crontab,
    /// systemd runs it.
    SystemdUnit,
    /// The desktop runs it at login.
    Autostart,
    /// Part of how this machine starts, signs people in, or reacts to devices.
    Machine,
    /// ssh reads who may log in, or what to run, from it.
    SshConfig,
    /// It is a program that was not there, or was not one.
    NewExecutable,
    /// It is a program that now does something else.
    ChangedExecutable,
    /// It is a text that a shell runs when somebody says so.
    Script,
    /// It had setuid, setgid or file capabilities, which are taken away.
    Setuid,
}

impl RunsLater {
    /// The reason in a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            RunsLater::GitHook => "git runs it",
            RunsLater::GitConfig => "git configuration can name programs to run",
            RunsLater::GitInside => "inside a repository, where git does not change it by itself",
            RunsLater::ProjectMarker => "without it everything around is the project",
            RunsLater::Envrc => "direnv runs it",
            RunsLater::ToolChoice => "chooses the tools that run here",
            RunsLater::SubstrateProfile => "chooses the policy for this directory",
            RunsLater::PackageScripts => "a package manager can run what it names",
            RunsLater::BuildFile => "a build runs it",
            RunsLater::ShellStartup => "shells run it",
            RunsLater::EditorTask => "an editor can run it",
            RunsLater::PythonStartup => "python runs it by itself",
            RunsLater::AgentSettings => "a coding agent obeys it",
            RunsLater::Container => "a container is made from it",
            RunsLater::Workflow => "a build server runs it",
            RunsLater::Crontab => "cron runs it",
            RunsLater::SystemdUnit => "systemd runs it",
            RunsLater::Autostart => "the desktop runs it at login",
            RunsLater::Machine => "the machine runs or obeys it",
            RunsLater::SshConfig => "ssh reads it",
            RunsLater::NewExecutable => "new executable",
            RunsLater::ChangedExecutable => "changed executable",
            RunsLater::Script => "shell script",
            RunsLater::Setuid => "setuid or capabilities are taken away",
        }
    }
}

/// A changed file that can run later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The host path.
    pub path: PathBuf,
    /// Why.
    pub reason: RunsLater,
}

/// A place of `policies/parts/runs-later.yaml`.
struct Place {
    reason: RunsLater,
    /// It is meant from the root of the file system, not wherever its names stand.
    rooted: bool,
    /// Names on the way, in any case; `*` stands for any text, `**` for any names.
    parts: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/places.rs"));

impl Place {
    fn holds(&self, names: &[&OsStr]) -> bool {
        let last = if self.rooted { 0 } else { names.len() };
        (0..=last).any(|start| follows(self.parts, &names[start..]))
    }

    /// Whether a link stands where its directories begin: what they hold lies elsewhere then.
    fn begins_at(&self, names: &[&OsStr]) -> bool {
        let dirs = self.parts.split_last().map_or(self.parts, |(_, dirs)| dirs);
        let until = dirs.iter().position(|dir| *dir == "**");
        let dirs = &dirs[..until.unwrap_or(dirs.len())];
        (1..=dirs.len()).any(|count| {
            let Some(start) = names.len().checked_sub(count) else {
                return false;
            };
            (!self.rooted || start == 0) && follows(&dirs[..count], &names[start..])
        })
    }
}

/// Whether names are what the parts of a pattern say, one after the other.
fn follows(parts: &[&str], names: &[&OsStr]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        // Behind the directories there is at least one name.
        (Some((&"**", [])), rest) => rest.is_some(),
        (Some((&"**", more)), _) => (0..=names.len()).any(|at| follows(more, &names[at..])),
        (Some((part, more)), Some((name, rest))) => fits(part, name) && follows(more, rest),
        _ => false,
    }
}

/// What git writes in its daily work, below the directory of a repository; a directory stands for all
/// that is in it. Whatever else is there decides what git reads or runs.
const GIT_WORK: &[&str] = &[
    "objects",
    "refs",
    "logs",
    "reftable",
    "lfs",
    "rr-cache",
    "HEAD",
    "*_HEAD",
    "*_MSG",
    "*_EDITMSG",
    "*_MODE",
    "*_RR",
    "AUTO_MERGE",
    "BISECT_*",
    "NOTES_*",
    "index",
    "sharedindex.*",
    "packed-refs",
    "shallow",
    "description",
    "gc.log",
    "gc.pid",
    "info/exclude",
    "info/sparse-checkout",
    "info/refs",
    "info/grafts",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];
/// Names that are never work, however deep: lines of a rebase can be commands, and the others are
/// configuration.
const GIT_NEVER: &[&str] = &[
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "attributes",
    "git-rebase-todo",
    "strategy",
    "strategy_opts",
    "opts",
    "alternates",
];

/// Reads the content of a file when a name alone does not decide.
pub(crate) trait Contents {
    /// The old and the new content, where there are any and they are of a sane length.
    fn read(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>);
    /// Whether the new file carries capabilities.
    fn has_capability(&self) -> bool;
}

/// Why a change can run later, most telling first; `path` is the absolute host path.
pub(crate) fn runs_later(path: &Path, change: &Change, contents: &dyn Contents) -> Vec<RunsLater> {
    let Some(new) = change.new.filter(|_| change.kind != ChangeKind::Deleted) else {
        // Without it, less is refused in this directory.
        let name = path.file_name().unwrap_or_default();
        let marks = [".git", ".hg", ".svn", ".jj"];
        return match name == OsStr::new(".substrate-profile") {
            true => vec![RunsLater::SubstrateProfile],
            false if marks.iter().any(|mark| name == OsStr::new(mark)) => {
                vec![RunsLater::ProjectMarker]
            }
            false => Vec::new(),
        };
    };
    let mut reasons = Vec::new();
    if matches!(new.kind, NodeKind::File | NodeKind::Symlink)
        && let Some(reason) = by_path(path, &new)
    {
        reasons.push(reason);
    }
    if is_index(path) && new.kind == NodeKind::File && index_reaches_git(new.size, contents) {
        reasons.push(RunsLater::GitConfig);
    }
    if path.file_name() == Some(OsStr::new("package.json"))
        && !path.iter().any(|part| part == "node_modules")
        && new.kind == NodeKind::File
        && names_more(contents)
    {
        reasons.push(RunsLater::PackageScripts);
    }
    if new.kind == NodeKind::File {
        let before = change.old.filter(|old| old.kind == NodeKind::File);
        if new.mode & 0o111 != 0 {
            match before {
                Some(old) if old.mode & 0o111 != 0 => {
                    let differs = change.kind == ChangeKind::Modified;
                    reasons.extend(differs.then_some(RunsLater::ChangedExecutable));
                }
                _ => reasons.push(RunsLater::NewExecutable),
            }
        }
        let setid = new.is_setid() && before.is_none_or(|old| !old.is_setid());
        if setid || new.mode & 0o111 != 0 && contents.has_capability() {
            reasons.push(RunsLater::Setuid);
        }
    }
    reasons
}

/// Why a file that is on the host already, where it was just created or changed, can run later.
pub fn of_host_file(path: &Path, created: bool) -> Option<RunsLater> {
    let dir = std::fs::File::open(path.parent()?).ok()?;
    let found = Entry::look(&dir, path.file_name()?).ok()??;
    let program = found.kind == NodeKind::File && found.mode & 0o111 != 0;
    let otherwise = match created {
        true => RunsLater::NewExecutable,
        false => RunsLater::ChangedExecutable,
    };
    by_path(path, &found).or_else(|| program.then_some(otherwise))
}

fn by_path(path: &Path, new: &Entry) -> Option<RunsLater> {
    if let Some(reason) = inside_git(path, new) {
        return Some(reason);
    }
    let names: Vec<&OsStr> = path.iter().filter(|name| *name != "/").collect();
    let link = new.kind == NodeKind::Symlink;
    let found = PLACES
        .iter()
        .find(|place| place.holds(&names) || link && place.begins_at(&names));
    found.map(|place| place.reason)
}

/// Whether a name is what a pattern of the lists says, in any case; a star stands for any text.
fn fits(pattern: &str, name: &OsStr) -> bool {
    let mut stars = pattern.split('*');
    let start = stars.next().unwrap_or_default().as_bytes();
    let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    let mut rest = match name.as_bytes().split_at_checked(start.len()) {
        Some((begin, rest)) if same(begin, start) => rest,
        _ => return false,
    };
    let mut parts: Vec<&[u8]> = stars.map(str::as_bytes).collect();
    let Some(end) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let mut places = 0..=rest.len().saturating_sub(part.len());
        let Some(at) = places.find(|at| {
            rest.get(*at..at + part.len())
                .is_some_and(|text| same(text, part))
        }) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= end.len() && same(&rest[rest.len() - end.len()..], end)
}

/// What lies in a repository, its submodules and worktrees; also a `.git` that is no directory, which
/// sends git to another repository, and the beginning of a repository under another name.
fn inside_git(path: &Path, new: &Entry) -> Option<RunsLater> {
    let parts: Vec<&OsStr> = path.iter().collect();
    let is_git = |part: &&OsStr| part.eq_ignore_ascii_case(".git");
    if parts.last().is_some_and(is_git) && !new.is_dir() {
        return Some(RunsLater::GitConfig);
    }
    let mut inside = false;
    for (at, _) in parts.iter().enumerate().filter(|(_, part)| is_git(part)) {
        inside = true;
        if let Some(reason) = below_git(&parts[at + 1..]) {
            return Some(reason);
        }
    }
    if inside {
        // What it leads to would count by its own name, and git takes it for this one.
        return (new.kind == NodeKind::Symlink).then_some(RunsLater::GitInside);
    }
    match path.file_name() == Some(OsStr::new("HEAD")) {
        true => Some(RunsLater::GitConfig),
        false => in_bare_git(path),
    }
}

/// The same for a repository under another name, which the host has already.
fn in_bare_git(path: &Path) -> Option<RunsLater> {
    let name = path.file_name()?;
    let decides = GIT_NEVER.iter().any(|never| fits(never, name))
        || path.iter().any(|part| fits("hooks", part));
    let has = |dir: &Path, name: &str| dir.join(name).symlink_metadata().is_ok();
    let is_repository = |dir: &&Path| has(dir, "HEAD") && has(dir, "objects");
    let mut above = path.ancestors().skip(1).filter(|_| decides);
    let below = path.strip_prefix(above.find(is_repository)?).ok()?;
    below_git(&below.iter().collect::<Vec<_>>())
}

/// Whether a file may be the index of a repository, by its path.
fn is_index(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let names = ["index", "index.lock", "sharedindex.*"];
    names.iter().any(|known| fits(known, name)) && path.iter().any(|part| fits(".git", part))
}

/// Whether an index names files of a repository itself: git checks out whatever its index names, hooks
/// and configuration too. The fourth form of an index does not write names out.
fn index_reaches_git(size: u64, contents: &dyn Contents) -> bool {
    let Some(text) = contents.read().1.filter(|text| text.len() as u64 >= size) else {
        return true;
    };
    let written_out = matches!(text.get(4..8), Some([0, 0, 0, 2 | 3]));
    let names = |part: &[u8]| part.eq_ignore_ascii_case(b".git/");
    text.starts_with(b"DIRC") && (!written_out || text.windows(5).any(names))
}

/// What a path below the directory of a repository is for, unless git writes it in its daily work.
fn below_git(below: &[&OsStr]) -> Option<RunsLater> {
    let (first, last) = (below.first()?, below.last()?);
    let refs = fits("refs", first) || fits("logs", first);
    if below.iter().any(|part| fits("hooks", part)) && !refs {
        return Some(RunsLater::GitHook);
    }
    if GIT_NEVER.iter().any(|name| fits(name, last)) && !refs {
        return Some(RunsLater::GitConfig);
    }
    // A submodule may have a name of several parts.
    let nested = fits("modules", first) || fits("worktrees", first);
    let starts = if nested { 2..below.len() } else { 0..1 };
    let work = starts.into_iter().any(|at| is_git_work(&below[at..]));
    (!work).then_some(RunsLater::GitInside)
}

fn is_git_work(below: &[&OsStr]) -> bool {
    let Some((first, rest)) = below.split_first() else {
        return false;
    };
    let bytes = first.as_bytes();
    let first = OsStr::from_bytes(bytes.strip_suffix(b".lock").unwrap_or(bytes));
    GIT_WORK.iter().any(|work| match work.split_once('/') {
        Some((dir, name)) => rest.len() == 1 && fits(dir, first) && fits(name, rest[0]),
        None => fits(work, first),
    })
}

/// Members of a package's description that nobody runs.
const INERT: &[&str] = &[
    "author",
    "bugs",
    "contributors",
    "description",
    "funding",
    "homepage",
    "keywords",
    "license",
    "name",
    "private",
    "repository",
    "version",
];

/// Whether a package's description names something that it did not name before.
fn names_more(contents: &dyn Contents) -> bool {
    let (old, new) = contents.read();
    let members = |text: Option<Vec<u8>>| match text {
        None => Ok(serde_json::Map::new()),
        Some(text) => serde_json::from_slice(&text),
    };
    match (members(old), members(new)) {
        (Ok(old), Ok(new)) => new.iter().any(|(name, value)| {
            !INERT.contains(&name.as_str()) && !value.is_null() && old.get(name) != Some(value)
        }),
        // What we cannot read, a package manager may read differently.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Fields;
    use crate::entry::Moment;

    struct Text(Option<&'static str>, Option<&'static str>, bool);

    impl Contents for Text {
        fn read(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
            let bytes = |t: Option<&str>| t.map(|t| t.as_bytes().to_vec());
            (bytes(self.0), bytes(self.1))
        }
        fn has_capability(&self) -> bool {
            self.2
        }
    }

    const NONE: Text = Text(None, None, false);

    fn entry(mode: u32) -> Entry {
        Entry {
            kind: NodeKind::File,
            mode,
            uid: 0,
            gid: 0,
            size: 1,
            mtime: Moment(0, 0),
            ctime: Moment(0, 0),
            dev: 1,
            ino: 1,
            nlink: 1,
        }
    }

    fn change(kind: ChangeKind, old: Option<u32>, new: Option<u32>) -> Change {
        Change {
            path: PathBuf::new(),
            kind,
            old: old.map(entry),
            new: new.map(entry),
            fields: Fields::default(),
            digest: None,
        }
    }

    #[test]
    fn places_that_run_later_are_known() {
        use RunsLater::*;
        let made = change(ChangeKind::Created, None, Some(0o644));
        for (path, expected) in [
            ("/p/.git/hooks/pre-commit", Some(GitHook)),
            ("/p/sub/dir/.git/hooks/x/y", Some(GitHook)),
            ("/p/.git/modules/m/hooks/post-checkout", Some(GitHook)),
            ("/p/.git/config", Some(GitConfig)),
            ("/p/.git/worktrees/w/config.worktree", Some(GitConfig)),
            ("/p/.git/objects/ab/cd", None),
            ("/p/.git/commondir", Some(GitConfig)),
            ("/p/.git/info/attributes", Some(GitConfig)),
            ("/p/.git/info/exclude", None),
            ("/p/.git/hooks", Some(GitHook)),
            ("/p/.GIT/Hooks/x", Some(GitHook)),
            ("/p/.git/refs/heads/config", None),
            ("/p/.git/refs/heads/hooks/x", None),
            ("/p/.git/logs/HEAD", None),
            ("/p/.git/HEAD", None),
            ("/p/.git/config.lock", Some(GitInside)),
            ("/p/.git/ORIG_HEAD", None),
            ("/p/.git/COMMIT_EDITMSG", None),
            ("/p/.git/rebase-merge/onto", None),
            ("/p/.git/rebase-merge/git-rebase-todo", Some(GitConfig)),
            ("/p/.git/remotes/origin", Some(GitInside)),
            ("/p/.git/anything", Some(GitInside)),
            ("/p/.git/modules/lib/sub/HEAD", None),
            ("/p/.git/modules/lib/sub/objects/a", None),
            ("/p/.git/modules/lib/sub/config", Some(GitConfig)),
            ("/p/.git/modules/lib/sub/other", Some(GitInside)),
            ("/p/.git/worktrees/w/commondir", Some(GitConfig)),
            ("/p/.git/worktrees/w/gitdir", Some(GitConfig)),
            ("/p/.git/objects/.git/config", Some(GitConfig)),
            ("/p/bare/HEAD", Some(GitConfig)),
            ("/p/.gitattributes", Some(GitConfig)),
            ("/p/build.rs", Some(BuildFile)),
            ("/p/setup.py", Some(BuildFile)),
            ("/p/pyproject.toml", Some(BuildFile)),
            ("/p/sub/CMakeLists.txt", Some(BuildFile)),
            ("/p/build.gradle.kts", Some(BuildFile)),
            ("/p/webpack.config.js", Some(BuildFile)),
            ("/p/tests/conftest.py", Some(PythonStartup)),
            ("/p/.venv/lib/x.pth", Some(PythonStartup)),
            ("/p/.npmrc", Some(PackageScripts)),
            ("/p/.yarnrc.yml", Some(PackageScripts)),
            ("/p/.yarn/releases/yarn.cjs", Some(PackageScripts)),
            ("/p/.exrc", Some(EditorTask)),
            ("/p/.nvim.lua", Some(EditorTask)),
            ("/p/.dir-locals.el", Some(EditorTask)),
            ("/p/.devcontainer/devcontainer.json", Some(EditorTask)),
            ("/p/.claude/settings.json", Some(AgentSettings)),
            ("/p/.claude/agents/x.md", Some(AgentSettings)),
            ("/p/.mcp.json", Some(AgentSettings)),
            ("/p/AGENTS.md", Some(AgentSettings)),
            ("/p/.tool-versions", Some(ToolChoice)),
            ("/p/mise.toml", Some(ToolChoice)),
            ("/p/Dockerfile.dev", Some(Container)),
            ("/p/compose.yaml", Some(Container)),
            ("/p/Jenkinsfile", Some(Workflow)),
            ("/p/scripts/run.sh", Some(Script)),
            ("/p/.git", Some(GitConfig)),
            ("/p/hooks/pre-commit", None),
            ("/p/.husky/pre-commit", Some(GitHook)),
            ("/home/u/.config/git/config", Some(GitConfig)),
            ("/p/a/.envrc", Some(Envrc)),
            ("/p/.substrate-profile", Some(SubstrateProfile)),
            ("/p/x/Makefile", Some(BuildFile)),
            ("/p/justfile", Some(BuildFile)),
            ("/home/u/.bashrc", Some(ShellStartup)),
            ("/home/u/.config/fish/conf.d/a.fish", Some(ShellStartup)),
            ("/p/.vscode/tasks.json", Some(EditorTask)),
            ("/p/.vscode/notes.txt", Some(EditorTask)),
            ("/p/.idea/runConfigurations/a.xml", Some(EditorTask)),
            ("/p/.github/workflows/ci.yml", Some(Workflow)),
            ("/p/.github/README.md", None),
            ("/etc/cron.d/job", Some(Crontab)),
            ("/home/u/.config/systemd/user/a.service", Some(SystemdUnit)),
            ("/home/u/.config/autostart/a.desktop", Some(Autostart)),
            ("/home/u/.ssh/authorized_keys", Some(SshConfig)),
            ("/p/src/main.rs", None),
            ("/p/my.bashrc", None),
        ] {
            let found = runs_later(Path::new(path), &made, &NONE);
            assert_eq!(found, Vec::from_iter(expected), "{path}");
        }
        let deleted = change(ChangeKind::Deleted, Some(0o755), None);
        assert_eq!(runs_later(Path::new("/p/.envrc"), &deleted, &NONE), []);
        let profile = runs_later(Path::new("/p/.substrate-profile"), &deleted, &NONE);
        assert_eq!(profile, [SubstrateProfile]);
    }

    #[test]
    fn programs_and_rights_are_told() {
        use RunsLater::*;
        let path = Path::new("/p/tool");
        let flags = |old, new, cap| {
            let made = change(ChangeKind::Modified, old, new);
            runs_later(path, &made, &Text(None, None, cap))
        };
        assert_eq!(flags(None, Some(0o755), false), [NewExecutable]);
        assert_eq!(flags(Some(0o644), Some(0o755), false), [NewExecutable]);
        let changed = ChangedExecutable;
        assert_eq!(flags(Some(0o644), Some(0o644), false), []);
        assert_eq!(flags(Some(0o755), Some(0o755), false), [changed]);
        assert_eq!(flags(Some(0o755), Some(0o4755), false), [changed, Setuid]);
        assert_eq!(flags(Some(0o4755), Some(0o4755), false), [changed]);
        assert_eq!(flags(Some(0o755), Some(0o755), true), [changed, Setuid]);
        let touched = change(ChangeKind::Meta, Some(0o755), Some(0o755));
        assert_eq!(runs_later(path, &touched, &NONE), []);
    }

    #[test]
    fn a_link_in_place_of_a_directory_counts_as_what_it_leads_to() {
        let mut link = change(ChangeKind::Created, None, Some(0o777));
        link.new.as_mut().unwrap().kind = NodeKind::Symlink;
        for path in [
            "/p/.vscode",
            "/p/.github",
            "/p/.github/workflows",
            "/p/.husky",
            "/p/.git",
            "/p/.git/hooks",
            "/p/.git/info",
            "/p/.git/rebase-merge",
            "/p/.git/objects",
        ] {
            assert_ne!(runs_later(Path::new(path), &link, &NONE), [], "{path}");
        }
        assert_eq!(runs_later(Path::new("/p/docs"), &link, &NONE), []);
    }

    #[test]
    fn an_index_that_names_files_of_its_repository_counts() {
        let made = change(ChangeKind::Modified, Some(0o644), Some(0o644));
        let flags = |path, text| runs_later(Path::new(path), &made, &Text(None, text, false));
        let config = [RunsLater::GitConfig];
        let plain = Some("DIRC\0\0\0\x02\0\0\0\x01...src/main.rs\0.gitignore\0");
        for path in [
            "/p/.git/index",
            "/p/.git/worktrees/w/index",
            "/p/.git/index.lock",
        ] {
            assert_eq!(flags(path, plain), [], "{path}");
            for text in [
                None,
                Some("DIRC\0\0\0\x02\0\0\0\x01...\x18.git/hooks/post-checkout\0"),
                Some("DIRC\0\0\0\x03\0\0\0\x01...\x0b.GIT/config\0"),
                Some("DIRC\0\0\0\x04\0\0\0\x01...src/main.rs\0"),
            ] {
                assert_eq!(flags(path, text), config, "{path} {text:?}");
            }
        }
        assert_eq!(flags("/p/docs/index", None), []);
    }

    #[test]
    fn a_repository_under_another_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        let bare = dir.path().join("bare");
        std::fs::create_dir_all(bare.join("objects")).unwrap();
        let made = change(ChangeKind::Created, None, Some(0o644));
        let flags = |name: &str| runs_later(&bare.join(name), &made, &NONE);
        assert_eq!(flags("config"), []);
        std::fs::write(bare.join("HEAD"), "").unwrap();
        assert_eq!(flags("config"), [RunsLater::GitConfig]);
        assert_eq!(flags("worktrees/w/commondir"), [RunsLater::GitConfig]);
        assert_eq!(flags("hooks/update"), [RunsLater::GitHook]);
        assert_eq!(flags("refs/heads/x"), []);
    }

    /// There is one list, and every pattern in it finds what it names.
    #[test]
    fn every_place_of_the_list_is_found() {
        let made = change(ChangeKind::Created, None, Some(0o644));
        for place in PLACES {
            let parts: Vec<String> = place
                .parts
                .iter()
                .map(|part| part.replace("**", "some").replace('*', "x"))
                .collect();
            let top = if place.rooted { "/" } else { "/p/sub" };
            let path = Path::new(top).join(parts.join("/"));
            assert!(
                !runs_later(&path, &made, &NONE).is_empty(),
                "{}",
                path.display()
            );
        }
        assert!(PLACES.len() > 350, "{}", PLACES.len());
        // What is meant from the root is not meant elsewhere.
        assert_eq!(runs_later(Path::new("/p/etc/passwd"), &made, &NONE), []);
    }

    #[test]
    fn package_scripts_count_when_they_change() {
        let path = Path::new("/p/package.json");
        let made = change(ChangeKind::Modified, Some(0o644), Some(0o644));
        let flags = |old, new| runs_later(path, &made, &Text(old, new, false));
        let with = Some(r#"{"scripts":{"postinstall":"x"}}"#);
        let without = Some(r#"{"version":"2"}"#);
        assert_eq!(flags(without, with), [RunsLater::PackageScripts]);
        assert_eq!(flags(None, with), [RunsLater::PackageScripts]);
        assert_eq!(flags(with, Some("not json")), [RunsLater::PackageScripts]);
        let depends = Some(r#"{"dependencies":{"x":"1"}}"#);
        assert_eq!(flags(without, depends), [RunsLater::PackageScripts]);
        assert_eq!(flags(with, with), []);
        assert_eq!(flags(with, without), []);
        let inner = Path::new("/p/node_modules/m/package.json");
        assert_eq!(runs_later(inner, &made, &Text(None, with, false)), []);
    }
}
