//! The file that holds a compiled policy: a header, then sections, each with its own checksum, so
//! that a reader pays only for the sections it uses.

use crate::codec::{Decoder, Encoder};

/// Changes with every change of the encoding; another number is a foreign file.
pub const FORMAT: u32 = 10;

const MAGIC: &[u8; 8] = b"SUBSTRPL";
const HEADER: usize = 8 + 4 + 4 + Section::ALL.len() * 24;

/// The parts of a compiled policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Which files it was made from and what they looked like.
    Stamp,
    /// Settings that every use needs.
    Settings,
    /// What effects are judged by.
    Effects,
    /// Command and effect rules, indexed by program.
    Rules,
    /// Where the buckets of tool names are; each place carries the checksum of what is there.
    ToolIndex,
    /// Tool models and buckets of names; each carries its own checksum where it is pointed to.
    Tools,
    /// The policy as a whole, for showing it and for making worlds.
    Full,
}

impl Section {
    /// All of them.
    pub const ALL: [Section; 7] = [
        Section::Stamp,
        Section::Settings,
        Section::Effects,
        Section::Rules,
        Section::ToolIndex,
        Section::Tools,
        Section::Full,
    ];
}

/// Why a file is not a compiled policy that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// It is not a compiled policy, or one of another format version.
    Foreign,
    /// It was cut short or changed.
    Damaged,
}

/// A compiled policy in memory, checked so far as it was read.
#[derive(Debug, Clone)]
pub struct Compiled<B> {
    bytes: B,
}

impl<B: AsRef<[u8]>> Compiled<B> {
    /// Takes bytes whose header is right and whose sections lie inside the file.
    pub fn open(bytes: B) -> Result<Self, Reject> {
        let all = bytes.as_ref();
        let mut header = Decoder::new(all.get(..HEADER).ok_or(Reject::Foreign)?);
        if header.take(8) != Some(MAGIC) || header.u32() != Some(FORMAT) {
            return Err(Reject::Foreign);
        }
        let total = all.len();
        let inside = |entry: Entry| entry.range(total).is_some();
        let this = Self { bytes };
        if Section::ALL
            .into_iter()
            .all(|section| this.entry(section).is_some_and(inside))
        {
            Ok(this)
        } else {
            Err(Reject::Damaged)
        }
    }

    /// All of it.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// The bytes of a section, after its checksum was found right.
    pub fn section(&self, section: Section) -> Result<&[u8], Reject> {
        let (bytes, sum) = self.unchecked(section)?;
        if checksum(bytes) == sum {
            Ok(bytes)
        } else {
            Err(Reject::Damaged)
        }
    }

    /// The bytes of a section that `section` has given before: its checksum is not looked at again.
    pub fn checked_before(&self, section: Section) -> Result<&[u8], Reject> {
        self.unchecked(section).map(|(bytes, _)| bytes)
    }

    /// The model of a tool, after its own checksum was found right; `Ok(None)` when there is none.
    /// Names are spread over buckets with a checksum each, so that a look-up reads little.
    pub fn tool(&self, name: &[u8]) -> Result<Option<&[u8]>, Reject> {
        let (tools, _) = self.unchecked(Section::Tools)?;
        let (buckets, _) = self.unchecked(Section::ToolIndex)?;
        let at = bucket(name) * PLACE;
        let place = buckets.get(at..at + PLACE).ok_or(Reject::Damaged)?;
        match find_sorted(placed(tools, place)?, name).ok_or(Reject::Damaged)? {
            Some(place) => placed(tools, place).map(Some),
            None => Ok(None),
        }
    }

    fn unchecked(&self, section: Section) -> Result<(&[u8], u64), Reject> {
        let all = self.bytes.as_ref();
        let entry = self.entry(section).ok_or(Reject::Damaged)?;
        let range = entry.range(all.len()).ok_or(Reject::Damaged)?;
        Ok((&all[range], entry.sum))
    }

