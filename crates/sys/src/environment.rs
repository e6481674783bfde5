//! The environment as the kernel gave it: every entry, in order, also those without `=`.

use std::ffi::{CStr, CString};

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// A copy of the environment.
pub fn raw() -> Vec<CString> {
    let mut entries = Vec::new();
    // SAFETY: `environ` is null or an array of strings that ends with a null pointer; nothing in
    // this program changes the environment.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// Replaces or adds a variable.
pub fn set(entries: &mut Vec<CString>, name: &str, value: &[u8]) {
    let mut text = format!("{name}=").into_bytes();
    text.extend_from_slice(value);
    let prefix = text[..name.len() + 1].to_vec();
    entries.retain(|entry| !entry.as_bytes().starts_with(&prefix));
    // A value with a NUL byte cannot be in an environment; leaving it out is all that is left.
    if let Ok(entry) = CString::new(text) {
        entries.push(entry);
    }
}

/// The value of a variable.
pub fn get<'a>(entries: &'a [CString], name: &str) -> Option<&'a [u8]> {
    entries.iter().find_map(|entry| {
        entry
            .as_bytes()
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_not_doubled() {
        let mut entries = vec![CString::from(c"A=1"), CString::from(c"AB=2")];
        set(&mut entries, "A", b"3");
        assert_eq!(get(&entries, "A"), Some(&b"3"[..]));
        assert_eq!(get(&entries, "AB"), Some(&b"2"[..]));
        assert_eq!(entries.len(), 2);
    }
}
