//! Files that the kernel writes while they are read, such as those of `/proc`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// As much as is asked for at once: most of these files fit, and every further call makes the
/// kernel find its place again.
const AT_ONCE: usize = 16 * 1024;

/// The content of a file whose length the kernel does not tell, but no more than `limit` bytes.
pub(crate) fn read(path: impl AsRef<Path>, limit: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut content = vec![0; AT_ONCE];
    let mut filled = 0;
    while filled < limit {
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
    content.truncate(filled.min(limit));
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_come_whole_and_no_longer_than_asked_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        std::fs::write(file.path(), &long).unwrap();
        assert_eq!(read(file.path(), usize::MAX).unwrap(), long);
        assert_eq!(read(file.path(), 20_000).unwrap(), long[..20_000]);
        assert!(!read("/proc/self/mountinfo", usize::MAX).unwrap().is_empty());
    }
}