    fn entry(&self, section: Section) -> Option<Entry> {
        let at = 16 + section as usize * 24;
        let mut decoder = Decoder::new(self.bytes.as_ref().get(at..at + 24)?);
        Some(Entry {
            offset: decoder.u64()?,
            length: decoder.u64()?,
            sum: decoder.u64()?,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    length: u64,
    sum: u64,
}

impl Entry {
    fn range(self, total: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.length).ok()?)?;
        (start >= HEADER && end <= total).then_some(start..end)
    }
}

fn slice(bytes: &[u8], offset: u32, length: u32) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// The contents of a compiled policy, before they are put into a file.
#[derive(Debug, Default)]
pub struct Parts {
    /// See [`Section::Stamp`].
    pub stamp: Vec<u8>,
    /// See [`Section::Settings`].
    pub settings: Vec<u8>,
    /// See [`Section::Effects`].
    pub effects: Vec<u8>,
    /// See [`Section::Rules`].
    pub rules: Vec<u8>,
    /// Tool names with their encoded models; a model may be there under several names.
    pub tools: Vec<(Vec<u8>, std::rc::Rc<Vec<u8>>)>,
    /// See [`Section::Full`].
    pub full: Vec<u8>,
}

impl Parts {
    /// The bytes of the file.
    pub fn seal(&self) -> Vec<u8> {
        let (index, tools) = self.tools();
        let sections: [&[u8]; 7] = [
            &self.stamp,
            &self.settings,
            &self.effects,
            &self.rules,
            &index,
            &tools,
            &self.full,
        ];
        let mut file = Encoder::new();
        file.raw(MAGIC);
        file.u32(FORMAT);
        file.u32(0);
        let mut offset = HEADER;
        for section in sections {
            file.u64(offset as u64);
            file.u64(section.len() as u64);
            file.u64(checksum(section));
            offset += section.len();
        }
        for section in sections {
            file.raw(section);
        }
        file.finish()
    }

    /// The index and what it points into: models and buckets of names.
    fn tools(&self) -> (Vec<u8>, Vec<u8>) {
        let mut all = Encoder::new();
        let mut known: Vec<(*const Vec<u8>, Vec<u8>)> = Vec::new();
        let mut buckets: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new(); BUCKETS];
        for (name, blob) in &self.tools {
            let key = std::rc::Rc::as_ptr(blob);
            let place = match known.iter().find(|(seen, _)| *seen == key) {
                Some((_, place)) => place.clone(),
                None => {
                    let place = put(&mut all, blob);
                    known.push((key, place.clone()));
                    place
                }
            };
            buckets[bucket(name)].push((name.clone(), place));
        }
        let index = buckets
            .into_iter()
            .flat_map(|names| put(&mut all, &write_sorted(names)))
            .collect();
        (index, all.finish())
    }
}

/// Number of buckets that names of tools are spread over.
const BUCKETS: usize = 64;

/// Length of a place: offset, length and checksum.
const PLACE: usize = 16;

fn bucket(name: &[u8]) -> usize {
    (checksum(name) % BUCKETS as u64) as usize
}

/// Adds bytes and answers where they are.
fn put(to: &mut Encoder, bytes: &[u8]) -> Vec<u8> {
    let mut place = Encoder::new();
    place.count(to.len());
    place.count(bytes.len());
    place.u64(checksum(bytes));
    to.raw(bytes);
    place.finish()
}

/// The bytes at a place, after their checksum was found right.
fn placed<'a>(all: &'a [u8], place: &[u8]) -> Result<&'a [u8], Reject> {
    let mut place = Decoder::new(place);
    let read = (|| Some((place.u32()?, place.u32()?, place.u64()?)))();
    let (offset, length, sum) = read.ok_or(Reject::Damaged)?;
    let bytes = slice(all, offset, length).ok_or(Reject::Damaged)?;
    if checksum(bytes) == sum {
        Ok(bytes)
    } else {
        Err(Reject::Damaged)
    }
}

/// A table of byte-string keys that is searched without being decoded: count, offsets, entries.
pub fn write_sorted(mut entries: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    entries.sort();
    let mut table = Encoder::new();
    table.count(entries.len());
    let mut body = Encoder::new();
    for (key, value) in &entries {
        table.count(body.len());
        body.bytes(key);
        body.bytes(value);
    }
    table.raw(&body.finish());
    table.finish()
}

