//! A row of `escapes.md`: its id, and the attempt.

use testkit::AttackStage;

use crate::system::Attempt;

pub(crate) type Row = (&'static str, fn(&AttackStage) -> Attempt);
