//! Digests in hexadecimal. The shim must not detect CPU features at start, which traps in virtual
//! machines, so this is not the crate that hashes files.

use hmac_sha256::Hash;

/// The SHA-256 of some bytes, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Hash::hash(bytes))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4).into());
        text.push(digit(byte & 15).into());
    }
    text
}

/// The digit for half a byte.
pub(crate) fn digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_digest() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