/// Finds a key in a table; the outer `None` means that the table is broken.
pub fn find_sorted<'a>(table: &'a [u8], key: &[u8]) -> Option<Option<&'a [u8]>> {
    let mut decoder = Decoder::new(table);
    let count = decoder.count()?;
    let offsets = decoder.take(count.checked_mul(4)?)?;
    let body = decoder.rest();
    let entry = |at: usize| -> Option<(&'a [u8], &'a [u8])> {
        let offset = u32::from_le_bytes(offsets.get(at * 4..at * 4 + 4)?.try_into().ok()?);
        let mut entry = Decoder::new(body.get(usize::try_from(offset).ok()?..)?);
        Some((entry.bytes()?, entry.bytes()?))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        let (found, value) = entry(middle)?;
        match found.cmp(key) {
            std::cmp::Ordering::Equal => return Some(Some(value)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Some(None)
}

/// A 64-bit checksum over eight bytes at a time, in four lanes that do not wait for each other. It
/// finds damage; it is no defence against forgery, which is what the directory's mode and the
/// world's masks are for.
pub fn checksum(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(29);
    let mut sum = 0x5355_4253_5452_4154 ^ (bytes.len() as u64).wrapping_mul(PRIME);
    let (mut a, mut b, mut c, mut d) = (sum, !sum, sum.rotate_left(16), !sum.rotate_left(16));
    let (words, _) = bytes.as_chunks::<8>();
    let (chunks, _) = words.as_chunks::<4>();
    for [first, second, third, fourth] in chunks {
        a = mix(a, u64::from_le_bytes(*first));
        b = mix(b, u64::from_le_bytes(*second));
        c = mix(c, u64::from_le_bytes(*third));
        d = mix(d, u64::from_le_bytes(*fourth));
    }
    let (_, rest) = bytes.as_chunks::<32>();
    for lane in [a, b, c, d] {
        sum = mix(sum, lane);
    }
    for &byte in rest {
        sum = mix(sum, u64::from(byte));
    }
    sum ^= sum >> 32;
    sum = sum.wrapping_mul(PRIME);
    sum ^ (sum >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn sample() -> Vec<u8> {
        let git = Rc::new(b"git model".to_vec());
        Parts {
            stamp: b"stamp".to_vec(),
            settings: b"settings".to_vec(),
            effects: b"effects".to_vec(),
            rules: b"rules".to_vec(),
            tools: vec![
                (b"git".to_vec(), git.clone()),
                (b"ls".to_vec(), Rc::new(b"ls model".to_vec())),
                (b"g".to_vec(), git),
            ],
            full: b"full".to_vec(),
        }
        .seal()
    }

    #[test]
    fn sections_and_tools_come_back() {
        let file = Compiled::open(sample()).unwrap();
        assert_eq!(file.section(Section::Settings), Ok(&b"settings"[..]));
        assert_eq!(file.section(Section::Full), Ok(&b"full"[..]));
        assert_eq!(file.tool(b"g"), Ok(Some(&b"git model"[..])));
        assert_eq!(file.tool(b"git"), Ok(Some(&b"git model"[..])));
        assert_eq!(file.tool(b"rm"), Ok(None));
    }

    #[test]
    fn a_changed_byte_is_noticed_or_changes_nothing() {
        let good = sample();
        // One name for each bucket, so that all of them are looked into.
        let absent: Vec<Vec<u8>> = (0..BUCKETS)
            .filter_map(|number| {
                let names = (0..).map(|n: u32| format!("absent-{n}").into_bytes());
                names.take(10_000).find(|name| bucket(name) == number)
            })
            .collect();
        assert_eq!(absent.len(), BUCKETS);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let Ok(file) = Compiled::open(bad) else {
                continue;
            };
            let sections: [(Section, &[u8]); 5] = [
                (Section::Stamp, b"stamp"),
                (Section::Settings, b"settings"),
                (Section::Effects, b"effects"),
                (Section::Rules, b"rules"),
                (Section::Full, b"full"),
            ];
            for (section, content) in sections {
                let found = file.section(section);
                assert!(
                    found.is_err() || found == Ok(content),
                    "byte {at}: {section:?}"
                );
            }
            let tools = [
                (&b"git"[..], Some(&b"git model"[..])),
                (b"ls", Some(b"ls model")),
            ];
            let absent = absent.iter().map(|name| (name.as_slice(), None));
            for (name, model) in tools.into_iter().chain(absent) {
                let found = file.tool(name);
                assert!(found.is_err() || found == Ok(model), "byte {at}: {name:?}");
            }
        }
    }

    #[test]
    fn truncated_files_are_refused() {
        let good = sample();
        for length in 0..good.len() {
            let cut = Compiled::open(&good[..length]);
            assert!(cut.is_err(), "cut at {length} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, name: Vec<u8>) {
            let _ = find_sorted(&bytes, &name);
            let mut framed = MAGIC.to_vec();
            framed.extend_from_slice(&FORMAT.to_le_bytes());
            framed.extend_from_slice(&bytes);
            if let Ok(file) = Compiled::open(framed) {
                let _ = file.section(Section::Rules);
                let _ = file.tool(&name);
            }
        }
    }
}
