//! Changed files that can run later, outside every world: what a person should look at before
//! a result is applied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::entry::{Entry, NodeKind};
use crate::walk::{Change, ChangeKind};

/// Why a changed file can run later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunsLater {
    /// Git runs it on commit, checkout, push and the like.
    GitHook,
    /// Git's configuration names programs: aliases, filters, pagers, hooks.
    GitConfig,
    /// direnv runs it on `cd`.
    Envrc,
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
    /// A build server runs it.
    Workflow,
    /// cron runs it.
    Crontab,
    /// systemd runs it.
    SystemdUnit,
    /// The desktop runs it at login.
    Autostart,
    /// ssh reads who may log in, or what to run, from it.
    SshConfig,
    /// It is a program that was not there, or was not one.
    NewExecutable,
    /// It had setuid, setgid or file capabilities, which are taken away.
    Setuid,
}

impl RunsLater {
    /// The reason in a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            RunsLater::GitHook => "git runs it",
            RunsLater::GitConfig => "git configuration can name programs to run",
            RunsLater::Envrc => "direnv runs it",
            RunsLater::SubstrateProfile => "chooses the policy for this directory",
            RunsLater::PackageScripts => "package scripts changed",
            RunsLater::BuildFile => "a build runs it",
            RunsLater::ShellStartup => "shells run it",
            RunsLater::EditorTask => "an editor can run it",
            RunsLater::Workflow => "a build server runs it",
            RunsLater::Crontab => "cron runs it",
            RunsLater::SystemdUnit => "systemd runs it",
            RunsLater::Autostart => "the desktop runs it at login",
            RunsLater::SshConfig => "ssh reads it",
            RunsLater::NewExecutable => "new executable",
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

/// File names that say enough by themselves.
const BY_NAME: &[(RunsLater, &[&str])] = &[
    (RunsLater::Envrc, &[".envrc"]),
    (RunsLater::SubstrateProfile, &[".substrate-profile"]),
    (RunsLater::GitConfig, &[".gitconfig", ".gitmodules"]),
    (
        RunsLater::GitHook,
        &[".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"],
    ),
    (
        RunsLater::BuildFile,
        &[
            "Makefile",
            "makefile",
            "GNUmakefile",
            "justfile",
            "Justfile",
            ".justfile",
            "Taskfile.yml",
            "Rakefile",
        ],
    ),
    (
        RunsLater::ShellStartup,
        &[
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            ".zlogout",
            ".kshrc",
            ".mkshrc",
            ".cshrc",
            ".tcshrc",
            ".login",
            ".logout",
            "config.fish",
            ".xprofile",
            ".xinitrc",
            ".xsession",
        ],
    ),
    (RunsLater::Workflow, &[".gitlab-ci.yml", "Jenkinsfile"]),
    (RunsLater::Crontab, &["crontab", ".crontab"]),
];

/// A directory somewhere on the way, and how the name may end below it.
const BY_PLACE: &[(RunsLater, &[&str], &[&str])] = &[
    (RunsLater::GitHook, &[".husky"], &[""]),
    (RunsLater::GitHook, &[".githooks"], &[""]),
    (RunsLater::GitConfig, &["git"], &["/git/config"]),
    (
        RunsLater::BuildFile,
        &[".cargo"],
        &["/config", "/config.toml"],
    ),
    (RunsLater::ShellStartup, &["fish", "conf.d"], &[".fish"]),
    (RunsLater::ShellStartup, &["fish", "functions"], &[".fish"]),
    (RunsLater::ShellStartup, &["profile.d"], &[""]),
    (
        RunsLater::EditorTask,
        &[".vscode"],
        &["/tasks.json", "/launch.json", "/settings.json"],
    ),
    (RunsLater::EditorTask, &[".idea"], &[".xml"]),
    (RunsLater::EditorTask, &[".zed"], &[".json"]),
    (RunsLater::Workflow, &[".github", "workflows"], &[""]),
    (RunsLater::Workflow, &[".github", "actions"], &[""]),
    (RunsLater::Workflow, &[".circleci"], &[""]),
    (RunsLater::Crontab, &["cron.d"], &[""]),
    (RunsLater::Crontab, &["cron.hourly"], &[""]),
    (RunsLater::Crontab, &["cron.daily"], &[""]),
    (RunsLater::Crontab, &["cron.weekly"], &[""]),
    (RunsLater::Crontab, &["cron.monthly"], &[""]),
    (RunsLater::Crontab, &["spool", "cron"], &[""]),
    (
        RunsLater::SystemdUnit,
        &["systemd"],
        &[".service", ".timer", ".socket", ".path", ".conf"],
    ),
    (RunsLater::Autostart, &["autostart"], &[".desktop"]),
    (
        RunsLater::SshConfig,
        &[".ssh"],
        &["/authorized_keys", "/config", "/rc", "/environment"],
    ),
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
        return Vec::new();
    };
    let mut reasons = Vec::new();
    if matches!(new.kind, NodeKind::File | NodeKind::Symlink)
        && let Some(reason) = by_path(path, &new)
    {
        reasons.push(reason);
    }
    if path.file_name() == Some(OsStr::new("package.json"))
        && !path.iter().any(|part| part == "node_modules")
        && new.kind == NodeKind::File
        && scripts_differ(contents)
    {
        reasons.push(RunsLater::PackageScripts);
    }
    if new.kind == NodeKind::File {
        let before = change.old.filter(|old| old.kind == NodeKind::File);
        if new.mode & 0o111 != 0 && before.is_none_or(|old| old.mode & 0o111 == 0) {
            reasons.push(RunsLater::NewExecutable);
        }
        let setid = new.is_setid() && before.is_none_or(|old| !old.is_setid());
        if setid || new.mode & 0o111 != 0 && contents.has_capability() {
            reasons.push(RunsLater::Setuid);
        }
    }
    reasons
}

