//! The environment of a server: an allow-list of this process's variables, and those that the operator adds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

use identity::Instance;
use thiserror::Error;

/// Variables for a server without a fence, which has no directories of its own.
const ALSO_PASSED_ON: &[&str] = &["HOME", "TMPDIR"];

/// `--env NAME` or `--env NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: Option<String>,
}

/// `--env NAME` without a value, and this process does not have the variable either.
#[derive(Debug, Error)]
#[error("--env {0}: there is no such environment variable")]
pub(crate) struct MissingVariableError(String);

impl MissingVariableError {
    pub(crate) fn hint(&self) -> String {
        format!("set it where ringfence is started, or give a value: --env {}=…", self.0)
    }
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

    /// Returns the given value, or else the parent's.
    pub(crate) fn value_in(
        &self,
        parent: &BTreeMap<OsString, OsString>,
    ) -> Result<OsString, MissingVariableError> {
        match &self.value {
            Some(value) => Ok(value.into()),
            None => parent
                .get(OsStr::new(&self.name))
                .cloned()
                .ok_or_else(|| MissingVariableError(self.name.clone())),
        }
    }
}

/// Whether a variable that works as a switch is `true` or `1`.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| matches!(value.as_str(), "true" | "1"))
}

/// The variable that names the client's window.
pub(crate) fn instance() -> Option<Instance> {
    std::env::var("INSTANCE_ID").ok().as_deref().and_then(Instance::named)
}

/// The variables that the operator adds to those of a fence. Leaves out variables that make programs load code, unless
/// they are forced.
pub(crate) fn added(
    parent: &BTreeMap<OsString, OsString>,
    wanted: &[Variable],
    forced: &[Variable],
) -> Result<Vec<(OsString, OsString)>, MissingVariableError> {
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

/// Explains why a variable is not passed on although the user asked for it.
pub(crate) fn left_out(variable: &Variable) -> String {
    format!(
        "{} is left out, because it makes programs load code or reach the user's helpers; --force-env passes it on",
        variable.name
    )
}

/// The whole environment of a server without a fence.
pub(crate) fn for_upstream(
    parent: impl IntoIterator<Item = (OsString, OsString)>,
    added: &[Variable],
    forced: &[Variable],
) -> Result<Vec<(OsString, OsString)>, MissingVariableError> {
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

    fn upstream(
        parent: &[(&str, &str)],
        added: &[&str],
    ) -> Result<Vec<(OsString, OsString)>, MissingVariableError> {
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
        assert!(matches!(upstream(&[], &["KEY"]), Err(MissingVariableError(name)) if name == "KEY"));
    }
}
