//! The text of a file: how its bytes become one, and become bytes again.
//!
//! [`FileText`] is what an edit works on; its [`TextStyle`] remembers what the text does not show (encoding,
//! byte order mark, line endings), so that an edit changes nothing else. [`Lines`] counts and cuts, and
//! [`FileKind`] says what a file is that has no text.

mod decode;
mod encode;
mod kind;
mod lines;
mod style;

pub use decode::{DecodeError, FileText};
pub use encode::EncodeError;
pub use kind::FileKind;
pub(crate) use lines::split_lines;
pub use lines::{Line, LineSlice, Lines};
pub use style::{Encoding, LineEnding, TextStyle};
