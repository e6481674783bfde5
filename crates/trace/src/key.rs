//! The key of a home. It lies outside every world, so a digest made with it shows that
//! Substrate itself wrote a line.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use hmac_sha256::HMAC;

use crate::digest::hex;
use crate::files::open_private;
use crate::{Error, SpanId};

/// What closes a line that carries a digest, around 64 hexadecimal digits.
const BEFORE: &[u8] = b",\"digest\":\"";
const AFTER: &[u8] = b"\"}}";

/// A secret of 32 bytes, kept in `<home>/key`.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads the key of a home, or makes one if there is none yet.
    pub fn load(home: &Path) -> Result<Self, Error> {
        let path = home.join("key");
        match Self::read(&path) {
            Err(Error::Open { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Self::create(home, &path)
            }
            result => result,
        }
    }

    /// Reads the key of a home and never makes one: for those who only verify.
    pub fn existing(home: &Path) -> Result<Self, Error> {
        Self::read(&home.join("key"))
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let (mut file, _) = open_private(path, OpenOptions::new().read(true))?;
        // One more than a key has, so that a longer file shows.
        let mut bytes = [0; 33];
        let length = file.read(&mut bytes).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        match bytes[..length].try_into() {
            Ok(key) => Ok(Self(key)),
            Err(_) => Err(Error::KeyDamaged {
                path: path.to_owned(),
            }),
        }
    }

    /// Writes a new key aside and links it into place: of several processes that start
    /// together one wins, and all use its key.
    fn create(home: &Path, path: &Path) -> Result<Self, Error> {
        let mut key = [0; 32];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut key))
            .map_err(|source| Error::Random { source })?;

        let aside: PathBuf = home.join(format!("key.{}", SpanId::new()));
        let failed = |source| Error::Open {
            path: aside.clone(),
            source,
        };
        let (mut file, _) = open_private(&aside, OpenOptions::new().write(true).create_new(true))?;
        let written = file.write_all(&key).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| std::fs::hard_link(&aside, path));
        // The name aside is of no use any more, whatever happened.
        let _ = std::fs::remove_file(&aside);
        match linked {
            Ok(()) => Ok(Self(key)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(failed(error)),
        }
    }

    /// Starts a keyed digest.
    pub(crate) fn hmac(&self) -> HMAC {
        HMAC::new(self.0)
    }

    /// Ends a line whose last member is an open `replay_context`: adds the digest of
    /// everything before it and closes both objects.
    pub(crate) fn seal(&self, line: &mut Vec<u8>) {
        let digest = self.digest(line);
        line.extend_from_slice(BEFORE);
        line.extend_from_slice(digest.as_bytes());
        line.extend_from_slice(AFTER);
    }

    /// Says whether this key's owner wrote the line exactly as it stands.
    pub fn verify(&self, line: &[u8]) -> Authenticity {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let parts = line
            .strip_suffix(AFTER)
            .and_then(|rest| rest.split_at_checked(rest.len().checked_sub(64)?))
            .and_then(|(rest, digest)| Some((rest.strip_suffix(BEFORE)?, digest)));
        let Some((signed, digest)) = parts else {
            return Authenticity::Unsigned;
        };
        let wanted = self.digest(signed);
        // No early exit: the time taken must not tell how much of a guess was right.
        let difference = wanted
            .bytes()
            .zip(digest)
            .fold(0, |all, (a, b)| all | (a ^ b));
        match difference {
            0 => Authenticity::Genuine,
            _ => Authenticity::Altered,
        }
    }

    /// A keyed digest in hexadecimal. `purpose` keeps digests for one use from serving another.
    pub fn sign(&self, purpose: &str, bytes: &[u8]) -> String {
        let mut mac = self.hmac();
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(bytes);
        hex(&mac.finalize())
    }

    /// The digest of something that a command read or printed, from its SHA-256. Keyed, because
    /// the plain hash of a short secret can be guessed.
    pub fn content_digest(&self, sha256: &[u8; 32]) -> String {
        self.sign("substrate content 1", sha256)
    }

    fn digest(&self, bytes: &[u8]) -> String {
        self.sign("substrate span 1", bytes)
    }
}

/// What a line's digest says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authenticity {
    /// Written with this key, and not a byte was changed.
    Genuine,
    /// It carries a digest of another text or key.
    Altered,
    /// It carries no digest where one belongs.
    Unsigned,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn sealed(key: &Key) -> Vec<u8> {
        let mut line = br#"{"cmd":"ls","replay_context":{"cwd":"/""#.to_vec();
        key.seal(&mut line);
        line
    }

    #[test]
    fn one_key_for_a_home() {
        let temp = tempfile::tempdir().unwrap();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Key::load(temp.path()).unwrap().0))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_ne!(keys[0], [0; 32]);
        assert_eq!(Key::existing(temp.path()).unwrap().0, keys[0]);
        let names: Vec<_> = std::fs::read_dir(temp.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
        let mode = temp.path().join("key").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let temp = tempfile::tempdir().unwrap();
        for content in [&b""[..], b"short", &[1; 33]] {
            std::fs::write(temp.path().join("key"), content).unwrap();
            let error = Key::load(temp.path()).unwrap_err();
            assert!(matches!(error, Error::KeyDamaged { .. }), "{error}");
        }
    }

    #[test]
    fn every_change_shows() {
        let key = Key([7; 32]);
        let line = sealed(&key);
        assert_eq!(key.verify(&line), Authenticity::Genuine);
        let mut with_newline = line.clone();
        with_newline.push(b'\n');
        assert_eq!(key.verify(&with_newline), Authenticity::Genuine);
        assert_eq!(Key([8; 32]).verify(&line), Authenticity::Altered);
        for at in 0..line.len() {
            let mut changed = line.clone();
            changed[at] ^= 1;
            assert_ne!(key.verify(&changed), Authenticity::Genuine, "{at}");
            assert_ne!(key.verify(&line[..at]), Authenticity::Genuine, "{at}");
        }
        let mut longer = line.clone();
        longer.push(b' ');
        assert_eq!(key.verify(&longer), Authenticity::Unsigned);
    }
}
