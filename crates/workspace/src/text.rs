//! Decodes the bytes of a file to text and encodes text back to bytes.
//!
//! An edit works on a [`FileText`]; its [`TextStyle`] remembers what the text does not show (encoding, byte order
//! mark, line endings), so that an edit changes nothing else. [`Lines`] counts lines and cuts out ranges;
//! [`FileKind`] tells what a file without text is.

mod decode;
mod encode;
mod kind;
mod lines;
mod style;

pub use decode::FileText;
pub(crate) use encode::EncodeError;
pub use kind::FileKind;
pub use lines::Lines;
pub(crate) use lines::{Line, split_lines};
pub(crate) use style::{LineEnding, TextStyle};
