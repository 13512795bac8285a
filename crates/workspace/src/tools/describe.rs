//! Documents the tools in Markdown, from the same tables as their schemas.

use std::fmt::Write as _;

use super::TOOLS;
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Tool};

/// The documentation of all tools: an introduction, then one section per tool.
pub fn tools_in_markdown() -> String {
    let mut text = include_str!("introduction.md").to_owned();
    for tool in TOOLS {
        let _ = write!(text, "## `{}`\n\n{}\n\n", tool.name, tool.about);
        let _ = write!(text, "*{}*\n\n", effect(tool));
        fields(&mut text, "argument", tool.takes);
        fields(&mut text, "result", tool.gives);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn effect(tool: &Tool) -> &'static str {
    match tool.effect {
        Effect::Reads => "Reads only.",
        Effect::Adds => "Adds; not offered with --read-only.",
        Effect::Changes => "Changes or removes; not offered with --read-only.",
        Effect::Runs => "Runs commands; with --read-only they can read only.",
        Effect::Manages => "Ends commands of this session.",
        Effect::Describes => "Changes what is said about this session, and no file.",
        Effect::TakesOver => {
            "Changes the project that the workspace is a copy of; offered with --allow-apply alone."
        }
    }
}

fn fields(text: &mut String, what: &str, fields: &[Field]) {
    if fields.is_empty() {
        return;
    }
    let _ = write!(text, "| {what} | type | |\n|---|---|---|\n");
    for field in fields {
        let aliases = match field.aliases {
            [] => String::new(),
            aliases => format!(
                " (also {})",
                aliases.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        };
        let presence = match (what, field.presence) {
            ("argument", Presence::Required) => ", required".to_owned(),
            ("argument", _) => {
                field.default().map(|default| format!(", default `{default}`")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let about = field.about.replace('|', "\\|");
        let _ = writeln!(text, "| `{}`{aliases} | {}{presence} | {about} |", field.name, kind(field.kind));
    }
    text.push('\n');
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Flag => "true or false".to_owned(),
        Kind::Number { least, most: u64::MAX } => format!("number from {least}"),
        Kind::Number { least, most } => format!("number, {least} to {most}"),
        Kind::Objects([]) => "list of objects".to_owned(),
        Kind::Objects(inner) => {
            format!("list of {{{}}}", inner.iter().map(|field| field.name).collect::<Vec<_>>().join(", "))
        }
        Kind::Texts => "list of texts".to_owned(),
        Kind::Object => "object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_is_what_the_tables_say() {
        let written = include_str!("../../../../docs/tools.md");
        let now = super::tools_in_markdown();
        let differs = written.lines().zip(now.lines()).position(|(old, new)| old != new);
        assert_eq!(differs, None, "print it anew: ringfence workspace --describe > docs/tools.md");
        assert_eq!(written, now);
    }
}
