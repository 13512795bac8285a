//! Text with placeholders: `{workingDirectory}`, `{sessionId}`, `{instanceId}`, `{storage}` and `${VARIABLE}`. Values
//! are inserted as they are, even if they look like placeholders.
//!
//! The spellings of other clients are understood, too: `${workspaceFolder}`, `${env:NAME}`, `${NAME:-default}`.

use std::ffi::{OsStr, OsString};
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template(pub Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    Text(String),
    WorkingDirectory,
    SessionId,
    InstanceId,
    Storage,
    /// `${NAME}`: a secret of the principal or the workspace, or a variable of the gateway's environment.
    Variable(String),
    /// `${NAME:-default}`: the same, with a default if it is not set.
    VariableOr {
        name: String,
        default: String,
    },
}

/// The values that a session fills in.
pub struct Values<'a> {
    pub working_directory: Option<&'a OsStr>,
    pub session_id: &'a str,
    pub instance_id: &'a str,
    pub storage: Option<&'a OsStr>,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Values<'_> {
    /// Without any variable's value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").field("working_directory", &self.working_directory).finish_non_exhaustive()
    }
}

/// The placeholders in braces.
const PLACEHOLDERS: &[(&str, Piece)] = &[
    ("workingDirectory", Piece::WorkingDirectory),
    ("sessionId", Piece::SessionId),
    ("instanceId", Piece::InstanceId),
    ("storage", Piece::Storage),
];

