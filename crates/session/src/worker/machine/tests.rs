//! Tests of the worker machine: events go in, one line of text for each action comes out.

mod calls;
mod crashes;
mod life;
mod random_events;
mod settling;
mod starting;
