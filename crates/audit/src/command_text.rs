//! Shell commands as the log shows them: with what looks like a secret taken out.
//!
//! A pattern cannot find every secret. What it takes out are values of variables, options and headers whose name says
//! so, passwords in URLs, and texts with the known beginnings of tokens.

const TAKEN_OUT: &str = "[redacted]";

/// Parts of names whose values are secrets.
const SECRET_NAMES: &[&str] =
    &["token", "secret", "passw", "passphrase", "apikey", "api_key", "api-key", "credential", "private_key"];

/// Ends of names whose values are secrets, where they are assigned by `=`.
const SECRET_ENDS: &[&str] = &["_key", "-key", "_pwd", "_pass", "_auth"];

/// Words of a header before its secret.
const SCHEMES: &[&str] = &["bearer", "basic", "token"];

/// How tokens of well-known services begin.
const TOKEN_BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
];

/// Shorter texts with such a beginning are words.
const SHORTEST_TOKEN: usize = 16;

/// The command without what looks like a secret.
pub fn redact_command(command: &str) -> String {
    let mut redacted = String::with_capacity(command.len());
    let mut rest = command;
    // Whether the word before says that this one is a secret.
    let mut is_announced = false;
    while !rest.is_empty() {
        let is_between = if is_announced { char::is_whitespace } else { is_separator };
        let between = rest.len() - rest.trim_start_matches(is_between).len();
        redacted.push_str(&rest[..between]);
        rest = &rest[between..];
        let word = &rest[..rest.find(is_separator).unwrap_or(rest.len())];
        let is_option = word.starts_with('-');
        if is_announced && !is_option && !is_scheme(word) {
            let length = value_length(rest);
            redacted.push_str(if length > 0 { TAKEN_OUT } else { "" });
            rest = &rest[length..];
            is_announced = false;
            continue;
        }
        if let Some(start) = start_of_secret(word) {
            redacted.push_str(&rest[..start]);
            let length = value_length(&rest[start..]);
            if length > 0 {
                redacted.push_str(TAKEN_OUT);
            }
            // `Authorization: Bearer …` has its value in the words that follow.
            is_announced = length == 0;
            rest = &rest[start + length..];
            continue;
        }
        is_announced = is_scheme(word) || (is_option && is_secret_name(word.trim_start_matches('-')));
        redacted.push_str(&in_word(word));
        rest = &rest[word.len()..];
    }
    redacted
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>' | '"' | '\'' | '`')
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "authorization" || SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Where the value starts in `NAME=value`, `--name=value` or `Name:value`, if the name says that it is a secret.
fn start_of_secret(word: &str) -> Option<usize> {
    let place = word.find(['=', ':'])?;
    let name = word[..place].trim_start_matches('-');
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let ends = name.to_ascii_lowercase();
    let is_assigned = word[place..].starts_with('=') && SECRET_ENDS.iter().any(|end| ends.ends_with(end));
    (is_secret_name(name) || is_assigned).then_some(place + 1)
}

/// How long the value at the beginning of the text is, with the quotes around it.
fn value_length(text: &str) -> usize {
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        _ => text.find(is_separator).unwrap_or(text.len()),
    }
}

/// The word without a password of a URL, or a token.
fn in_word(word: &str) -> String {
    if let Some((scheme, rest)) = word.split_once("://") {
        let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
        return match authority.rfind('@') {
            Some(end) => format!("{scheme}://{TAKEN_OUT}{}", &rest[end..]),
            None => word.to_owned(),
        };
    }
    let start = word.rfind(['=', ':', ',']).map_or(0, |place| place + 1);
    let value = &word[start..];
    let is_token = value.len() >= SHORTEST_TOKEN
        && TOKEN_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning));
    if is_token { format!("{}{TAKEN_OUT}", &word[..start]) } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_commands() {
        for (command, logged) in [
            ("API_TOKEN=abc123 ./deploy", "API_TOKEN=[redacted] ./deploy"),
            ("export DB_PASSWORD='a b; c' && run", "export DB_PASSWORD=[redacted] && run"),
            ("curl -H \"Authorization: Bearer abc.def\" x", "curl -H \"Authorization: Bearer [redacted]\" x"),
            ("curl -H 'X-Api-Key:abc' x", "curl -H 'X-Api-Key:[redacted]' x"),
            ("mysql --password hunter2 -u me", "mysql --password [redacted] -u me"),
            ("mysql --password=hunter2", "mysql --password=[redacted]"),
            ("mysql --password \"a b\" x", "mysql --password [redacted] x"),
            ("MYSQL_PWD=x mysql", "MYSQL_PWD=[redacted] mysql"),
            ("git clone https://me:pw@host/r.git", "git clone https://[redacted]@host/r.git"),
            ("echo ghp_0123456789abcdefghij", "echo [redacted]"),
            ("AWS_SECRET_ACCESS_KEY=\"x\"; aws s3 ls", "AWS_SECRET_ACCESS_KEY=[redacted]; aws s3 ls"),
        ] {
            assert_eq!(redact_command(command), logged);
        }
    }

    #[test]
    fn other_commands_are_logged_as_they_are() {
        for command in [
            "cargo test --workspace -- --nocapture",
            "for f in *.rs; do grep -n 'key: value' \"$f\"; done",
            "git log --author=me --format='%h %s' | head -5",
            "curl https://example.org/a?b=c",
            "  echo  ä && printf '%s\\n' \"a\nb\"",
            "sk-short",
            "",
        ] {
            assert_eq!(redact_command(command), command);
        }
    }
}
