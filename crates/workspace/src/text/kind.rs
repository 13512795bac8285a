//! Recognises the kind of a file by its first bytes.

use super::decode::FileText;

/// Bytes of a file that are examined to tell text from other data.
const HEAD: usize = 8 * 1024;

/// The kind of a file's contents. SVG is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Text,
    /// Holds the MIME type, like the others below.
    Image(&'static str),
    Audio(&'static str),
    Pdf,
    Archive(&'static str),
    Executable,
    Binary,
}

/// The first bytes of known formats.
const SIGNATURES: [(&[u8], FileKind); 31] = [
    (b"\x89PNG\r\n\x1A\n", FileKind::Image("image/png")),
    (b"\xFF\xD8\xFF", FileKind::Image("image/jpeg")),
    (b"GIF87a", FileKind::Image("image/gif")),
    (b"GIF89a", FileKind::Image("image/gif")),
    (b"II*\0", FileKind::Image("image/tiff")),
    (b"MM\0*", FileKind::Image("image/tiff")),
    (b"\0\0\x01\0", FileKind::Image("image/x-icon")),
    (b"ID3", FileKind::Audio("audio/mpeg")),
    (b"\xFF\xFB", FileKind::Audio("audio/mpeg")),
    (b"\xFF\xF3", FileKind::Audio("audio/mpeg")),
    (b"\xFF\xF2", FileKind::Audio("audio/mpeg")),
    (b"OggS", FileKind::Audio("audio/ogg")),
    (b"fLaC", FileKind::Audio("audio/flac")),
    (b"%PDF-", FileKind::Pdf),
    (b"PK\x03\x04", FileKind::Archive("application/zip")),
    (b"PK\x05\x06", FileKind::Archive("application/zip")),
    (b"\x1F\x8B", FileKind::Archive("application/gzip")),
    (b"BZh", FileKind::Archive("application/x-bzip2")),
    (b"\xFD7zXZ\0", FileKind::Archive("application/x-xz")),
    (b"\x28\xB5\x2F\xFD", FileKind::Archive("application/zstd")),
    (b"7z\xBC\xAF\x27\x1C", FileKind::Archive("application/x-7z-compressed")),
    (b"Rar!\x1A\x07", FileKind::Archive("application/vnd.rar")),
    (b"!<arch>\n", FileKind::Archive("application/x-archive")),
    (b"\x7FELF", FileKind::Executable),
    (b"\0asm", FileKind::Executable),
    (b"\xCE\xFA\xED\xFE", FileKind::Executable),
    (b"\xCF\xFA\xED\xFE", FileKind::Executable),
    (b"\xFE\xED\xFA\xCE", FileKind::Executable),
    (b"\xFE\xED\xFA\xCF", FileKind::Executable),
    (b"\xCA\xFE\xBA\xBE", FileKind::Executable),
    (b"SQLite format 3\0", FileKind::Binary),
];

impl FileKind {
    /// Recognises a kind by the beginning of a file; a few kilobytes are enough.
    pub fn of(head: &[u8]) -> Self {
        let head = &head[..head.len().min(HEAD)];
        let signed = SIGNATURES.iter().find(|(signature, _)| head.starts_with(signature));
        match signed.map(|(_, kind)| *kind).or_else(|| in_container(head)) {
            // A text may begin with the letters of a short signature, such as a note on `ID3 tags`.
            Some(_) if is_text(head) && !head.starts_with(b"%PDF-") => Self::Text,
            Some(kind) => kind,
            None if is_text(head) => Self::Text,
            None => Self::Binary,
        }
    }

    pub fn mime(&self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Image(mime) | Self::Audio(mime) | Self::Archive(mime) => mime,
            Self::Pdf => "application/pdf",
            Self::Executable | Self::Binary => "application/octet-stream",
        }
    }

    /// Completes the sentence "it is …".
    pub fn describe(&self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Image(mime) => format!("an image ({mime})"),
            Self::Audio(mime) => format!("a sound file ({mime})"),
            Self::Pdf => "a PDF document".into(),
            Self::Archive(mime) => format!("an archive or compressed file ({mime})"),
            Self::Executable => "an executable or library".into(),
            Self::Binary => "binary data".into(),
        }
    }
}

