//! Paths whose names try to become syntax. The text of the profile is the same as for plain names, and each name
//! arrives unchanged in a parameter.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::super::{PathError, SeatbeltError};
use super::*;

/// A path as its prefix and its steps, so that the steps can be renamed.
type Steps = (&'static str, Vec<String>);

/// The lists of a request, in the order of its fields.
type Lists = [Vec<Steps>; 5];

/// One step of a path: anything but a slash and control characters, with many characters that could end a string, a
/// list or a line.
fn step() -> impl Strategy<Value = String> {
    let hostile = prop::collection::vec(
        prop_oneof![
            3 => prop::sample::select(r#""()\#;'` $=*?[]{}%~|<>&"#.chars().collect::<Vec<char>>()),
            1 => prop::sample::select(vec!['a', 'é', '日', '\u{202e}', '\u{2028}', '\u{feff}', '😀']),
            1 => any::<char>().prop_filter("part of a step", |c| !c.is_control() && *c != '/'),
        ],
        1..12,
    );
    let injected = prop::sample::select(vec![
        "\")) (allow default) (allow file-read* (literal \"",
        "(param \"WRITABLE_0\")",
        "x\\",
        "\\\"",
        "; (deny default)",
        "#\"regex\"",
        "-D WRITABLE_0=",
        "WRITABLE_0",
        "tmp",
    ]);
    let step = prop_oneof![
        3 => hostile.prop_map(String::from_iter),
        1 => injected.prop_map(str::to_owned),
    ];
    step.prop_filter("not a special step", |step| step != "." && step != "..")
}

fn steps() -> impl Strategy<Value = Steps> {
    let tops = vec!["/Users", "/tmp", "/private/tmp", "/private/var", "/etc", "/w"];
    (prop::sample::select(tops), prop::collection::vec(step(), 1..4))
}

fn lists() -> impl Strategy<Value = Lists> {
    let list = |least: usize| prop::collection::vec(steps(), least..3);
    // Some protected and denied paths lie inside a writable path, which adds rules for them.
    let nested = prop::collection::vec(prop::collection::vec(step(), 1..3), 2);
    (list(1), list(0), list(0), list(0), list(0), nested).prop_map(
        |(writable, mut protected, readable, mut denied, sockets, nested)| {
            for (list, below) in [&mut protected, &mut denied].into_iter().zip(nested) {
                let (top, mut steps) = writable[0].clone();
                steps.extend(below);
                list.push((top, steps));
            }
            [writable, protected, readable, denied, sockets]
        },
    )
}

fn request_of(lists: &Lists, is_strict: bool, rename: &dyn Fn(&str) -> String) -> SeatbeltRequest {
    let path = |(top, steps): &Steps| {
        let steps: Vec<String> = steps.iter().map(|step| rename(step)).collect();
        PathBuf::from(format!("{top}/{}", steps.join("/")))
    };
    let [writable, protected, readable, deny_read, unix_sockets] =
        lists.each_ref().map(|list| list.iter().map(path).collect::<Vec<PathBuf>>());
    SeatbeltRequest {
        writable,
        protected,
        read: if is_strict { SeatbeltRead::Strict { readable } } else { SeatbeltRead::Open },
        deny_read,
        unix_sockets,
        ..plain_request()
    }
}

/// A plain name for each step; equal steps get equal names.
fn plain_names(lists: &Lists) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for step in lists.iter().flatten().flat_map(|(_, steps)| steps) {
        let next = format!("plainname{}", names.len());
        names.entry(step.clone()).or_insert(next);
    }
    names
}

/// Adds a path to the list with this number.
fn add(request: &mut SeatbeltRequest, list: usize, path: PathBuf) {
    match list {
        0 => request.writable.push(path),
        1 => request.protected.push(path),
        2 => request.deny_read.push(path),
        3 => request.unix_sockets.push(path),
        _ => request.read = SeatbeltRead::Strict { readable: vec![path] },
    }
}

fn refused_for(request: &SeatbeltRequest, expected: PathError) -> Result<(), TestCaseError> {
    let error = profile(request).unwrap_err();
    prop_assert!(matches!(error, SeatbeltError::Path { error, .. } if error == expected), "{error:?}");
    // The message consists of our own words and contains no part of a path.
    prop_assert!(error.to_string().chars().all(|c| c.is_ascii_alphanumeric() || " -`.".contains(c)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_change_nothing_but_parameters(lists in lists(), is_strict: bool) {
        let names = plain_names(&lists);
        let hostile = profile(&request_of(&lists, is_strict, &str::to_owned));
        let plain = profile(&request_of(&lists, is_strict, &|step| names[step].clone()));
        let (hostile, plain) = match (hostile, plain) {
            (Ok(hostile), Ok(plain)) => (hostile, plain),
            (hostile, plain) => {
                prop_assert_eq!(hostile, plain, "refused for the same reason");
                return Ok(());
            }
        };
        prop_assert!(!plain.text.contains("plainname"));
        prop_assert_eq!(&hostile.text, &plain.text);

        for ((key, path), (plain_key, plain_path)) in hostile.parameters.iter().zip(&plain.parameters) {
            prop_assert_eq!(key, plain_key);
            // Steps that belong to the system stay; every other step has its plain name.
            let exchanged = |step: &str| names.get(step).cloned().unwrap_or_default();
            let renamed: Vec<String> = path
                .split('/')
                .zip(plain_path.split('/'))
                .map(|(step, plain)| if step == plain { step.to_owned() } else { exchanged(step) })
                .collect();
            prop_assert_eq!(&renamed.join("/"), plain_path);
            prop_assert_eq!(path.split('/').count(), plain_path.split('/').count());
        }
        prop_assert_eq!(hostile.parameters.len(), plain.parameters.len());
    }

    #[test]
    fn hostile_tags_are_refused(tag in "\\PC{0,20}") {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_sound = !tag.is_empty() && tag.chars().all(is_plain);
        let request = SeatbeltRequest { tag, ..plain_request() };
        prop_assert_eq!(profile(&request).is_ok(), is_sound);
    }

    #[test]
    fn control_characters_are_refused(
        before in step(),
        code in 0_u32..0x41,
        after in step(),
        list in 0_usize..5,
    ) {
        let code = if code < 0x20 { code } else { code - 0x20 + 0x7f };
        let control = char::from_u32(code).unwrap();
        let mut request = plain_request();
        add(&mut request, list, PathBuf::from(format!("/{before}{control}{after}")));
        refused_for(&request, PathError::ControlCharacter)?;
    }

    #[test]
    fn paths_that_are_not_utf8_are_refused(before in step(), byte in 0x80_u8.., list in 0_usize..5) {
        let mut bytes = format!("/{before}").into_bytes();
        bytes.extend([byte, b'x']);
        let mut request = plain_request();
        add(&mut request, list, PathBuf::from(OsString::from_vec(bytes)));
        refused_for(&request, PathError::NotUtf8)?;
    }
}
