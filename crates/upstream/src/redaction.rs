//! Takes the secrets that were filled in for a server out of what it says about itself: stderr, errors, why it ended.
//!
//! A secret is found as it is, in JSON, percent-encoded and in base64, wherever it begins there. Of a secret with several
//! lines, such as a key, each line counts. A secret of fewer than four bytes would be found everywhere, and is not
//! looked for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// Shorter texts occur by chance.
const SHORTEST: usize = 4;

/// Finds the secrets of one server. Without any it costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Redaction(Option<Arc<Secrets>>);

#[derive(Debug)]
struct Secrets {
    forms: AhoCorasick,
    longest: usize,
}

impl Redaction {
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets {
            add_forms(secret, &mut forms);
            if secret.contains('\n') {
                secret.lines().for_each(|line| add_forms(line.trim(), &mut forms));
            }
        }
        let longest = forms.iter().map(Vec::len).max().unwrap_or_default();
        // Longer forms contain shorter ones, whose rest would stay.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms);
        Self(built.ok().filter(|_| longest > 0).map(|forms| Arc::new(Secrets { forms, longest })))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.0 {
            Some(secrets) if secrets.forms.is_match(bytes) => {
                let kinds = vec![REDACTED; secrets.forms.patterns_len()];
                secrets.forms.replace_all_bytes(bytes, &kinds).into()
            }
            _ => bytes.into(),
        }
    }

    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// Takes secrets out of the texts of a JSON value, however they are escaped there. Returns true if there were any. A
    /// number that is a secret becomes a text.
    pub fn value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.bytes(text.as_bytes()) {
                Cow::Owned(redacted) => {
                    *text = String::from_utf8_lossy(&redacted).into_owned();
                    true
                }
                Cow::Borrowed(_) => false,
            },
            Value::Number(number) if self.text(&number.to_string()) == REDACTED => {
                *value = REDACTED.into();
                true
            }
            // Each is looked at, whatever was found before.
            Value::Array(items) => {
                items.iter_mut().filter_map(|item| self.value(item).then_some(())).count() > 0
            }
            Value::Object(members) => {
                let mut had_some = false;
                for (name, mut value) in std::mem::take(members) {
                    let shown = self.text(&name);
                    had_some |= self.value(&mut value) || shown != name;
                    members.insert(shown, value);
                }
                had_some
            }
            _ => false,
        }
    }

    /// The same as `bytes` for the beginning of a text that was cut off. Its last bytes may begin a secret, so they go.
    pub fn beginning<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(secrets) = &self.0 else { return bytes.into() };
        let mut redacted = self.bytes(bytes).into_owned();
        redacted.truncate(redacted.len().saturating_sub(secrets.longest));
        redacted.into()
    }
}

/// Adds the forms in which a secret may appear.
fn add_forms(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    if secret.len() < SHORTEST {
        return;
    }
    let quoted = serde_json::to_string(secret).unwrap_or_default();
    let in_json = quoted.trim_matches('"').to_owned();
    let percent = [true, false].map(|is_upper| percent_encoded(secret, is_upper));
    for form in [secret.to_owned(), in_json].into_iter().chain(percent.into_iter().flatten()) {
        forms.insert(form.into_bytes());
    }
    for before in 0..3 {
        forms.extend(in_base64(secret.as_bytes(), before));
    }
}

/// Percent-encoded, with and without `+` for spaces and with `/` left alone or not.
fn percent_encoded(secret: &str, is_upper: bool) -> Vec<String> {
    let encoded = |plain: &dyn Fn(u8) -> bool, space: &str| -> String {
        secret
            .bytes()
            .map(|byte| match byte {
                b' ' if !space.is_empty() => space.to_owned(),
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain(byte) => {
                    char::from(byte).to_string()
                }
                byte if is_upper => format!("%{byte:02X}"),
                byte => format!("%{byte:02x}"),
            })
            .collect()
    };
    let slash = |byte| byte == b'/';
    // What `encodeURIComponent` leaves alone.
    let marks = |byte| b"!*'()".contains(&byte);
    vec![encoded(&|_| false, ""), encoded(&|_| false, "+"), encoded(&slash, ""), encoded(&marks, "")]
}