/// Formats whose signature is not at the very start.
fn in_container(head: &[u8]) -> Option<FileKind> {
    let at = |offset: usize, length: usize| head.get(offset..offset + length);
    match (at(0, 4), at(4, 4), at(8, 4)) {
        (Some(b"RIFF"), _, Some(b"WEBP")) => return Some(FileKind::Image("image/webp")),
        (Some(b"RIFF"), _, Some(b"WAVE")) => return Some(FileKind::Audio("audio/wav")),
        (_, Some(b"ftyp"), Some(b"avif" | b"avis")) => return Some(FileKind::Image("image/avif")),
        (_, Some(b"ftyp"), Some(b"heic" | b"heix" | b"mif1" | b"msf1")) => {
            return Some(FileKind::Image("image/heic"));
        }
        _ => {}
    }
    if head.starts_with(b"BM") && at(6, 4) == Some(&[0; 4]) {
        return Some(FileKind::Image("image/bmp"));
    }
    if at(257, 5) == Some(b"ustar") {
        return Some(FileKind::Archive("application/x-tar"));
    }
    (head.starts_with(b"MZ") && head.contains(&0)).then_some(FileKind::Executable)
}

/// Whether the beginning of a file is text. It may end within a character.
fn is_text(head: &[u8]) -> bool {
    let whole = head.len() < HEAD;
    let shortest = if whole { head.len() } else { head.len() - 3 };
    (shortest..=head.len()).any(|end| FileText::decode(&head[..end]).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_first_bytes() {
        let cases: [(&[u8], &str); 15] = [
            (b"\x89PNG\r\n\x1A\n\0\0", "image/png"),
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF\0", "image/jpeg"),
            (b"GIF89a\x01\0\x01\0", "image/gif"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
            (b"BM\x36\0\0\0\0\0\0\0\x36\0", "image/bmp"),
            (b"II*\0\x08\0\0\0", "image/tiff"),
            (b"\0\0\x01\0\x01\0", "image/x-icon"),
            (b"\0\0\0\x1Cftypavif\0\0\0\0", "image/avif"),
            (b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic"),
            (b"ID3\x04\0\0\0\0\0\x00", "audio/mpeg"),
            (b"fLaC\0\0\0\x22", "audio/flac"),
            (b"OggS\0\x02\0\0", "audio/ogg"),
            (b"PK\x03\x04\x14\0", "application/zip"),
            (b"\x1F\x8B\x08\0\0\0", "application/gzip"),
        ];
        for (head, mime) in cases {
            assert_eq!(FileKind::of(head).mime(), mime, "{head:?}");
        }
        assert_eq!(FileKind::of(b"%PDF-1.7\n"), FileKind::Pdf);
        assert_eq!(FileKind::of(b"\x7FELF\x02\x01\x01\0"), FileKind::Executable);
        assert_eq!(FileKind::of(b"MZ\x90\0\x03\0"), FileKind::Executable);
        assert_eq!(FileKind::of(b"\x01\x02\0\x03"), FileKind::Binary);
    }

    #[test]
    fn text_is_text_even_if_it_begins_like_something_else() {
        for text in ["", "<svg xmlns='http://www.w3.org/2000/svg'/>", "ID3 tags", "BZh is bzip2", "MZ", "BM"]
        {
            assert_eq!(FileKind::of(text.as_bytes()), FileKind::Text, "{text}");
        }
        assert_eq!(FileKind::of(b"\xFF\xFEa\0"), FileKind::Text);
    }

    #[test]
    fn a_head_that_ends_within_a_character_is_still_text() {
        let text = format!("a{}", "\u{1F600}".repeat(HEAD));
        assert_eq!(FileKind::of(text.as_bytes()), FileKind::Text);
    }

    #[test]
    fn a_kind_is_described_in_words() {
        assert_eq!(FileKind::Image("image/png").describe(), "an image (image/png)");
        assert_eq!(FileKind::Binary.describe(), "binary data");
    }
}
