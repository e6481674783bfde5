//! Where the paths of a policy lead. Whoever can write to a directory can put a link there, and a
//! policy that names a path below it must not open what such a link names.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use substrate_policy::terms::WorldSpec;
use substrate_sys::real_path::real_path;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// The directories whose content is strangers': the project, and what a policy lets be written.
#[derive(Debug, Default)]
pub struct Ground {
    zones: Vec<PathBuf>,
}

/// Why a path leads nowhere that a world may use.
#[derive(Debug, thiserror::Error)]
pub enum Astray {
    /// It is not there, or cannot be looked at.
    #[error(transparent)]
    Missing(#[from] io::Error),
    /// A link on the way leads out of the directory that it lies in.
    #[error(
        "{} is a symlink that leads to {}, outside {}, where anything in it could have put it; \
         remove the link, or name its target in the policy",
        link.display(), to.display(), zone.display()
    )]
    Leaves {
        /// The link.
        link: PathBuf,
        /// Where the whole path leads.
        to: PathBuf,
        /// What it leaves.
        zone: PathBuf,
    },
}

impl Ground {
    /// What strangers may have written under these terms.
    pub fn of(spec: &WorldSpec) -> Ground {
        let paths = spec.project.iter().chain(&spec.write);
        let named = spec.write.iter().chain(&spec.read).chain(&spec.share);
        let others = named.chain(&spec.sockets);
        let others = others.flat_map(|path| work_trees(path, &spec.home));
        Ground {
            zones: paths.flat_map(real_path).chain(others).collect(),
        }
    }

    /// The path without links. Links of the system are followed as always; one that lies in a zone
    /// must not lead out of it.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, Astray> {
        let (to, links) = follow(path)?;
        for link in links {
            let leaves = |zone: &&PathBuf| {
                let made_in = link.parent().is_some_and(|dir| dir.starts_with(zone));
                made_in && !to.starts_with(zone)
            };
            if let Some(zone) = self.zones.iter().find(leaves).cloned() {
                return Err(Astray::Leaves { link, to, zone });
            }
        }
        Ok(to)
    }
}

/// The work trees that a path leads through: each may be the project of another session. The home is
/// never a project.
fn work_trees(path: &Path, home: &Path) -> Vec<PathBuf> {
    const MARKS: [&str; 4] = [".git", ".hg", ".jj", ".svn"];
    let is_tree = |dir: &&Path| {
        let marked = |mark: &str| fs::symlink_metadata(dir.join(mark)).is_ok();
        !home.starts_with(dir) && MARKS.iter().any(|mark| marked(mark))
    };
    let trees = path.ancestors().filter(is_tree);
    trees.flat_map(real_path).collect()
}

/// Follows a path one name at a time: where it ends, and every link on the way. One walk gives both,
/// so that the end belongs to the links that were seen.
fn follow(path: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let mut at = PathBuf::from("/");
    let mut links = Vec::new();
    let mut ahead: Vec<OsString> = backwards(path);
    while let Some(name) = ahead.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        at.push(name);
        // What is no link says so by failing.
        let Ok(to) = fs::read_link(&at) else {
            continue;
        };
        if links.len() == MOST_LINKS {
            return Err(io::Error::other("too many links"));
        }
        links.push(at.clone());
        at.pop();
        if to.is_absolute() {
            at = PathBuf::from("/");
        }
        ahead.extend(backwards(&to));
    }
    fs::symlink_metadata(&at)?;
    Ok((at, links))
}

/// The names of a path, last first.
fn backwards(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_through_another_work_tree_is_on_strangers_ground() {
        let dir = tempfile::tempdir().unwrap();
        let home = real_path(dir.path()).unwrap();
        for path in [".git", "other/.git", "other/deep/er", "plain"] {
            fs::create_dir_all(home.join(path)).unwrap();
        }
        let trees = |path: &str| work_trees(&home.join(path), &home);
        assert_eq!(trees("other/deep/er"), [home.join("other")]);
        assert_eq!(trees("other/gone"), [home.join("other")]);
        assert_eq!(trees("plain"), [] as [PathBuf; 0]);
    }

    #[test]
    fn links_of_strangers_stay_where_they_were_made() {
        let dir = tempfile::tempdir().unwrap();
        let top = real_path(dir.path()).unwrap();
        for path in ["project/lib/sub", "other"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        let project = top.join("project");
        for (to, link) in [
            ("lib", "project/inside"),
            ("../other", "project/out"),
            ("/", "project/all"),
            ("../project/lib", "project/round"),
            ("inside", "project/twice"),
            ("project", "system"),
            ("project/out", "through"),
            ("gone", "project/dangling"),
        ] {
            symlink(to, top.join(link)).unwrap();
        }
        let ground = Ground {
            zones: vec![project.clone()],
        };
        let lib = project.join("lib");
        for (path, to) in [
            ("project/inside", lib.clone()),
            ("project/round", lib.clone()),
            ("project/twice/sub", lib.join("sub")),
            ("system/lib/../lib", lib.clone()),
            ("system", project.clone()),
        ] {
            assert_eq!(ground.resolve(&top.join(path)).unwrap(), to, "{path}");
        }
        for path in ["project/out", "project/all", "project/all/etc", "through"] {
            let error = ground.resolve(&top.join(path)).unwrap_err();
            assert!(matches!(error, Astray::Leaves { .. }), "{path}: {error}");
        }
        let error = ground.resolve(&project.join("dangling")).unwrap_err();
        assert!(matches!(error, Astray::Missing(_)), "{error}");
        let said = ground
            .resolve(&project.join("out"))
            .unwrap_err()
            .to_string();
        assert!(
            said.contains(&format!("{}", top.join("other").display())),
            "{said}"
        );
    }
}
