//! Reading the memory of another process.

use std::io;

/// Reading never crosses the end of a page, so that a piece is there whole or not at all.
const PAGE: u64 = 4096;
/// First look at a string.
const GLANCE: u64 = 256;
/// Most pieces that the kernel takes at once.
const PIECES: usize = 1024;

/// The strings that a call names could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// An address leads nowhere.
    Fault,
    /// More than the limit.
    TooLong,
    /// The process may not be read, or is gone.
    Refused(io::Error),
}

/// Reads from each place, in order; how many bytes in all.
fn read(process: i32, places: &[(u64, u64)], into: &mut [u8]) -> Result<usize, ReadError> {
    let remote: Vec<libc::iovec> = places
        .iter()
        .map(|(at, length)| libc::iovec {
            iov_base: *at as usize as *mut libc::c_void,
            iov_len: *length as usize,
        })
        .collect();
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: `local` describes `into`; the other addresses belong to the other process.
    let got = unsafe {
        libc::process_vm_readv(
            process,
            &raw const local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(got).map_err(|_| {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EFAULT) => ReadError::Fault,
            _ => ReadError::Refused(error),
        }
    })
}

fn left_in_page(at: u64) -> u64 {
    PAGE - at % PAGE
}

/// One string, without its end.
pub fn string(process: i32, at: u64, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let mut at = at;
    loop {
        let length = left_in_page(at);
        let start = text.len();
        text.resize(start + length as usize, 0);
        if read(process, &[(at, length)], &mut text[start..])? < length as usize {
            return Err(ReadError::Fault);
        }
        if let Some(end) = text[start..].iter().position(|byte| *byte == 0) {
            text.truncate(start + end);
            return if text.len() > limit {
                Err(ReadError::TooLong)
            } else {
                Ok(text)
            };
        }
        if text.len() > limit {
            return Err(ReadError::TooLong);
        }
        at = at.checked_add(length).ok_or(ReadError::Fault)?;
    }
}

/// The strings of a null-terminated array; a null array has none. `limit` counts their bytes
/// and the pointers.
pub fn strings(process: i32, array: u64, limit: usize) -> Result<Vec<Vec<u8>>, ReadError> {
    if array == 0 {
        return Ok(Vec::new());
    }
    let pointers = pointers(process, array, limit)?;
    let mut left = limit.saturating_sub(8 * pointers.len());
    let mut strings = Vec::with_capacity(pointers.len());
    for some in pointers.chunks(PIECES) {
        let places: Vec<(u64, u64)> = some
            .iter()
            .map(|at| (*at, left_in_page(*at).min(GLANCE)))
            .collect();
        let total: u64 = places.iter().map(|(_, length)| *length).sum();
        let mut bytes = vec![0; total as usize];
        if read(process, &places, &mut bytes)? < bytes.len() {
            return Err(ReadError::Fault);
        }
        let mut rest = bytes.as_slice();
        for (at, length) in places {
            let (piece, after) = rest
                .split_at_checked(length as usize)
                .ok_or(ReadError::Fault)?;
            rest = after;
            let text = match piece.iter().position(|byte| *byte == 0) {
                Some(end) => piece.get(..end).unwrap_or_default().to_vec(),
                None => string(process, at, left)?,
            };
            left = left.checked_sub(text.len() + 1).ok_or(ReadError::TooLong)?;
            strings.push(text);
        }
    }
    Ok(strings)
}

fn pointers(process: i32, array: u64, limit: usize) -> Result<Vec<u64>, ReadError> {
    let mut found = Vec::new();
    let mut at = array;
    loop {
        // An array that does not start at a multiple of eight has a pointer across two pages.
        let length = left_in_page(at).max(8) & !7;
        let mut bytes = vec![0; length as usize];
        let got = read(process, &[(at, length)], &mut bytes)?;
        for word in bytes.get(..got).unwrap_or_default().chunks_exact(8) {
            let word = word
                .first_chunk()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            if word == 0 {
                return Ok(found);
            }
            found.push(word);
        }
        if (got as u64) < length {
            return Err(ReadError::Fault);
        }
        if found.len() * 8 > limit {
            return Err(ReadError::TooLong);
        }
        at = at.checked_add(length).ok_or(ReadError::Fault)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn own() -> i32 {
        std::process::id().cast_signed()
    }

    #[test]
    fn strings_of_every_length_come_back_whole() {
        let texts: Vec<CString> = [0, 1, 255, 256, 257, 4095, 4096, 100_000]
            .iter()
            .map(|length| CString::new(vec![b'x'; *length]).unwrap())
            .collect();
        let mut array: Vec<u64> = texts.iter().map(|text| text.as_ptr() as u64).collect();
        array.push(0);
        let read = strings(own(), array.as_ptr() as u64, 1 << 20).unwrap();
        let lengths: Vec<usize> = read.iter().map(Vec::len).collect();
        assert_eq!(lengths, [0, 1, 255, 256, 257, 4095, 4096, 100_000]);
        assert!(matches!(
            strings(own(), array.as_ptr() as u64, 1000),
            Err(ReadError::TooLong)
        ));
    }

    #[test]
    fn arrays_longer_than_one_look_and_oddly_placed_ones_are_read() {
        let text = c"word";
        let many = vec![text.as_ptr() as u64; 3000];
        for shift in [0usize, 1, 7] {
            let mut bytes = vec![0u8; shift];
            bytes.extend(many.iter().flat_map(|word| word.to_ne_bytes()));
            bytes.extend([0; 8]);
            let array = bytes.as_ptr() as u64 + shift as u64;
            let read = strings(own(), array, 1 << 20).unwrap();
            assert_eq!(read.len(), 3000);
            assert!(read.iter().all(|word| word == b"word"));
        }
    }

    #[test]
    fn wild_addresses_are_a_fault_and_no_array_is_empty() {
        assert!(matches!(strings(own(), 8, 100), Err(ReadError::Fault)));
        assert!(matches!(string(own(), 8, 100), Err(ReadError::Fault)));
        assert!(strings(own(), 0, 100).unwrap().is_empty());
    }
}
