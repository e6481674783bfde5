//! Known programs under other names: a copy of `rm` called `x` is judged as `rm`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use substrate_starts::{Image, Program, same_content};
use substrate_sys::bounded::{self, Links};

/// Programs that run others within themselves, so that no further start would show what runs.
const LAUNCHERS: [&str; 3] = ["busybox", "toybox", "coreutils"];
/// Where loaders are, which run the program that their arguments name.
const LOADERS: [&str; 3] = ["/lib64", "/lib", "/usr/lib"];
/// Longest file that is compared byte by byte.
const LONGEST: u64 = 64 << 20;

/// The programs that a policy speaks of, found by what is in them.
#[derive(Debug, Default)]
pub struct Copies {
    by_build_id: HashMap<Vec<u8>, Vec<OsString>>,
    by_size: HashMap<u64, Vec<(PathBuf, OsString)>>,
}

/// Whether a file is a dynamic loader, by its name.
pub fn is_loader(name: &OsStr) -> bool {
    let name = name.as_bytes();
    (name.starts_with(b"ld-") || name == b"ld.so") && name.windows(3).any(|part| part == b".so")
}

impl Copies {
    /// Looks at every program on a search path that `speaks_of` names, and at the loaders.
    pub fn find(search_path: &OsStr, speaks_of: &dyn Fn(&[u8]) -> bool) -> Copies {
        let mut copies = Copies::default();
        for directory in std::env::split_paths(search_path) {
            copies.add(&directory, &|name| {
                LAUNCHERS.iter().any(|known| name == *known) || speaks_of(name.as_bytes())
            });
        }
        for directory in LOADERS {
            copies.add(Path::new(directory), &is_loader);
        }
        copies
    }

    fn add(&mut self, directory: &Path, wanted: &dyn Fn(&OsStr) -> bool) {
        let Ok(entries) = fs::read_dir(directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !wanted(&name) {
                continue;
            }
            let path = entry.path();
            let Ok(file) = bounded::open(&path, Links::Follow) else {
                continue;
            };
            let Ok(found) = file.metadata() else { continue };
            if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
                continue;
            }
            match Image::of(&file, found.len()) {
                Ok(image) if image.interpreter.is_some() => {}
                Ok(Image {
                    build_id: Some(id), ..
                }) => self.by_build_id.entry(id).or_default().push(name),
                Ok(_) if is_elf(&file) => {
                    let same = self.by_size.entry(found.len()).or_default();
                    same.push((path, name));
                }
                _ => {}
            }
        }
    }

    /// The names by which a file is known, when it is one of these or a copy.
    pub fn names(&self, program: &Program) -> Vec<&OsStr> {
        if let Some(id) = &program.image.build_id {
            let names = self.by_build_id.get(id).into_iter().flatten();
            return names.map(OsString::as_os_str).collect();
        }
        let size = program.image.size;
        let Some(candidates) = self.by_size.get(&size).filter(|_| size <= LONGEST) else {
            return Vec::new();
        };
        let Ok(file) = program.open() else {
            return Vec::new();
        };
        candidates
            .iter()
            .filter(|(path, _)| {
                bounded::open(path, Links::Follow)
                    .is_ok_and(|known| same_content(&file, &known).unwrap_or(false))
            })
            .map(|(_, name)| name.as_os_str())
            .collect()
    }
}

fn is_elf(file: &File) -> bool {
    let mut head = [0; 4];
    file.read_exact_at(&mut head, 0).is_ok() && head == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_are_known_by_name() {
        for name in [
            "ld-linux-x86-64.so.2",
            "ld-musl-x86_64.so.1",
            "ld-2.31.so",
            "ld.so",
        ] {
            assert!(is_loader(OsStr::new(name)), "{name}");
        }
        for name in ["ld", "ld-linux", "libc.so.6", "ldd"] {
            assert!(!is_loader(OsStr::new(name)), "{name}");
        }
    }
}
