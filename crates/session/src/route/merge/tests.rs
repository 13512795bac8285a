//! Tests of the merge of several servers.

mod destinations;
mod looks;

use config::{NameMode, ToolRules};
use serde_json::json;

use super::*;
use crate::catalogue::ServerCapabilities;
use crate::view::Part;

/// An item with this name, URI or template on its own server.
fn listed(list: List, own: &str) -> Listed {
    let text = json!({ list.key(): own, "name": own, "inputSchema": { "type": "object" } });
    Listed { own: own.to_owned(), text: serde_json::value::to_raw_value(&text).unwrap() }
}

/// A server that has these tools.
fn tools(names: &[&str]) -> Arc<Catalogue> {
    let tools = names.iter().map(|name| listed(List::Tools, name)).collect();
    Arc::new(Catalogue { tools, ..Catalogue::default() })
}

/// A server that has resources, and this template if there is one.
fn resources(template: Option<&str>) -> Arc<Catalogue> {
    Arc::new(Catalogue {
        capabilities: ServerCapabilities { resources: true, ..ServerCapabilities::default() },
        templates: template.map(|template| listed(List::Templates, template)).into_iter().collect(),
        ..Catalogue::default()
    })
}

/// The view of servers that are called `s0`, `s1` and so on.
fn view(catalogues: &[Option<Arc<Catalogue>>]) -> Arc<View> {
    let names: Vec<String> = (0..catalogues.len()).map(|place| format!("s{place}")).collect();
    let rules = ToolRules::default();
    let parts: Vec<_> = catalogues
        .iter()
        .zip(&names)
        .map(|(catalogue, name)| Part {
            name,
            rules: &rules,
            catalogue: catalogue.as_ref(),
            names: NameMode::Prefix,
            hides: &[],
            is_shown: true,
        })
        .collect();
    Arc::new(View::of(&parts, &config::ToolRules::default()))
}

/// A merge that shows all catalogues that are known.
fn shown(catalogues: &[Option<Arc<Catalogue>>]) -> Merge {
    let mut merge = Merge::new(catalogues.to_vec());
    merge.show(view(catalogues));
    merge
}
