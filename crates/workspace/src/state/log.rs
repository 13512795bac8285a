//! Two files that hold entries one after the other. One is written; when most of it is out of date, what still counts is
//! copied to the other one, whose head is written last, so that a kill at any moment leaves one that is whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use super::entry::{Entry, Key};

/// Begins each file; the last digit is the version of the format.
const MAGIC: &[u8; 16] = b"ringfence state1";
/// Magic, generation, checksum.
const HEAD_BYTES: usize = 32;
const HEAD: u64 = HEAD_BYTES as u64;
/// Length and checksum before each entry.
const ENTRY_HEAD: usize = 12;
const CHECKSUM: usize = 8;
/// The longest entry: more than the longest file whose original is kept, or the largest object of a snapshot.
const MAX_ENTRY: usize = 17 * 1024 * 1024;
/// What counts at one time: originals and a snapshot of 16 MiB each, and commands.
const MAX_LIVE: u64 = 48 * 1024 * 1024;
/// Out-of-date bytes that are not worth a copy.
const SLACK: u64 = 1024 * 1024;
/// No file of ours is longer, so nothing beyond is read.
const MAX_FILE: u64 = 2 * MAX_LIVE + 2 * SLACK + MAX_ENTRY as u64;

#[derive(Debug)]
pub(super) struct Log {
    files: [File; 2],
    active: usize,
    generation: u64,
    /// Where the next entry goes. 0: not even the head was written.
    end: u64,
    /// Where the newest entry of each key lies.
    live: BTreeMap<Key, Place>,
    live_bytes: u64,
    /// The other file is damaged, and stays as it is until its place is needed.
    has_set_aside: bool,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    length: usize,
}

/// Where a file stopped making sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// 1 or 2.
    pub(super) file: usize,
    pub(super) at: u64,
    /// How many entries before it were read.
    pub(super) entries: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("there is more than may be kept")]
    Full,
}

/// One entry that was read.
enum Next {
    Entry(Entry, Vec<u8>),
    /// It begins with what is no JSON of ours, but nothing of it was changed.
    Unknown,
    End,
    /// It was being written when the writer was killed.
    CutOff,
    Damaged,
}

impl Log {
    /// Reads the newer file. `each` says what an entry is about, or that it is of no use.
    pub(super) fn open(
        files: [File; 2],
        each: &mut dyn FnMut(Entry, Vec<u8>) -> Option<Key>,
    ) -> Result<(Self, Option<Damage>), LogError> {
        let heads = [head_of(&files[0])?, head_of(&files[1])?];
        let active = usize::from(heads[1] > heads[0]);
        let lengths = [files[0].metadata()?.len(), files[1].metadata()?.len()];
        let mut log = Self {
            files,
            active,
            generation: heads[active].unwrap_or(0),
            end: 0,
            live: BTreeMap::new(),
            live_bytes: 0,
            has_set_aside: false,
        };
        if heads[active].is_none() {
            // A file without a head was never finished, unless it has become longer than one.
            let broken = lengths.iter().position(|length| *length > HEAD);
            let Some(broken) = broken else { return Ok((log, None)) };
            log.active = 1 - broken;
            log.has_set_aside = true;
            return Ok((log, Some(Damage { file: broken + 1, at: 0, entries: 0 })));
        }
        let damage = log.read_all(lengths[active], each)?;
        if damage.is_some() {
            log.has_set_aside = true;
            log.copy(true)?;
        }
        Ok((log, damage))
    }

    fn read_all(
        &mut self,
        length: u64,
        each: &mut dyn FnMut(Entry, Vec<u8>) -> Option<Key>,
    ) -> Result<Option<Damage>, LogError> {
        let (mut at, mut entries) = (HEAD, 0);
        loop {
            let (next, size) = read_entry(&self.files[self.active], at, length)?;
            match next {
                Next::Entry(entry, bytes) => {
                    entries += 1;
                    if let Some(key) = each(entry, bytes) {
                        self.set_live(key, Place { at, length: size });
                    }
                }
                // A newer version may have written it.
                Next::Unknown => entries += 1,
                Next::End | Next::CutOff => {
                    self.files[self.active].set_len(at)?;
                    self.end = at;
                    return Ok(None);
                }
                Next::Damaged => {
                    self.end = at;
                    return Ok(Some(Damage { file: self.active + 1, at, entries }));
                }
            }
            at += size as u64;
        }
    }

