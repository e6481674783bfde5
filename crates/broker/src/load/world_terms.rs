//! What a policy means for a world here: variables resolved, paths absolute.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use substrate_compiled::paths::{self, Values};
use substrate_policy::settings::{HostEntry, PathEntry, WorldSwitch};
use substrate_policy::terms::{NetSpec, PathPattern, WorldSpec};
use substrate_trace::Mode;

use super::policies::LoadedPolicy;
use crate::facts::Machine;
use crate::home::{Home, bytes};
use crate::project;

/// Whether commands run in the session's world. The variable can switch worlds on anywhere, but
/// off only where nothing is enforced.
pub fn uses_worlds(held: &LoadedPolicy, variable: Option<&OsStr>) -> bool {
    let variable = variable.map(OsStr::as_bytes);
    match (held.details.world.enabled, held.info.mode, variable) {
        (_, Mode::Observe, Some(b"disabled")) => false,
        (WorldSwitch::Off, _, _) => false,
        (_, _, Some(b"enabled")) | (WorldSwitch::On, _, _) => true,
        (WorldSwitch::Auto, mode, _) => mode == Mode::Enforce,
    }
}

/// The terms of a world for one policy. What it hides and protects it also does in the directory that
/// the variable `HOME` named when the session started: a world that stays cannot follow it further.
pub fn world_spec(
    held: &LoadedPolicy,
    home: &Home,
    other_homes: &[Vec<u8>],
    facts: &Machine<'_>,
) -> WorldSpec {
    let (effects, details) = (&held.effects, &held.details);
    let project = facts.project_path().map(Path::to_owned);
    let vars = &Values {
        home: Some(bytes(&home.user)),
        other_homes,
        project: project.as_deref().map(bytes),
        substrate_home: Some(bytes(&home.path)),
    };
    let expanded = |pattern: &str| paths::expand(pattern.as_bytes(), vars).map(Cow::into_owned);
    let subtrees = |entries: &[PathEntry]| -> Vec<PathBuf> {
        entries
            .iter()
            .filter_map(|entry| expanded(&entry.pattern))
            .map(|pattern| subtree(&pattern))
            .collect()
    };
    let globs = |entries: &[PathEntry]| -> Vec<PathPattern> {
        entries
            .iter()
            .flat_map(|entry| paths::expand_all(entry.pattern.as_bytes(), vars))
            .map(|pattern| path_pattern(pattern.into_owned()))
            .collect()
    };
    // Whoever makes a work tree inside another moves `$PROJECT`; what is hidden around it stays hidden.
    let outer: Vec<PathBuf> = project
        .iter()
        .flat_map(|inner| around(inner, &home.user))
        .collect();
    let hidden_around = outer.iter().flat_map(|outer| {
        let vars = Values {
            project: Some(bytes(outer)),
            ..*vars
        };
        let entries = effects.fs.hide.iter();
        let named = entries.filter(|entry| entry.pattern.starts_with("$PROJECT"));
        let all = named.filter_map(|entry| {
            paths::expand(entry.pattern.as_bytes(), &vars).map(Cow::into_owned)
        });
        all.collect::<Vec<_>>()
    });
    let hidden_around: Vec<PathPattern> = hidden_around.map(path_pattern).collect();
    let markers = project.iter().flat_map(|project| marker_files(project));
    let markers: Vec<PathPattern> = markers.map(|path| PathPattern::of(&path)).collect();
    let hosts = |entries: &[HostEntry]| {
        entries
            .iter()
            .flat_map(|entry| entry.rule.iter().chain(&entry.members).cloned())
            .collect()
    };
    let world = &details.world;
    WorldSpec {
        policy_id: held.info.id.clone(),
        mode: held.info.mode,
        home: home.user.clone(),
        substrate_home: home.path.clone(),
        read: subtrees(&effects.fs.read),
        write: subtrees(&effects.fs.write),
        hold: Vec::new(),
        hide: [globs(&effects.fs.hide), hidden_around].concat(),
        protect: [globs(&effects.fs.protect), markers].concat(),
        share: subtrees(&effects.fs.share),
        net: NetSpec {
            isolate: world.isolate_network,
            allowed: hosts(&effects.net.allowed),
            denied: hosts(&effects.net.denied),
            resolve: details.resolve.clone(),
            bytes_per_sec: details.bytes_per_sec,
            total_bytes: details.total_bytes,
            refresh_secs: details.refresh_secs,
        },
        home_mode: world.home,
        sockets: world
            .sockets
            .iter()
            .filter_map(|path| expanded(path))
            .map(|path| subtree(&path))
            .collect(),
        publish: world.publish.clone(),
        allow_ptrace: world.allow_ptrace,
        allow_userns: world.allow_userns,
        limits: world.limits,
        on_finish: world.on_finish,
        project,
    }
}

/// The work trees that a project lies in.
fn around(project: &Path, home: &Path) -> Vec<PathBuf> {
    let above = project.ancestors().skip(1);
    let trees = above.filter(|dir| project::is_root(dir) && !home.starts_with(dir));
    trees.map(Path::to_owned).collect()
}

/// Files by which what marks a project is fixed where it is: one that was renamed away would make everything around
/// it the project of the next command. A `.git` directory is fixed by its configuration.
fn marker_files(project: &Path) -> Vec<PathBuf> {
    let there = |name: &str| project.join(name).is_dir();
    let inside = [
        (".hg", ".hg/hgrc"),
        (".svn", ".svn/format"),
        (".jj", ".jj/repo/config.toml"),
        (".git", ".git/config"),
    ];
    let mut files: Vec<PathBuf> = inside
        .iter()
        .filter(|(marker, _)| there(marker))
        .map(|(_, file)| project.join(file))
        .collect();
    files.extend(Some(project.join(".git")).filter(|path| path.is_file()));
    files
}

/// `PATH/**` as the directory it means.
fn subtree(pattern: &[u8]) -> PathBuf {
    let path = pattern.strip_suffix(b"/**").unwrap_or(pattern);
    PathBuf::from(OsStr::from_bytes(if path.is_empty() { b"/" } else { path }))
}

fn path_pattern(glob: Vec<u8>) -> PathPattern {
    let literal = substrate_compiled::glob::literal_prefix(&glob);
    let base = if literal.len() == glob.len() {
        literal
    } else {
        literal
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(&b"/"[..], |slash| &literal[..slash.max(1)])
    };
    let base = PathBuf::from(OsStr::from_bytes(base));
    PathPattern { glob, base }
}
