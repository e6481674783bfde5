//! Snapshots: what they contain, what they cost, and that a project comes back from them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrate_snapshots::{
    Kind, Limits, RestoreError, Store, Taken, Tree, difference, restore, take,
};

struct Project {
    directory: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let project = Self { directory };
        for (name, content) in [
            (".git/config", "[remote]"),
            (".gitignore", "*.o\n/out/\n"),
            ("main.c", "int main;"),
            ("main.o", "binary"),
            ("out/result", "made"),
            ("src/a.c", "a"),
            ("src/b.c", "b"),
        ] {
            project.write(name, content);
        }
        symlink("main.c", project.root().join("link")).unwrap();
        let program = project.root().join("src/a.c");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        project
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    fn store(&self) -> Store {
        Store::open(&self.directory.path().join("home"))
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn take(&self) -> (String, Tree) {
        let limits = Limits {
            time: Duration::from_secs(60),
            ..Limits::default()
        };
        match take(&mut self.store(), &self.root(), &limits).unwrap() {
            Taken::Whole(id, tree) => {
                let kept = self.store().tree(&id).unwrap();
                assert!(tree.is_none_or(|tree| tree == kept));
                (id, kept)
            }
            Taken::Skipped(why) => panic!("skipped: {why}"),
        }
    }
}

fn names(tree: &Tree) -> Vec<&str> {
    tree.entries
        .keys()
        .map(|path| path.to_str().unwrap())
        .collect()
}

#[test]
fn a_snapshot_has_what_is_not_ignored() {
    let project = Project::new();
    let (id, tree) = project.take();
    assert_eq!(
        names(&tree),
        [".gitignore", "link", "main.c", "src", "src/a.c", "src/b.c"]
    );
    assert_eq!(
        tree.entries[Path::new("link")].kind,
        Kind::Link("main.c".into())
    );
    assert_eq!(tree.entries[Path::new("src/a.c")].mode, 0o755);
    assert_eq!(project.store().tree(&id), Some(tree));
    assert_eq!(project.take().0, id, "nothing changed");
}

#[test]
fn every_change_is_seen_at_once() {
    let project = Project::new();
    let (mut last, _) = project.take();
    // The same length within the same tick of the clock: only the content tells.
    for content in ["int niam;", "int mian;", "int main;"].repeat(5) {
        project.write("main.c", content);
        let (id, tree) = project.take();
        assert_ne!(id, last, "{content}");
        let Kind::File(hash) = tree.entries[Path::new("main.c")].kind else {
            panic!("not a file");
        };
        let kept = project.store().content(&hash).unwrap();
        assert_eq!(kept, content.as_bytes());
        last = id;
    }
}

/// What somebody does to a project.
type Step = fn(&Project);

/// What changes names, contents or what is left out, each in its own way.
const STEPS: [(&str, Step); 22] = [
    ("nothing", |_| ()),
    ("a new file", |p| p.write("src/new.c", "new")),
    ("a new name at the top", |p| p.write("another", "x")),
    ("a file that is left out", |p| p.write("src/new.o", "x")),
    ("nothing again", |_| ()),
    ("a file is edited", |p| p.write("src/b.c", "edited")),
    ("the same length", |p| p.write("src/b.c", "EDITED")),
    ("a file goes", |p| {
        fs::remove_file(p.root().join("src/new.c")).unwrap()
    }),
    ("a file is renamed", |p| {
        fs::rename(p.root().join("another"), p.root().join("other")).unwrap();
    }),
    ("a file takes another's place", |p| {
        fs::rename(p.root().join("other"), p.root().join("src/b.c")).unwrap();
    }),
    ("a mode", |p| {
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(p.root().join("src/b.c"), mode).unwrap();
    }),
    ("the mode of a directory", |p| {
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(p.root().join("src"), mode).unwrap();
    }),
    ("a directory in a directory", |p| {
        p.write("deep/er/file", "1")
    }),
    ("an edit down there", |p| p.write("deep/er/file", "2")),
    ("a name down there", |p| p.write("deep/er/second", "2")),
    ("other rules", |p| p.write(".gitignore", "*.c\n")),
    ("rules further down", |p| {
        p.write("src/.gitignore", "*\n!b.c\n")
    }),
    ("rules that leave themselves out", |p| {
        p.write("src/.gitignore", "*\n!a.c\n")
    }),
    ("rules of git's own", |p| {
        p.write(".git/info/exclude", "second\n")
    }),
    ("a directory becomes a file", |p| {
        fs::remove_dir_all(p.root().join("deep/er")).unwrap();
        p.write("deep/er", "a file");
    }),
    ("a link to elsewhere", |p| {
        fs::remove_file(p.root().join("link")).unwrap();
        symlink("src", p.root().join("link")).unwrap();
    }),
    ("a directory goes", |p| {
        fs::remove_dir_all(p.root().join("src")).unwrap()
    }),
];

/// Takes a snapshot with all that is known from before, and one with nothing, and wants the same.
fn same_as_from_scratch(project: &Project, scratch: &Path, name: &str) -> String {
    let (id, tree) = project.take();
    let mut store = Store::open(&scratch.join(name.replace([' ', '/'], "-")));
    let limits = Limits {
        time: Duration::from_secs(60),
        ..Limits::default()
    };
    match take(&mut store, &project.root(), &limits).unwrap() {
        Taken::Whole(fresh, Some(whole)) => {
            assert_eq!(names(&tree), names(&whole), "{name}");
            assert_eq!(id, fresh, "{name}");
        }
        other => panic!("{name}: {other:?}"),
    }
    id
}

#[test]
fn what_is_remembered_never_differs_from_what_is_there() {
    for settles in [true, false] {
        let (project, scratch) = (Project::new(), tempfile::tempdir().unwrap());
        for (name, step) in STEPS {
            if settles {
                // Only what has been the same for a while is believed without another look.
                std::thread::sleep(Duration::from_millis(60));
                project.take();
            }
            step(&project);
            same_as_from_scratch(&project, scratch.path(), name);
            assert_eq!(project.take(), project.take(), "{name}");
        }
    }
}

#[test]
fn a_large_project_is_looked_at_from_several_places() {
    let (project, scratch) = (Project::new(), tempfile::tempdir().unwrap());
    for number in 0..3000 {
        project.write(&format!("d{}/e/file{number}", number % 30), "x");
    }
    std::thread::sleep(Duration::from_millis(60));
    let mut last = project.take().0;
    for number in [0, 1499, 2990, 2999] {
        assert_eq!(project.take().0, last, "nothing changed");
        let name = format!("d{}/e/file{number}", number % 30);
        project.write(&name, "y");
        std::thread::sleep(Duration::from_millis(60));
        let id = same_as_from_scratch(&project, scratch.path(), &name);
        assert_ne!(id, last, "{name}");
        // What was moved away and came back somewhere else.
        let (dir, aside) = (project.root().join("d29"), project.root().join("z"));
        fs::rename(&dir, &aside).unwrap();
        last = same_as_from_scratch(&project, scratch.path(), &format!("{name} moved"));
        assert_ne!(id, last);
        fs::rename(&aside, &dir).unwrap();
        last = same_as_from_scratch(&project, scratch.path(), &format!("{name} back"));
        assert_eq!(id, last);
    }
}

#[test]
fn two_snapshots_make_a_diff() {
    let project = Project::new();
    let (_, before) = project.take();
    project.write("new/file", "new");
    project.write("main.c", "changed");
    project.write("main.o", "ignored");
    fs::remove_file(project.root().join("src/b.c")).unwrap();
    let (id, after) = project.take();
    let diff = difference(&before, &after, &id);
    let root = project.root();
    assert_eq!(diff.writes, [root.join("new/file")]);
    assert_eq!(diff.created_dirs, [root.join("new")]);
    assert_eq!(diff.mods, [root.join("main.c")]);
    assert_eq!(diff.deletes, [root.join("src/b.c")]);
    assert_eq!(diff.strategy, "snapshot");
    assert_eq!(diff.tree_hash, Some(id));
}

#[test]
fn a_project_comes_back_as_it_was() {
    let project = Project::new();
    let (id, then) = project.take();
    project.write("main.c", "changed");
    project.write("new/sub/file", "new");
    fs::remove_dir_all(project.root().join("src")).unwrap();
    project.write("src", "a file where a directory was");
    fs::remove_file(project.root().join("link")).unwrap();
    fs::create_dir(project.root().join("link")).unwrap();
    project.write("link/kept.o", "ignored, and in the way of nothing");
    fs::remove_file(project.root().join("link/kept.o")).unwrap();
    let (_, now) = project.take();
    let changes = restore(&project.store(), &now, &then, &project.root()).unwrap();
    assert!(changes > 0);
    assert_eq!(project.take(), (id, then));
    assert_eq!(fs::read(project.root().join("main.o")).unwrap(), b"binary");
}

#[test]
fn private_paths_and_large_files_are_not_read() {
    let project = Project::new();
    project.write("secret/token", "x");
    project.write("src/.env", "x");
    let secret = project.root().join("secret");
    let limits = Limits {
        private: vec![secret.to_str().unwrap().into(), b".env".to_vec()],
        ..Limits::default()
    };
    let inside = take(&mut project.store(), &secret, &limits).unwrap();
    assert!(matches!(inside, Taken::Skipped(_)), "{inside:?}");
    let taken = take(&mut project.store(), &project.root(), &limits).unwrap();
    let Taken::Whole(id, _) = taken else {
        panic!("{taken:?}");
    };
    let tree = project.store().tree(&id).unwrap();
    assert_eq!(names(&tree).len(), 6, "{tree:?}");
    fs::remove_file(project.root().join("src/.env")).unwrap();
    let limits = Limits {
        file: 4,
        ..Limits::default()
    };
    let taken = take(&mut project.store(), &project.root().join("src"), &limits).unwrap();
    assert!(matches!(taken, Taken::Whole(..)), "{taken:?}");
    project.write("src/large", "12345");
    let taken = take(&mut project.store(), &project.root().join("src"), &limits).unwrap();
    assert!(
        matches!(&taken, Taken::Skipped(why) if why.contains("large")),
        "{taken:?}"
    );
}

#[test]
fn time_that_is_up_ends_it_and_no_work_is_lost() {
    let project = Project::new();
    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    let taken = take(&mut project.store(), &project.root(), &limits).unwrap();
    assert!(
        matches!(&taken, Taken::Skipped(why) if why.contains("longer")),
        "{taken:?}"
    );
    let (_, tree) = project.take();
    assert_eq!(names(&tree).len(), 6);
}

#[test]
fn what_no_span_needs_is_collected() {
    let project = Project::new();
    let (old, then) = project.take();
    project.write("main.c", "changed");
    let (new, now) = project.take();
    let store = project.store();
    let wanted = HashSet::from([new.clone()]);
    assert_eq!(store.collect(&wanted).unwrap().trees, 0, "all is fresh");
    let ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    age(&project.directory.path().join("home"), ago);
    let done = store.collect(&wanted).unwrap();
    assert_eq!((done.trees, done.objects), (1, 1));
    assert_eq!(store.tree(&old), None);
    assert!(store.tree(&new).is_some());
    let error = restore(&store, &now, &then, &project.root()).unwrap_err();
    assert!(matches!(error, RestoreError::Gone(_)), "{error}");
    project.write("main.c", "int main;");
    project.take();
    restore(&project.store(), &now, &then, &project.root()).expect("it is kept again");
}

fn age(dir: &Path, at: std::time::SystemTime) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path, at);
        } else {
            fs::File::open(&path).unwrap().set_modified(at).unwrap();
        }
    }
}

/// The path of a command is not held up by a large project, whether it is known already or not.
#[test]
fn a_large_project_takes_no_longer_than_it_may() {
    let project = Project::new();
    for directory in 0..300 {
        for file in 0..100 {
            project.write(
                &format!("d{directory}/f{file}"),
                &format!("{directory} {file}"),
            );
        }
    }
    let limits = Limits {
        time: Duration::from_millis(5),
        ..Limits::default()
    };
    let short = || {
        let began = std::time::Instant::now();
        let taken = take(&mut project.store(), &project.root(), &limits).unwrap();
        assert!(matches!(taken, Taken::Skipped(_)));
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..9).map(|_| short()).collect();
    let patient = Limits {
        time: Duration::from_secs(60),
        ..Limits::default()
    };
    let whole = take(&mut project.store(), &project.root(), &patient).unwrap();
    assert!(matches!(whole, Taken::Whole(..)));
    times.extend((0..9).map(|_| short()));
    times.sort_unstable();
    // Unoptimised, and beside other tests.
    let most = if cfg!(debug_assertions) { 200 } else { 12 };
    assert!(
        times[times.len() / 2] < Duration::from_millis(most),
        "{times:?}"
    );
}
