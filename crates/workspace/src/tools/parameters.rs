//! The arguments and results of a tool as data. Schemas, documentation, defaults and checks all come from these
//! tables.

use serde_json::{Map, Value, json};

/// One field of a tool's arguments or of its result.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Other names that clients use. Different values for two of them are refused.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    pub(crate) about: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Choice(&'static [&'static str]),
    Flag,
    /// A whole number within bounds.
    Number {
        least: u64,
        most: u64,
    },
    /// Objects with these fields.
    Objects(&'static [Field]),
    Texts,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// Optional, with this default.
    DefaultFlag(bool),
    DefaultNumber(u64),
    DefaultText(&'static str),
}

impl Kind {
    /// A number without an upper limit.
    pub(crate) const COUNT: Self = Self::Number { least: 0, most: u64::MAX };
}

impl Field {
    pub(crate) const fn required(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, aliases: &[], kind, presence: Presence::Required, about }
    }

    pub(crate) const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, aliases: &[], kind, presence: Presence::Optional, about }
    }

    /// A flag that is off by default.
    pub(crate) const fn switch(name: &'static str, about: &'static str) -> Self {
        Self { name, aliases: &[], kind: Kind::Flag, presence: Presence::DefaultFlag(false), about }
    }

    pub(crate) const fn number(
        name: &'static str,
        (least, most): (u64, u64),
        default: u64,
        about: &'static str,
    ) -> Self {
        let kind = Kind::Number { least, most };
        Self { name, aliases: &[], kind, presence: Presence::DefaultNumber(default), about }
    }

    #[must_use]
    pub(crate) const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    #[must_use]
    pub(crate) const fn with_default(self, presence: Presence) -> Self {
        Self { presence, ..self }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_required(&self) -> bool {
        self.presence == Presence::Required
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Choice(choices) => json!({ "type": "string", "enum": choices }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number { least, most: u64::MAX } => json!({ "type": "integer", "minimum": least }),
            Kind::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Objects(fields) => json!({ "type": "array", "items": object_schema(fields) }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Object => json!({ "type": "object" }),
        };
        schema["description"] = self.about.into();
        if let Some(default) = self.default() {
            schema["default"] = default;
        }
        schema
    }

    pub(super) fn default(&self) -> Option<Value> {
        match self.presence {
            Presence::Required | Presence::Optional => None,
            Presence::DefaultFlag(flag) => Some(flag.into()),
            Presence::DefaultNumber(number) => Some(number.into()),
            Presence::DefaultText(text) => Some(text.into()),
        }
    }
}

/// The schema of an object with these fields.
pub(super) fn object_schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.presence == Presence::Required).map(|field| field.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// The schema of a result: the types of its fields. No field is required, because errors have other fields, and none is
/// described further down, because some clients make classes of nested schemas and lose what is in them.
pub(super) fn result_schema(fields: &[Field]) -> Value {
    let of_field = |field: &Field| match field.kind {
        Kind::Text | Kind::Choice(_) => json!({ "type": "string" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number { .. } => json!({ "type": "integer" }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Objects(_) => json!({ "type": "array" }),
        // Strict clients take over only the listed fields of an object, so they may not know that it is one.
        Kind::Object => json!({}),
    };
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), of_field(field))).collect();
    json!({ "type": "object", "properties": properties })
}
