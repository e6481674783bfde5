//! What kind of file a program is: its interpreter line, or what its linker wrote into it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use substrate_sys::at::Stat;

/// As much of a file as the kernel looks at for an interpreter line.
const HEAD: usize = 256;
/// Where notes of a program may lie, and how long they may be.
const NOTES: u64 = 1 << 24;
const NOTE_BYTES: usize = 16 * 1024;
/// Most files that are remembered.
const REMEMBERED: usize = 4096;

/// What a file is, as far as its content tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// The interpreter and its one argument, for a script.
    pub interpreter: Option<(OsString, Option<OsString>)>,
    /// The file that the kernel starts in place of a program that names one: its dynamic loader.
    pub starter: Option<OsString>,
    /// The linker's name for exactly this program, which copies keep.
    pub build_id: Option<Vec<u8>>,
    /// A library that runs by itself, which is what dynamic loaders are.
    pub loader: bool,
    /// Its length.
    pub size: u64,
    /// Nobody could look inside.
    pub unreadable: bool,
}

impl Image {
    /// Looks at a file.
    pub fn of(file: &File, size: u64) -> io::Result<Image> {
        let mut head = [0; 4096];
        let got = read_at(file, &mut head, 0)?;
        let head = &head[..got];
        let mut image = Image {
            size,
            ..Image::default()
        };
        if let Some(line) = head.strip_prefix(b"#!") {
            image.interpreter = interpreter(&line[..line.len().min(HEAD - 2)]);
        } else if head.starts_with(b"\x7fELF") {
            let found = segments(file, head).unwrap_or_default();
            image.build_id = found.build_id;
            image.loader = found.is_library && found.starter.is_none();
            image.starter = found.starter;
        }
        Ok(image)
    }
}

/// Whether two files hold the same bytes.
pub fn same_content(a: &File, b: &File) -> io::Result<bool> {
    let (mut left, mut right) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut at = 0;
    loop {
        let got = read_at(a, &mut left, at)?;
        if read_at(b, &mut right, at)? != got || left[..got] != right[..got] {
            return Ok(false);
        }
        if got == 0 {
            return Ok(true);
        }
        at += got as u64;
    }
}

fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], at + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(done)
}

/// The interpreter line as the kernel reads it: a path, then at most one argument.
fn interpreter(line: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = line.split(|byte| *byte == b'\n' || *byte == 0).next()?;
    let line = line.trim_ascii_end();
    let line = &line[line.iter().take_while(|byte| blank(byte)).count()..];
    let end = line.iter().position(&blank);
    let (path, rest) = line.split_at(end.unwrap_or(line.len()));
    if path.is_empty() {
        return None;
    }
    let argument = &rest[rest.iter().take_while(|byte| blank(byte)).count()..];
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((text(path), (!argument.is_empty()).then(|| text(argument))))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let piece: &[u8; N] = bytes.get(at..)?.first_chunk()?;
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(piece);
    Some(u64::from_le_bytes(whole))
}

/// What the table of a program's parts tells.
#[derive(Default)]
struct Segments {
    build_id: Option<Vec<u8>>,
    starter: Option<OsString>,
    is_library: bool,
}

/// Reads the table of parts of a 64-bit program.
fn segments(file: &File, head: &[u8]) -> io::Result<Segments> {
    const DYNAMIC: u64 = 2;
    const INTERPRETER: u64 = 3;
    const NOTE: u64 = 4;
    let mut found = Segments::default();
    let header = || {
        // Little-endian and 64-bit, as every program that can run here.
        (head.get(4..6)? == [2, 1]).then_some(())?;
        Some((
            number::<8>(head, 32)?,
            number::<2>(head, 54)? as usize,
            number::<2>(head, 56)? as usize,
        ))
    };
    let Some((table, size, count)) = header() else {
        return Ok(found);
    };
    if table > NOTES || size < 56 || count > 256 {
        return Ok(found);
    }
    let mut entries = vec![0; size * count];
    let got = read_at(file, &mut entries, table)?;
    for entry in entries[..got].chunks_exact(size) {
        let kind = number::<4>(entry, 0);
        match kind {
            // The kernel takes the first.
            Some(INTERPRETER) if found.starter.is_none() => {}
            Some(NOTE | DYNAMIC) => {}
            _ => continue,
        }
        let (Some(at), Some(length)) = (number::<8>(entry, 8), number::<8>(entry, 32)) else {
            continue;
        };
        if at > NOTES {
            continue;
        }
        let mut content = vec![0; NOTE_BYTES.min(length as usize)];
        let got = read_at(file, &mut content, at)?;
        let content = &content[..got];
        match kind {
            Some(INTERPRETER) => {
                let name = content.split(|byte| *byte == 0).next().unwrap_or_default();
                found.starter = Some(OsString::from_vec(name.to_vec()));
            }
            Some(DYNAMIC) => found.is_library |= has_library_name(content),
            _ => found.build_id = found.build_id.or_else(|| find_build_id(content)),
        }
    }
    Ok(found)
}

