//! Changes to a text, worked out before anything is written.
//!
//! Three ways to say a change: [`merge`] (new code between markers), [`replace`] (this for that) and
//! [`patch`] (a diff). All are exact: a change lands where its lines stand, or it is refused with what to do
//! about it. [`guards`] refuses changes that look like accidents; [`Landing`] tells what a change did.

pub mod guards;
mod landing;
mod merge;
mod nearest;
pub mod patch;
mod quote;
mod replace;

pub use landing::Landing;
pub use merge::{MergeError, Side, has_markers, merge};
pub use quote::Place;
pub use replace::{Edit, NearMiss, ReplaceError, Replaced, replace, replace_many};
