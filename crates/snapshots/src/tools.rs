//! The programs that a line names, by the content of their files.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use substrate_sys::bounded::{self, Links};

use crate::codec::{Reader, put_bytes};
use crate::store::{Store, hex};

const MAGIC: &[u8] = b"substrate tools 1\n";
/// How many bytes are hashed for one line before the rest is left out; it is known the next time.
const BUDGET: u64 = 48 << 20;
/// Files that are remembered before the list starts anew.
const REMEMBERED: usize = 1024;
/// A file that changed so recently may change again unseen.
const SETTLED: u64 = 2_000_000_000;

/// Device, inode, length, and the times of the last changes.
type Stamp = [u64; 5];

/// The SHA-256 of each file, in hexadecimal; those that cannot be read, or are too large, are left out.
pub fn tools(home: &Path, paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let mut store = Store::open(home);
    let cache_path = store.tools_path();
    let mut known = fs::read(&cache_path)
        .ok()
        .and_then(|bytes| decode(&bytes))
        .unwrap_or_default();
    let mut left = BUDGET;
    let mut learnt = false;
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for path in paths {
        if found.iter().any(|(seen, _)| seen == path) {
            continue;
        }
        let Ok(meta) = fs::metadata(path) else {
            continue;
        };
        let nanos = |s: i64, n: i64| (s.max(0) as u64).wrapping_mul(1_000_000_000) + n as u64;
        let changed = nanos(meta.ctime(), meta.ctime_nsec());
        let modified = nanos(meta.mtime(), meta.mtime_nsec());
        let stamp = [meta.dev(), meta.ino(), meta.len(), modified, changed];
        let hash = match known.get(path) {
            Some((seen, hash)) if *seen == stamp => *hash,
            _ if meta.len() > left => continue,
            _ => {
                left -= meta.len();
                let Some(hash) = hash(path, meta.len()) else {
                    continue;
                };
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                if now.is_ok_and(|now| changed + SETTLED < now.as_nanos() as u64) {
                    if known.len() >= REMEMBERED {
                        known.clear();
                    }
                    known.insert(path.clone(), (stamp, hash));
                    learnt = true;
                }
                hash
            }
        };
        found.push((path.clone(), hex(&hash)));
    }
    if learnt {
        // Without the cache they are read again the next time.
        let _ = store.put(&cache_path, |file| file.write_all(&encode(&known)));
    }
    found
}

/// The hash of a file of this length; one that has grown meanwhile has none.
fn hash(path: &Path, length: u64) -> Option<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut file = bounded::open(path, Links::Follow).ok()?.take(length + 1);
    let hashed = std::io::copy(&mut file, &mut Feed(&mut hash)).ok()?;
    (hashed == length).then_some(())?;
    Some(hash.finalize().into())
}

struct Feed<'a>(&'a mut Sha256);

impl Write for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> Option<HashMap<PathBuf, (Stamp, [u8; 32])>> {
    let mut reader = Reader(bytes.strip_prefix(MAGIC)?);
    let mut known = HashMap::new();
    while !reader.0.is_empty() {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(reader.bytes()?));
        let mut stamp = [0; 5];
        for part in &mut stamp {
            *part = reader.u64()?;
        }
        known.insert(path, (stamp, reader.array()?));
    }
    Some(known)
}

fn encode(known: &HashMap<PathBuf, (Stamp, [u8; 32])>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for (path, (stamp, hash)) in known {
        put_bytes(&mut out, path.as_os_str().as_bytes());
        for part in stamp {
            out.extend_from_slice(&part.to_le_bytes());
        }
        out.extend_from_slice(hash);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_has_another_hash() {
        let home = tempfile::tempdir().unwrap();
        let tool = home.path().join("tool");
        fs::write(&tool, "one").unwrap();
        let paths = [tool.clone(), home.path().join("none"), tool.clone()];
        let first = tools(home.path(), &paths);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].1, substrate_trace::sha256_hex(b"one"));
        fs::write(&tool, "two").unwrap();
        assert_eq!(
            tools(home.path(), &paths)[0].1,
            substrate_trace::sha256_hex(b"two")
        );
    }

    #[test]
    fn what_is_remembered_comes_back() {
        let known = HashMap::from([(PathBuf::from("/bin/x"), ([1, 2, 3, 4, 5], [7; 32]))]);
        assert_eq!(decode(&encode(&known)), Some(known));
        assert_eq!(decode(b"other"), None);
    }
}