/// A longer name cannot be a misspelled placeholder.
const LONGEST_PLACEHOLDER: usize = 24;

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{{{written}}}` is not a placeholder")]
    NearMiss { written: String, meant: &'static str },
    #[error("`${{{0}}}` is not a variable")]
    NotAVariable(&'static str),
    #[error("`${{` is never closed")]
    Unclosed,
    #[error("`${{{0}}}` does not name a variable")]
    BadName(String),
}

impl TemplateError {
    pub fn hint(&self) -> String {
        match self {
            Self::NearMiss { meant, .. } | Self::NotAVariable(meant) => format!("write {{{meant}}}"),
            Self::Unclosed | Self::BadName(_) => {
                "write ${NAME} for a variable, and $${ where ${ itself is meant".to_owned()
            }
        }
    }
}

/// A variable or placeholder without a value, as the user writes it: `BRAVE_API_KEY`, `{storage}`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Missing {0}")]
pub struct MissingValueError(pub String);

impl Template {
    /// Reads a text with placeholders. Other text in braces stays text, because arguments may be JSON.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut template = Builder::default();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '$']) {
            template.text(&rest[..at]);
            rest = &rest[at..];
            let taken = if let Some(escaped) = rest.strip_prefix("$${") {
                template.text("${");
                rest.len() - escaped.len()
            } else if let Some(inside) = rest.strip_prefix("${") {
                let (name, _) = inside.split_once('}').ok_or(TemplateError::Unclosed)?;
                template.piece(variable(name)?);
                name.len() + "${}".len()
            } else if let Some((name, piece)) = placeholder(rest)? {
                template.piece(piece);
                name.len() + "{}".len()
            } else {
                template.text(&rest[..1]);
                1
            };
            rest = &rest[taken..];
        }
        template.text(rest);
        Ok(Self(template.pieces))
    }

    /// Returns true if it has no placeholders.
    pub fn is_literal(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The names of all its variables, including those with a default.
    pub fn mentioned_variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Variable(name) | Piece::VariableOr { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// The names of its variables without a default.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn expand(&self, values: &Values<'_>) -> Result<OsString, MissingValueError> {
        let missing = |name: &str| MissingValueError(name.to_owned());
        let mut whole = OsString::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => whole.push(text),
                Piece::WorkingDirectory => {
                    whole.push(values.working_directory.ok_or_else(|| missing("{workingDirectory}"))?);
                }
                Piece::SessionId => whole.push(values.session_id),
                Piece::InstanceId => whole.push(values.instance_id),
                Piece::Storage => whole.push(values.storage.ok_or_else(|| missing("{storage}"))?),
                Piece::Variable(name) => {
                    whole.push((values.variable)(name).ok_or_else(|| missing(name))?);
                }
                Piece::VariableOr { name, default } => {
                    whole.push((values.variable)(name).unwrap_or_else(|| default.clone()));
                }
            }
        }
        Ok(whole)
    }
}

impl From<&str> for Template {
    /// Takes the text literally, placeholders included.
    fn from(text: &str) -> Self {
        Self(vec![Piece::Text(text.to_owned())])
    }
}

impl fmt::Display for Template {
    /// The template as it is written in a file. Reading it back gives the same template.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace("${", "$${"))?,
                Piece::WorkingDirectory => f.write_str("{workingDirectory}")?,
                Piece::SessionId => f.write_str("{sessionId}")?,
                Piece::InstanceId => f.write_str("{instanceId}")?,
                Piece::Storage => f.write_str("{storage}")?,
                Piece::Variable(name) => write!(f, "${{{name}}}")?,
                Piece::VariableOr { name, default } => write!(f, "${{{name}:-{default}}}")?,
            }
        }
        Ok(())
    }
}

/// Joins adjacent texts.
#[derive(Default)]
struct Builder {
    pieces: Vec<Piece>,
}

impl Builder {
    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.text(&text),
            piece => self.pieces.push(piece),
        }
    }
}

/// Reads the text between `${` and `}`.
fn variable(inside: &str) -> Result<Piece, TemplateError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let name = match name {
        "workspaceFolder" | "workspaceRoot" => return Ok(Piece::WorkingDirectory),
        "pathSeparator" | "/" => return Ok(Piece::Text("/".to_owned())),
        "userHome" => "HOME",
        name => name.strip_prefix("env:").unwrap_or(name),
    };
    if let Some((known, _)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) {
        return Err(TemplateError::NotAVariable(known));
    }
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if name.is_empty() || !name.chars().all(is_in_names) {
        return Err(TemplateError::BadName(inside.to_owned()));
    }
    let name = name.to_owned();
    Ok(match default {
        Some(default) => Piece::VariableOr { name, default: default.to_owned() },
        None => Piece::Variable(name),
    })
}

/// Reads the placeholder that the text begins with. A misspelled one is an error, because as plain text it would go
/// unnoticed.
fn placeholder(text: &str) -> Result<Option<(&str, Piece)>, TemplateError> {
    let Some((name, _)) = text.strip_prefix('{').and_then(|inside| inside.split_once('}')) else {
        return Ok(None);
    };
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if name.len() > LONGEST_PLACEHOLDER || !name.chars().all(is_in_names) {
        return Ok(None);
    }
    let folded = |name: &str| name.replace(['_', '-', ' '], "").to_lowercase();
    let written = folded(name);
    for (known, piece) in PLACEHOLDERS {
        if name == *known {
            return Ok(Some((name, piece.clone())));
        }
        if strsim::damerau_levenshtein(&written, &folded(known)) <= 1 {
            return Err(TemplateError::NearMiss { written: name.to_owned(), meant: known });
        }
    }
    match written.as_str() {
        "workingdir" | "workspace" | "workspacefolder" => {
            Err(TemplateError::NearMiss { written: name.to_owned(), meant: "workingDirectory" })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn variable(name: &str) -> Piece {
        Piece::Variable(name.to_owned())
    }

    #[test]
    fn placeholders_are_found_in_every_spelling() {
        let or = |name: &str, default: &str| Piece::VariableOr { name: name.into(), default: default.into() };
        let cases = [
            ("", vec![]),
            ("plain", vec![text("plain")]),
            ("{workingDirectory}", vec![Piece::WorkingDirectory]),
            ("a/{sessionId}-{instanceId}", vec![text("a/"), Piece::SessionId, text("-"), Piece::InstanceId]),
            ("{storage}/db", vec![Piece::Storage, text("/db")]),
            ("${KEY}", vec![variable("KEY")]),
            ("Bearer ${env:KEY}!", vec![text("Bearer "), variable("KEY"), text("!")]),
            ("${workspaceFolder}/x", vec![Piece::WorkingDirectory, text("/x")]),
            ("${workspaceRoot}", vec![Piece::WorkingDirectory]),
            ("${userHome}${/}x", vec![variable("HOME"), text("/x")]),
            ("${input:token}", vec![variable("input:token")]),
            ("${PORT:-80}${X:-}", vec![or("PORT", "80"), or("X", "")]),
            ("$${KEY} $HOME $", vec![text("${KEY} $HOME $")]),
            (r#"{"a": {"b": [1]}}"#, vec![text(r#"{"a": {"b": [1]}}"#)]),
            ("{{storage}} {", vec![text("{"), Piece::Storage, text("} {")]),
        ];
        for (written, pieces) in cases {
            let template = Template::parse(written).unwrap();
            assert_eq!(template.0, pieces, "{written}");
            assert_eq!(Template::parse(&template.to_string()).unwrap(), template, "{written}");
        }
    }

    #[test]
    fn near_misses_and_bad_variables_are_errors_with_a_hint() {
        let cases = [
            ("{workingdirectory}", "`{workingdirectory}` is not a placeholder", "write {workingDirectory}"),
            ("x{session_id}", "`{session_id}` is not a placeholder", "write {sessionId}"),
            ("{instanceID}", "`{instanceID}` is not a placeholder", "write {instanceId}"),
            ("{Storge}", "`{Storge}` is not a placeholder", "write {storage}"),
            ("${sessionId}", "`${sessionId}` is not a variable", "write {sessionId}"),
            ("{workspaceFolder}", "`{workspaceFolder}` is not a placeholder", "write {workingDirectory}"),
        ];
        for (written, message, hint) in cases {
            let error = Template::parse(written).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint().as_str()), (message, hint));
        }
        for (written, message) in [
            ("${KEY", "`${` is never closed"),
            ("${}", "`${}` does not name a variable"),
            ("${a b}", "`${a b}` does not name a variable"),
        ] {
            let error = Template::parse(written).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.hint().contains("$${"));
        }
    }

    #[test]
    fn a_default_is_taken_only_if_nobody_set_the_variable() {
        let expand = |set: Option<&str>| {
            let values = Values {
                working_directory: None,
                session_id: "s",
                instance_id: "i",
                storage: None,
                variable: &|_| set.map(str::to_owned),
            };
            Template::parse("${X:-d}").unwrap().expand(&values).unwrap()
        };
        assert_eq!(expand(None), "d");
        assert_eq!(expand(Some("v")), "v");
    }

    proptest! {
        #[test]
        fn text_without_placeholders_is_itself(written in "[^{$]*([{]\"[a-z]*\"[^{$]*)*") {
            let template = Template::parse(&written).unwrap();
            prop_assert!(template.is_literal());
            prop_assert_eq!(template.to_string(), written);
        }

        #[test]
        fn what_is_written_again_reads_the_same(written in "([a-z ]|\\$|\\{|\\}|\\$\\{A\\}|\\{storage\\})*") {
            if let Ok(template) = Template::parse(&written) {
                prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
            }
        }
    }
}
