//! The environment of an upstream: an allow-list of the parent's, and what the operator adds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

use crate::error::Failure;

/// What an upstream gets besides the basics while it has no directories of its own.
const ALSO_PASSED_ON: &[&str] = &["HOME", "TMPDIR"];

/// `--env NAME` or `--env NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: Option<String>,
}

impl FromStr for Variable {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('=') {
            Some((name, value)) => Self { name: name.to_owned(), value: Some(value.to_owned()) },
            None => Self { name: text.to_owned(), value: None },
        })
    }
}

impl Variable {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The value that was given, else the parent's.
    pub(crate) fn value_in(&self, parent: &BTreeMap<OsString, OsString>) -> Result<OsString, Failure> {
        match &self.value {
            Some(value) => Ok(value.into()),
            None => parent
                .get(std::ffi::OsStr::new(&self.name))
                .cloned()
                .ok_or_else(|| Failure::MissingVariable(self.name.clone())),
        }
    }
}

/// Whether a switch of the founding documents is set: `true` or `1`.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| matches!(value.as_str(), "true" | "1"))
}

/// What the operator adds to the environment of a fence. Variables that make programs load code are left out
/// unless they are forced.
pub(crate) fn added(
    parent: &BTreeMap<OsString, OsString>,
    wanted: &[Variable],
    forced: &[Variable],
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let is_passed_on = |variable: &&Variable| {
        let is_stripped = fence::environment::is_stripped(OsStr::new(&variable.name));
        if is_stripped {
            tracing::warn!("{}", left_out(variable));
        }
        !is_stripped
    };
    wanted
        .iter()
        .filter(is_passed_on)
        .chain(forced)
        .map(|variable| Ok((variable.name.clone().into(), variable.value_in(parent)?)))
        .collect()
}

/// Why a variable that the user asked for is not passed on.
pub(crate) fn left_out(variable: &Variable) -> String {
    format!(
        "{} is left out, because it makes programs load code or reach the user's helpers; --force-env passes it on",
        variable.name
    )
}

/// The whole environment of an upstream without a fence, given the parent's.
pub(crate) fn for_upstream(
    parent: impl IntoIterator<Item = (OsString, OsString)>,
    added: &[Variable],
    forced: &[Variable],
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let parent: BTreeMap<OsString, OsString> = parent.into_iter().collect();
    let is_passed_on = |name: &OsString| {
        fence::environment::is_basic(name) || name.to_str().is_some_and(|name| ALSO_PASSED_ON.contains(&name))
    };
    let mut environment: BTreeMap<OsString, OsString> = parent
        .iter()
        .filter(|(name, _)| is_passed_on(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for variable in added.iter().chain(forced) {
        environment.insert(OsString::from(&variable.name), variable.value_in(&parent)?);
    }
    Ok(environment.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(parent: &[(&str, &str)], added: &[&str]) -> Result<Vec<(OsString, OsString)>, Failure> {
        let added: Vec<Variable> = added.iter().map(|text| text.parse().unwrap()).collect();
        for_upstream(parent.iter().map(|(name, value)| (name.into(), value.into())), &added, &[])
    }

    #[test]
    fn secrets_of_the_parent_stay_with_it() {
        let parent = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("PATHS", "y")];
        let expected = [("LC_ALL".into(), "C".into()), ("PATH".into(), "/bin".into())];
        assert_eq!(upstream(&parent, &[]).unwrap(), expected);
    }

    #[test]
    fn the_operator_adds_by_name_or_value() {
        let environment =
            upstream(&[("KEY", "k"), ("PATH", "/bin")], &["KEY", "A=b=c", "PATH=/opt"]).unwrap();
        let expected = [("A", "b=c"), ("KEY", "k"), ("PATH", "/opt")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(environment, expected);
        assert!(matches!(upstream(&[], &["KEY"]), Err(Failure::MissingVariable(name)) if name == "KEY"));
    }
}
