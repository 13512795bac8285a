//! Results of the bridge benchmark: every figure of every leg and round, and notes on missing ones.

use crate::benchmarks::bridges::measurements::{Figure, Measurement};
use crate::legs::Leg;
use crate::samples::Samples;

#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: Samples<Leg, Figure>,
    notes: Vec<Note>,
    other_load_percents: Vec<f64>,
}

/// Why a figure is missing, or rests on fewer rounds.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) leg: Leg,
    /// `None`: the leg could not be run.
    pub(crate) measurement: Option<Measurement>,
    pub(crate) reason: String,
}

impl Results {
    pub(crate) fn note(&mut self, leg: Leg, measurement: Option<Measurement>, reason: String) {
        self.notes.push(Note { leg, measurement, reason });
    }

    /// Records one reading; called once per round, before its slices.
    pub(crate) fn record_other_load(&mut self, percent: Option<f64>) {
        self.other_load_percents.extend(percent);
    }

    pub(crate) fn other_load_percents(&self) -> &[f64] {
        &self.other_load_percents
    }

    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns true if it failed before, so that it is not tried again.
    pub(crate) fn is_given_up(&self, leg: Leg, measurement: Measurement) -> bool {
        self.note_number(leg, measurement).is_some()
    }

    /// The footnote of a cell, counted from one.
    pub(crate) fn note_number(&self, leg: Leg, measurement: Measurement) -> Option<usize> {
        let concerns = |note: &Note| note.leg == leg && note.measurement.is_none_or(|of| of == measurement);
        self.notes.iter().position(concerns).map(|position| position + 1)
    }

    /// Notes on our own legs: a wrong or missing answer there fails the run.
    pub(crate) fn own_failures(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| !note.leg.is_peer())
    }
}
