//! The headers that repeat parts of a request, so that proxies in front of the server can route by them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use wire::{Request, method};

use super::annotations::Annotation;
use super::members::Members;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

const SENTINEL: (&str, &str) = ("=?base64?", "?=");
/// Larger integers differ between readers, so they are not put into a header.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The headers of a request without a name.
pub(super) fn of_method(method: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.extend(encoded(method).map(|value| (METHOD, value)));
    headers
}

/// The headers of a request of the caller.
pub(super) fn of_request(request: &Request, annotations: &[Annotation]) -> HeaderMap {
    let mut headers = of_method(&request.method);
    let name = match request.method.as_str() {
        method::TOOLS_CALL | method::PROMPTS_GET => request.name(),
        method::RESOURCES_READ => request.uri(),
        // From the extension that replaces the tasks of the caller's era.
        method::TASKS_GET | method::TASKS_CANCEL | "tasks/update" => request.task_id(),
        _ => None,
    };
    headers.extend(name.and_then(|name| encoded(&name)).map(|value| (NAME, value)));
    if annotations.is_empty() {
        return headers;
    }
    let params = request.params_text().and_then(Members::read);
    if let Some(arguments) = params.as_ref().and_then(|params| params.get("arguments")) {
        for annotation in annotations {
            let value = at(arguments, &annotation.path).and_then(as_header_text);
            let value = value.and_then(|text| encoded(&text));
            headers.extend(value.map(|value| (annotation.header.clone(), value)));
        }
    }
    headers
}

/// The text of the value at a path of keys.
fn at<'a>(object: &'a str, path: &[String]) -> Option<&'a str> {
    let mut text = object;
    for key in path {
        text = Members::read(text)?.into_borrowed(key)?;
    }
    Some(text)
}

/// The text of a string, number or boolean, spelled as every reader would. Returns `None` for other values.
fn as_header_text(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok(),
        b't' | b'f' => Some(json.to_owned()),
        b'-' | b'0'..=b'9' => {
            if let Ok(integer) = json.parse::<i64>() {
                return (integer.abs() <= MAX_SAFE_INTEGER).then(|| integer.to_string());
            }
            let number: f64 = json.parse().ok()?;
            #[allow(clippy::cast_precision_loss, reason = "the bound is the last one without a loss")]
            let is_safe =
                number.is_finite() && (number.fract() != 0.0 || number.abs() <= MAX_SAFE_INTEGER as f64);
            is_safe.then(|| number.to_string())
        }
        _ => None,
    }
}

/// A value as a header: plain if every reader decodes it to the same text, else in base64 between two marks.
fn encoded(value: &str) -> Option<HeaderValue> {
    let (before, after) = SENTINEL;
    let is_plain = !value.is_empty()
        && value.trim() == value
        && value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        && !(value.starts_with(before) && value.ends_with(after));
    if is_plain {
        return HeaderValue::from_str(value).ok();
    }
    HeaderValue::from_str(&format!("{before}{}{after}", BASE64_STANDARD.encode(value))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_a_header_cannot_hold_travels_in_base64() {
        let plain = ["add", "note://a b?c=1", "a\tb", "=?base64?", "~"];
        for value in plain {
            assert_eq!(encoded(value).unwrap(), value);
        }
        let hidden = [
            ("grüße", "=?base64?Z3LDvMOfZQ==?="),
            (" padded", "=?base64?IHBhZGRlZA==?="),
            ("a\nb", "=?base64?YQpi?="),
            ("", "=?base64??="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ];
        for (value, expected) in hidden {
            assert_eq!(encoded(value).unwrap(), expected, "{value:?}");
        }
    }

    #[test]
    fn only_what_all_readers_write_alike_becomes_a_header() {
        let texts = [
            (r#""a\u0062""#, Some("ab")),
            ("true", Some("true")),
            ("-42", Some("-42")),
            ("1.50", Some("1.5")),
            ("1e3", Some("1000")),
            ("9007199254740991", Some("9007199254740991")),
            ("9007199254740992", None),
            ("12345678901234567890123", None),
            ("1e400", None),
            ("null", None),
            ("{}", None),
            ("[1]", None),
        ];
        for (json, expected) in texts {
            assert_eq!(as_header_text(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_value_is_found_through_its_keys() {
        let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let object = r#"{"a":{"b":{"c":"deep"}},"a2":1}"#;
        assert_eq!(at(object, &path(&["a", "b", "c"])), Some("\"deep\""));
        assert_eq!(at(object, &path(&["a2", "b"])), None);
        assert_eq!(at(object, &path(&["x"])), None);
    }
}