/// The characters that a secret has for certain in the base64 of a text in which `before` bytes precede it, modulo three.
fn in_base64(secret: &[u8], before: usize) -> impl Iterator<Item = Vec<u8>> {
    let padded = [&vec![0; before][..], secret].concat();
    // The first characters depend on what precedes the secret, the last one on what follows it.
    let first = (before * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    let engines = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD];
    let texts = engines.map(|engine| engine.encode(&padded).into_bytes());
    texts
        .into_iter()
        .filter_map(move |text| text.get(first..last).map(<[u8]>::to_vec))
        .filter(|it| it.len() >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr3t/ä+token value";

    fn redact(text: &str) -> String {
        Redaction::of([SECRET]).text(text)
    }

    #[test]
    fn a_secret_is_found_in_every_form() {
        for text in [
            SECRET.to_owned(),
            "s3cr3t%2F%C3%A4%2Btoken%20value".to_owned(),
            "s3cr3t%2f%c3%a4%2btoken%20value".to_owned(),
            "s3cr3t%2F%C3%A4%2Btoken+value".to_owned(),
            "s3cr3t/%C3%A4%2Btoken%20value".to_owned(),
        ] {
            assert_eq!(redact(&format!("a {text} b {text}")), "a [redacted] b [redacted]", "{text}");
        }
        let quoted = serde_json::json!({"x": "say \"it\"\\now"}).to_string();
        assert!(!Redaction::of(["say \"it\"\\now"]).text(&quoted).contains("say"));
    }

    #[test]
    fn a_secret_is_found_in_base64_wherever_it_begins() {
        for before in 0..6 {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let plain = format!("{}{SECRET}:after", "x".repeat(before));
                let encoded = engine.encode(&plain);
                let redacted = redact(&encoded);
                assert!(redacted.contains(REDACTED), "{before}: {redacted}");
                // At most the characters that share bits with what surrounds the secret are left.
                let around = engine.encode("x".repeat(before)).len() + engine.encode(":after").len() + 3;
                assert!(redacted.len() <= around + REDACTED.len(), "{before}: {redacted}");
            }
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", "nothing to see", "s3cr3t", "token"] {
            assert_eq!(redact(text), text);
        }
        assert!(Redaction::of([]).is_empty() && Redaction::of(["abc"]).is_empty(), "too short to be found");
        assert_eq!(Redaction::of(["abc"]).text("abc"), "abc");
    }

    #[test]
    fn texts_of_json_are_redacted_however_they_are_escaped_and_it_stays_json() {
        let redaction = Redaction::of([SECRET, "1234"]);
        let text = r#"{"s3cr3t\/\u00e4+token value": ["s\u0033cr3t/ä+token value", 1234, 12345, true, {"a": "plain"}]}"#;
        let mut value: Value = serde_json::from_str(text).unwrap();
        assert!(redaction.value(&mut value));
        assert_eq!(
            value.to_string(),
            r#"{"[redacted]":["[redacted]","[redacted]",12345,true,{"a":"plain"}]}"#
        );
        assert!(!redaction.value(&mut value), "nothing is left");
    }

    #[test]
    fn each_line_of_a_key_counts() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END KEY-----\n";
        let redacted = Redaction::of([key]).text("read MIIEvQIBADANBg then kqhkiG9w0BAQ");
        assert_eq!(redacted, "read [redacted] then [redacted]");
    }

    #[test]
    fn a_text_that_was_cut_off_ends_before_a_secret_could_begin() {
        let redaction = Redaction::of([SECRET]);
        let text = format!("{} s3cr3t/ä+tok", "x".repeat(200));
        let kept = redaction.beginning(text.as_bytes()).into_owned();
        assert!(kept.starts_with(b"xxxx") && !kept.ends_with(b"tok"));
        assert!(!String::from_utf8_lossy(&kept).contains("s3cr3t"));
        assert_eq!(Redaction::default().beginning(b"whole"), Cow::Borrowed(&b"whole"[..]));
    }
}
