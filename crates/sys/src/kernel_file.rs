//! Files that the kernel writes while they are read, such as those of `/proc`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// As much as is asked for at once: most of these files fit, and every further call makes the
/// kernel find its place again.
const AT_ONCE: usize = 16 * 1024;

/// The content of a file whose length the kernel does not tell.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut content = vec![0; AT_ONCE];
    let mut filled = 0;
    loop {
        if filled == content.len() {
            content.resize(filled * 2, 0);
        }
        match file.read(&mut content[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(filled);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_come_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        std::fs::write(file.path(), &long).unwrap();
        assert_eq!(read(file.path()).unwrap(), long);
        assert!(!read("/proc/self/mountinfo").unwrap().is_empty());
    }
}