/// Whether a dynamic table names the library that the file is.
fn has_library_name(table: &[u8]) -> bool {
    const NAME: u64 = 14;
    table
        .chunks_exact(16)
        .any(|entry| number::<8>(entry, 0) == Some(NAME))
}

fn find_build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const BUILD_ID: u64 = 3;
    loop {
        let name = number::<4>(notes, 0)? as usize;
        let length = number::<4>(notes, 4)? as usize;
        let kind = number::<4>(notes, 8)?;
        let at = 12 + name.checked_next_multiple_of(4)?;
        let content = notes.get(at..at.checked_add(length)?)?;
        if kind == BUILD_ID && notes.get(12..16) == Some(b"GNU\0") && name == 4 {
            return Some(content.to_vec());
        }
        notes = notes.get(at + length.checked_next_multiple_of(4)?..)?;
    }
}

/// How long a file is believed to be where it was.
const MOMENT: Duration = Duration::from_millis(5);

/// Files that were looked at. A file that changes gets a new time, which is part of the key.
#[derive(Debug, Default)]
pub struct Images {
    known: Mutex<HashMap<Key, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl From<&Stat> for Key {
    fn from(stat: &Stat) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
        }
    }
}

#[derive(Debug)]
struct Known {
    image: Arc<Image>,
    /// Where it was found, and when.
    place: Option<(PathBuf, Instant)>,
}

impl Images {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a file is that is open as a handle.
    pub fn of(&self, handle: &impl AsRawFd, stat: &Stat) -> Arc<Image> {
        let key = Key::from(stat);
        if let Some(known) = self.known().get(&key) {
            return known.image.clone();
        }
        let image = reopen(handle).and_then(|file| Image::of(&file, stat.size));
        let image = Arc::new(image.unwrap_or(Image {
            size: stat.size,
            unreadable: true,
            ..Image::default()
        }));
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let new = Known {
            image: image.clone(),
            place: None,
        };
        known.insert(key, new);
        image
    }

    /// Where a file was a moment ago. Only for what is compared with the kernel's word for it once it
    /// runs; and one with several names may be meant by another.
    pub fn place_lately(&self, stat: &Stat) -> Option<PathBuf> {
        let known = self.known();
        let (path, when) = known.get(&Key::from(stat))?.place.as_ref()?;
        (stat.nlink == 1 && when.elapsed() < MOMENT).then(|| path.clone())
    }

    /// Notes where a file is.
    pub fn is_at(&self, stat: &Stat, path: &Path, now: Instant) {
        if let Some(known) = self.known().get_mut(&Key::from(stat)) {
            known.place = Some((path.to_owned(), now));
        }
    }
}

/// Opens for reading what is open as a handle.
pub fn reopen(handle: &impl AsRawFd) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn image(content: &[u8]) -> Image {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Image::of(&file, content.len() as u64).unwrap()
    }

    #[test]
    fn interpreter_lines_are_read_as_the_kernel_does() {
        let line = |text: &str| {
            image(text.as_bytes()).interpreter.map(|(path, argument)| {
                (
                    path.into_string().unwrap(),
                    argument.map(|text| text.into_string().unwrap()),
                )
            })
        };
        let of = |path: &str, argument: Option<&str>| {
            Some((path.to_owned(), argument.map(str::to_owned)))
        };
        assert_eq!(line("#!/bin/sh\nx"), of("/bin/sh", None));
        assert_eq!(line("#! \t/bin/sh -e  \nx"), of("/bin/sh", Some("-e")));
        assert_eq!(
            line("#!/usr/bin/env -S a b\n"),
            of("/usr/bin/env", Some("-S a b"))
        );
        assert_eq!(line("#!/bin/sh"), of("/bin/sh", None));
        assert_eq!(line("#!\n"), None);
        assert_eq!(line("echo"), None);
    }

    #[test]
    fn a_copy_has_the_build_id_of_its_original() {
        let original = std::env::current_exe().unwrap();
        let content = std::fs::read(original).unwrap();
        let mut longer = content.clone();
        longer.push(0);
        let (first, second) = (image(&content), image(&longer));
        assert_eq!(first.build_id, second.build_id);
        assert_ne!(first.size, second.size);
    }

    #[test]
    fn a_loader_is_known_by_its_making() {
        let of = |path: &str| {
            let file = File::open(path).ok()?;
            Image::of(&file, 0).ok()
        };
        if let Some(loader) = of("/lib64/ld-linux-x86-64.so.2") {
            assert!(loader.loader);
            assert_eq!(loader.starter, None);
        }
        let shell = of("/bin/sh").unwrap();
        assert!(!shell.loader);
        let starter = shell.starter.map(|path| path.into_string().unwrap());
        assert!(starter.is_none_or(|path| path.starts_with("/lib")));
    }

    #[test]
    fn broken_programs_have_none() {
        let mut content = b"\x7fELF\x02\x01\x01".to_vec();
        content.resize(64, 0xff);
        assert_eq!(image(&content).build_id, None);
        content.truncate(20);
        assert_eq!(image(&content).build_id, None);
    }
}
