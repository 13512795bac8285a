//! JSON-RPC and MCP as data, without I/O.
//!
//! The principal type is [`Message`]: one JSON-RPC message kept as the bytes it arrived in, with the positions of the
//! parts that a gateway acts on. Everything else is forwarded byte for byte; the parts that must change (an id, a
//! progress token) are spliced into the text.
//!
//! ```
//! use wire::{Id, Message};
//!
//! let text = br#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"x":12345678901234567890123}}"#;
//! let Message::Request(request) = Message::parse(text.as_slice().into())? else { unreachable!() };
//! assert_eq!(request.method, "tools/list");
//! let forwarded = request.toward_upstream(7);
//! assert_eq!(&forwarded[..], br#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":12345678901234567890123}}"#);
//! # Ok::<(), wire::MessageError>(())
//! ```

mod batch;
mod capabilities;
mod era;
mod error;
mod file_uri;
mod hex;
mod id;
mod limits;
mod lines;
mod message;
pub mod method;
mod object;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod params;
pub mod sse;
mod text;
mod version;
pub mod worker_variable;

pub use batch::Body;
pub use capabilities::ClientCapabilities;
pub use era::{Era, EraHeaders, names_modern_version};
pub use error::{ErrorReply, MessageError, code};
pub use file_uri::{FileUriError, file_uri, file_uri_path};
pub use hex::{from_hex, hex};
pub use id::Id;
pub use limits::{MAX_BATCH, MAX_MESSAGE_BYTES};
pub use lines::{LineBuffer, LineTooLong};
pub use message::{Message, Notification, Outcome, Request, Response};
pub use object::read_object;
pub use params::{InitializeParams, InitializeResult, LogLevel, with_note_for_model};
pub use text::{Text, compact_newlines};
pub use version::Version;
