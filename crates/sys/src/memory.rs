//! Reading the memory of another process.

use std::io;
use std::ops::Range;

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

type Read<T> = Result<T, ReadError>;

/// Reads from each place, in order; how many bytes in all.
fn read(process: i32, places: &[(u64, u64)], into: &mut [u8]) -> Read<usize> {
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

/// What one look at several places showed.
struct Seen {
    bytes: Vec<u8>,
    /// Where a piece of them lies in the process, and which it is. Places that adjoin are one piece.
    pieces: Vec<(u64, Range<usize>)>,
}

impl Seen {
    /// Looks. What cannot be read was not seen: whoever needs it learns why.
    fn at(process: i32, places: &[(u64, u64)]) -> Seen {
        let total: u64 = places.iter().map(|(_, length)| *length).sum();
        let mut bytes = vec![0; total as usize];
        let got = read(process, places, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        let mut pieces: Vec<(u64, Range<usize>)> = Vec::with_capacity(places.len());
        let mut end = 0;
        for (at, length) in places {
            let start = end;
            end += *length as usize;
            if end > bytes.len() {
                break;
            }
            match pieces.last_mut() {
                Some((before, piece)) if *before + piece.len() as u64 == *at => piece.end = end,
                _ => pieces.push((*at, start..end)),
            }
        }
        Seen { bytes, pieces }
    }

    /// What was seen from an address on.
    fn from(&self, at: u64) -> Option<&[u8]> {
        self.pieces.iter().find_map(|(start, piece)| {
            let skipped = usize::try_from(at.checked_sub(*start)?).ok()?;
            self.bytes.get(piece.clone())?.get(skipped..)
        })
    }

    /// A string, if its end was seen.
    fn string(&self, at: u64) -> Option<&[u8]> {
        let bytes = self.from(at)?;
        bytes.get(..bytes.iter().position(|byte| *byte == 0)?)
    }

    /// The pointers before a null, if that was seen.
    fn pointers(&self, at: u64) -> Option<Vec<u64>> {
        let words = self.from(at)?.as_chunks::<8>().0;
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let end = words.clone().position(|word| word == 0)?;
        Some(words.take(end).collect())
    }
}

/// The path and the words that a call names, which nearly always takes two looks.
pub fn path_and_strings(
    process: i32,
    (path, path_limit): (u64, usize),
    (array, limit): (u64, usize),
) -> (Read<Vec<u8>>, Read<Vec<Vec<u8>>>) {
    let glance = |at| (at, left_in_page(at).min(GLANCE));
    let seen = Seen::at(process, &[glance(path), glance(array)]);
    let found = match seen.string(path).filter(|text| text.len() <= path_limit) {
        Some(text) => Ok(text.to_vec()),
        None => string(process, path, path_limit),
    };
    (found, strings_beyond(process, array, limit, &seen))
}

/// So many bytes, all of them.
pub fn bytes(process: i32, at: u64, length: usize) -> Read<Vec<u8>> {
    let mut found = vec![0; length];
    match length {
        0 => Ok(found),
        _ => match read(process, &[(at, length as u64)], &mut found)? {
            got if got == length => Ok(found),
            _ => Err(ReadError::Fault),
        },
    }
}

/// One string, without its end.
pub fn string(process: i32, at: u64, limit: usize) -> Read<Vec<u8>> {
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
pub fn strings(process: i32, array: u64, limit: usize) -> Read<Vec<Vec<u8>>> {
    // On a new stack they follow their pointers.
    let length = left_in_page(array);
    let near = [(array, length), (array.saturating_add(length), PAGE)];
    strings_beyond(process, array, limit, &Seen::at(process, &near))
}

/// The same, of which something was seen already.
fn strings_beyond(process: i32, array: u64, limit: usize, seen: &Seen) -> Read<Vec<Vec<u8>>> {
    if array == 0 {
        return Ok(Vec::new());
    }
    let pointers = match seen.pointers(array) {
        Some(pointers) => pointers,
        None => pointers(process, array, limit)?,
    };
    let texts = pointers.iter().map(|at| seen.string(*at));
    if let Some(texts) = texts.collect::<Option<Vec<&[u8]>>>() {
        let taken: usize = texts.iter().map(|text| text.len() + 9).sum();
        return match taken <= limit {
            true => Ok(texts.into_iter().map(<[u8]>::to_vec).collect()),
            false => Err(ReadError::TooLong),
        };
    }
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

fn pointers(process: i32, array: u64, limit: usize) -> Read<Vec<u64>> {
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
    fn a_path_and_words_are_read_together_and_fail_apart() {
        let (path, long) = (c"/bin/true", CString::new(vec![b'p'; 5000]).unwrap());
        let (one, other) = (c"true", CString::new(vec![b'x'; 300]).unwrap());
        let array = [one.as_ptr() as u64, other.as_ptr() as u64, 0];
        let at = |text: &std::ffi::CStr| text.as_ptr() as u64;
        let words = array.as_ptr() as u64;
        let (found, strings) = path_and_strings(own(), (at(path), 100), (words, 1000));
        assert_eq!(found.unwrap(), path.to_bytes());
        assert_eq!(strings.unwrap(), [one.to_bytes(), other.to_bytes()]);
        let (found, strings) = path_and_strings(own(), (at(&long), 5000), (0, 1000));
        assert_eq!(found.unwrap(), long.to_bytes());
        assert!(strings.unwrap().is_empty());
        let (found, strings) = path_and_strings(own(), (at(path), 8), (words, 300));
        assert!(matches!(found, Err(ReadError::TooLong)));
        assert!(matches!(strings, Err(ReadError::TooLong)));
        let (found, strings) = path_and_strings(own(), (8, 100), (words, 1000));
        assert!(matches!(found, Err(ReadError::Fault)) && strings.is_ok());
        let (found, strings) = path_and_strings(own(), (at(path), 100), (u64::MAX - 3, 1000));
        assert!(found.is_ok() && matches!(strings, Err(ReadError::Fault)));
    }

    #[test]
    fn wild_addresses_are_a_fault_and_no_array_is_empty() {
        assert!(matches!(strings(own(), 8, 100), Err(ReadError::Fault)));
        assert!(matches!(string(own(), 8, 100), Err(ReadError::Fault)));
        assert!(strings(own(), 0, 100).unwrap().is_empty());
    }
}