fn by_path(path: &Path, new: &Entry) -> Option<RunsLater> {
    let name = path.file_name()?;
    if let Some(reason) = inside_git(path, name, new) {
        return Some(reason);
    }
    for (reason, names) in BY_NAME {
        if names.iter().any(|n| name == *n) {
            return Some(*reason);
        }
    }
    let parts: Vec<&OsStr> = path.parent()?.iter().collect();
    let bytes = path.as_os_str().as_bytes();
    BY_PLACE
        .iter()
        .find(|(_, dirs, ends)| {
            parts
                .windows(dirs.len())
                .any(|at| at.iter().zip(*dirs).all(|(a, b)| a == b))
                && ends.iter().any(|end| bytes.ends_with(end.as_bytes()))
        })
        .map(|(reason, ..)| *reason)
}

/// Hooks and configuration of a repository, its submodules and worktrees; also a `.git` that is
/// a file, which sends git to another repository with hooks of its own.
fn inside_git(path: &Path, name: &OsStr, new: &Entry) -> Option<RunsLater> {
    if name == ".git" && !new.is_dir() {
        return Some(RunsLater::GitConfig);
    }
    let parts: Vec<&OsStr> = path.iter().collect();
    let git = parts.iter().position(|part| *part == ".git")?;
    let below = &parts[git + 1..];
    if below.iter().rev().skip(1).any(|part| *part == "hooks") {
        return Some(RunsLater::GitHook);
    }
    (name == "config" || name == "config.worktree").then_some(RunsLater::GitConfig)
}

fn scripts_differ(contents: &dyn Contents) -> bool {
    let (old, new) = contents.read();
    let scripts = |text: Option<Vec<u8>>| {
        let Some(text) = text else {
            return Ok(None);
        };
        serde_json::from_slice::<serde_json::Value>(&text)
            .map(|v| v.get("scripts").filter(|s| !s.is_null()).cloned())
    };
    match (scripts(old), scripts(new)) {
        (Ok(old), Ok(new)) => new.is_some() && old != new,
        // What we cannot read, a package manager may read differently.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Moment;
    use crate::walk::Fields;

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
            ("/p/.vscode/notes.txt", None),
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
        assert_eq!(flags(Some(0o755), Some(0o755), false), []);
        assert_eq!(flags(Some(0o755), Some(0o4755), false), [Setuid]);
        assert_eq!(flags(Some(0o4755), Some(0o4755), false), []);
        assert_eq!(flags(Some(0o755), Some(0o755), true), [Setuid]);
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
        assert_eq!(flags(with, with), []);
        assert_eq!(flags(with, without), []);
        let inner = Path::new("/p/node_modules/m/package.json");
        assert_eq!(runs_later(inner, &made, &Text(None, with, false)), []);
    }
}
