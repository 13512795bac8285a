//! A row of the table of attempts: its id, and the attempt. The escape tests of `crates/cli` list the expected
//! outcomes.

use testkit::AttackStage;

use crate::system::Attempt;

pub(crate) type Row = (&'static str, fn(&AttackStage) -> Attempt);