    /// Whether nothing was ever written.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    fn set_live(&mut self, key: Key, place: Place) {
        self.live_bytes += place.length as u64;
        if let Some(before) = self.live.insert(key, place) {
            self.live_bytes -= before.length as u64;
        }
    }

    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(place) = self.live.remove(key) {
            self.live_bytes -= place.length as u64;
        }
    }

    /// Writes an entry with the bytes of these parts.
    pub(super) fn append(&mut self, key: Key, entry: &Entry, parts: &[&[u8]]) -> Result<(), LogError> {
        let text = serde_json::to_vec(entry).map_err(io::Error::from)?;
        let length = text.len() + 1 + parts.iter().map(|part| part.len()).sum::<usize>();
        let is_full = self.live_bytes + length as u64 > MAX_LIVE || self.end + length as u64 > MAX_FILE;
        if length > MAX_ENTRY || is_full {
            return Err(LogError::Full);
        }
        let mut bytes = vec![0; ENTRY_HEAD];
        bytes.reserve_exact(length);
        bytes.extend_from_slice(&text);
        bytes.push(b'\n');
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let head = entry_head(&bytes[ENTRY_HEAD..]);
        bytes[..ENTRY_HEAD].copy_from_slice(&head);
        if self.end == 0 {
            self.files[self.active].set_len(0)?;
            self.generation += 1;
            write_head(&self.files[self.active], self.generation)?;
            self.end = HEAD;
        }
        let file = &self.files[self.active];
        if let Err(error) = file.write_all_at(&bytes, self.end) {
            // The next entry must not follow half of one.
            file.set_len(self.end)?;
            return Err(error.into());
        }
        self.set_live(key, Place { at: self.end, length: bytes.len() });
        self.end += bytes.len() as u64;
        if self.end > 2 * self.live_bytes + SLACK {
            self.copy(false)?;
        }
        Ok(())
    }

    /// Copies what counts to the other file, and goes on there. A file that is set aside keeps its contents.
    fn copy(&mut self, is_damaged: bool) -> Result<(), LogError> {
        let (from, to) = (&self.files[self.active], &self.files[1 - self.active]);
        to.set_len(0)?;
        let mut places: Vec<(&Key, Place)> = self.live.iter().map(|(key, place)| (key, *place)).collect();
        places.sort_by_key(|(_, place)| place.at);
        let (mut live, mut end) = (BTreeMap::new(), HEAD);
        for (key, place) in places {
            let mut bytes = vec![0; place.length];
            from.read_exact_at(&mut bytes, place.at)?;
            to.write_all_at(&bytes, end)?;
            live.insert(key.clone(), Place { at: end, ..place });
            end += place.length as u64;
        }
        write_head(to, self.generation + 1)?;
        if !is_damaged {
            // It takes room only.
            let _ = from.set_len(0);
        }
        self.has_set_aside = is_damaged;
        self.generation += 1;
        self.active = 1 - self.active;
        (self.live, self.end) = (live, end);
        Ok(())
    }

    /// Reads the entries with these keys again.
    pub(super) fn read(
        &self,
        is_wanted: impl Fn(&Key) -> bool,
        each: &mut dyn FnMut(Entry, Vec<u8>),
    ) -> Result<(), LogError> {
        for (_, place) in self.live.iter().filter(|(key, _)| is_wanted(key)) {
            if let (Next::Entry(entry, bytes), _) = read_entry(&self.files[self.active], place.at, self.end)?
            {
                each(entry, bytes);
            }
        }
        Ok(())
    }
}

/// Reads the entry at a place. Returns its length in the file, too.
fn read_entry(file: &File, at: u64, length: u64) -> io::Result<(Next, usize)> {
    let left = length.min(MAX_FILE).saturating_sub(at);
    if left == 0 {
        return Ok((if length > MAX_FILE { Next::Damaged } else { Next::End }, 0));
    }
    if left < ENTRY_HEAD as u64 {
        return Ok((Next::CutOff, 0));
    }
    let mut head = [0; ENTRY_HEAD];
    file.read_exact_at(&mut head, at)?;
    let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if size == 0 || size > MAX_ENTRY {
        return Ok((Next::Damaged, 0));
    }
    if (size + ENTRY_HEAD) as u64 > left {
        return Ok((Next::CutOff, 0));
    }
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, at + ENTRY_HEAD as u64)?;
    if head != entry_head(&bytes) {
        return Ok((Next::Damaged, 0));
    }
    let text = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(entry) = serde_json::from_slice(&bytes[..text]) else {
        return Ok((Next::Unknown, size + ENTRY_HEAD));
    };
    bytes.drain(..(text + 1).min(size));
    Ok((Next::Entry(entry, bytes), size + ENTRY_HEAD))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|place| digest[place])
}

fn entry_head(bytes: &[u8]) -> [u8; ENTRY_HEAD] {
    let mut head = [0; ENTRY_HEAD];
    // No entry is longer than `MAX_ENTRY`.
    head[..4].copy_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[4..].copy_from_slice(&checksum(bytes));
    head
}

/// The generation of a file with a sound head.
fn head_of(file: &File) -> io::Result<Option<u64>> {
    let mut head = [0; HEAD_BYTES];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (said, sum) = head.split_at(24);
    let generation = u64::from_le_bytes(std::array::from_fn(|place| said[16 + place]));
    // One that leaves none for later files is forged.
    let is_sound = said.starts_with(MAGIC) && sum == checksum(said) && generation < u64::MAX / 2;
    Ok(is_sound.then_some(generation))
}

fn write_head(file: &File, generation: u64) -> io::Result<()> {
    let mut head = [0; HEAD_BYTES];
    head[..16].copy_from_slice(MAGIC);
    head[16..24].copy_from_slice(&generation.to_le_bytes());
    let sum = checksum(&head[..24]);
    head[24..].copy_from_slice(&sum);
    file.write_all_at(&head, 0)
}
