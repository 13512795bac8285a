//! Computes changes to a text before anything is written.
//!
//! A change comes in one of three forms: [`merge`] (new code between markers), [`replace`] (search and replace)
//! and [`patch`] (a diff). All are exact: a change goes where its lines are, or it is refused with advice.
//! [`guards`] refuses changes that look like accidents; [`Landing`] describes what a change did.

pub(crate) mod guards;
mod landing;
mod merge;
mod nearest;
pub(crate) mod patch;
mod quote;
mod replace;

pub use landing::Landing;
pub(crate) use merge::{has_markers, merge};
pub(crate) use replace::{Edit, Replaced, replace, replace_many};
