//! Tests of whole copies, with real overlay mounts.

mod applying;
mod attacks;
mod creating;
mod failing;
mod kills;
mod lifecycle;
mod random;
mod seeing;
mod stage;

pub(crate) use stage::directory;
