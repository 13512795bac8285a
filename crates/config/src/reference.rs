//! Writes the reference of configuration files from the tables of keys. `docs/configuration.md` is its output.

use std::fmt::Write as _;

use crate::check::in_words;
use crate::keys::{
    FENCE, FILE, GROUP, Key, Named, PRINCIPAL, PRINCIPAL_LIMITS, SECRET_SOURCE, SERVER, Shape, TOOLS,
};

/// The introduction, then one section for each table.
pub fn reference() -> String {
    let mut text = include_str!("introduction.md").to_owned();
    table(&mut text, "The file", "", FILE);
    table(&mut text, "A server", "What stands below a name in `servers`.", SERVER);
    table(&mut text, "`fence` of a server", "[fence.md](fence.md) has what the words mean.", FENCE);
    table(&mut text, "`tools` of a server", "", TOOLS);
    let about = "What stands below a name in `principals`. All but `secrets` are rights, which count only where callers need \
        tokens: [http.md](http.md#rights).";
    table(&mut text, "A principal", about, PRINCIPAL);
    table(&mut text, "`limits` of a principal", "", PRINCIPAL_LIMITS);
    let about = "What stands below a name in `groups`: the rights of [a principal](#a-principal), without `secrets`, and:";
    table(&mut text, "A group", about, &GROUP[..1]);
    let about = "A value of `secrets`, and of `bearerToken` if that is no template. Exactly one of:";
    table(&mut text, "Where a secret is", about, SECRET_SOURCE);
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn table(text: &mut String, title: &str, about: &str, keys: &[Key]) {
    let _ = write!(text, "## {title}\n\n");
    if !about.is_empty() {
        let _ = write!(text, "{about}\n\n");
    }
    text.push_str("| key | type | default | meaning | example |\n|---|---|---|---|---|\n");
    for key in keys {
        let in_cell = |text: &str| text.replace('|', "\\|");
        let quoted =
            |text: &str| if text.is_empty() { String::new() } else { format!("`{}`", in_cell(text)) };
        let (default, example) = (quoted(key.default), quoted(key.example));
        let kind = in_cell(&kind(&key.shape));
        let _ =
            writeln!(text, "| `{}` | {kind} | {default} | {} | {example} |", key.name, in_cell(key.about));
    }
    text.push('\n');
}

/// The type of a key, as a link where it has a section of its own.
fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Map(Named::Principal, _) => "map: principal → [its settings](#a-principal)".to_owned(),
        Shape::Map(Named::Group, _) => "map: group → [its settings](#a-group)".to_owned(),
        Shape::Map(named, Shape::Object(keys)) if keys.len() > 2 => {
            format!("map: {} → [its settings](#a-server)", named.in_words())
        }
        Shape::Map(named, inner) => format!("map: {} → {}", named.in_words(), kind(inner)),
        Shape::Object([key, ..]) if key.name == "network" => "[map](#fence-of-a-server)".to_owned(),
        Shape::Object([key, ..]) if key.name == "sessions" => "[map](#limits-of-a-principal)".to_owned(),
        Shape::Object([key, _, _]) if key.name == "allow" => "[map](#tools-of-a-server)".to_owned(),
        Shape::Object([key, ..]) if key.name == "env" => "[source](#where-a-secret-is)".to_owned(),
        Shape::Either(shapes) => shapes.iter().map(kind).collect::<Vec<_>>().join(" or "),
        shape => in_words(shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::keys::PRINCIPAL_TOOLS;
    use std::path::Path;

    #[track_caller]
    fn assert_reads(text: &str) {
        if let Err(error) = Configuration::parse(text, Path::new("c.yaml")) {
            panic!("{error}\n{text}");
        }
    }

    #[test]
    fn every_example_can_be_read() {
        for key in FILE {
            assert_reads(&format!("{}: {}\n", key.name, key.example));
        }
        for key in SERVER {
            let beside = match key.name {
                "command" | "url" => "",
                "headers" | "bearerToken" => "url: \"https://x.example\"",
                _ => "command: [x]",
            };
            let storage = if key.example.contains("{storage}") { "storage: persistent" } else { "" };
            assert_reads(&format!(
                "servers:\n  a:\n    {beside}\n    {storage}\n    {}: {}\n",
                key.name, key.example
            ));
        }
        for (table, name) in [(FENCE, "fence"), (TOOLS, "tools")] {
            for key in table {
                let beside = if key.name == "allowHosts" { "network: http, " } else { "" };
                let (key, example) = (key.name, key.example);
                assert_reads(&format!(
                    "servers: {{a: {{command: [x], {name}: {{{beside}{key}: {example}}}}}}}\n"
                ));
            }
        }
        for (table, before, after) in [
            (PRINCIPAL, "principals: {a: {", "}}"),
            (GROUP, "groups: {a: {", "}}"),
            (PRINCIPAL_TOOLS, "principals: {a: {tools: {", "}}}"),
            (PRINCIPAL_LIMITS, "principals: {a: {limits: {", "}}}"),
        ] {
            for key in table {
                assert_reads(&format!("{before}{}: {}{after}\n", key.name, key.example));
            }
        }
        for key in SECRET_SOURCE {
            assert_reads(&format!("secrets: {{A: {{{}: {}}}}}\n", key.name, key.example));
        }
    }

    #[test]
    fn the_files_in_the_introduction_can_be_read() {
        let blocks: Vec<_> = include_str!("introduction.md").split("```yaml\n").skip(1).collect();
        assert!(blocks.len() >= 4);
        for block in blocks {
            assert_reads(block.split("```").next().unwrap());
        }
    }

    #[test]
    fn the_documentation_is_up_to_date() {
        let written = include_str!("../../../docs/configuration.md");
        let differs =
            reference().lines().zip(written.lines()).find(|(made, written)| made != written).is_some();
        let is_same = !differs && reference().len() == written.len();
        assert!(is_same, "print it anew: ringfence config reference > docs/configuration.md");
    }
}
