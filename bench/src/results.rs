//! What a run has found: every figure of every leg and round, and the notes on what could not be measured.

use std::collections::BTreeMap;

use crate::legs::Leg;
use crate::measurement_names::{Figure, Measurement};
use crate::statistics::{median, ratios_per_round};

#[derive(Debug, Default)]
pub(crate) struct Results {
    samples: BTreeMap<(Leg, Figure), Vec<Option<f64>>>,
    notes: Vec<Note>,
    other_load_percents: Vec<f64>,
}

/// Why a figure is missing, or rests on fewer rounds.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) leg: Leg,
    /// None: the leg could not be run at all.
    pub(crate) measurement: Option<Measurement>,
    pub(crate) reason: String,
}

impl Results {
    pub(crate) fn record(&mut self, leg: Leg, figure: Figure, round: usize, value: f64) {
        let rounds = self.samples.entry((leg, figure)).or_default();
        if rounds.len() <= round {
            rounds.resize(round + 1, None);
        }
        rounds[round] = Some(value);
    }

    pub(crate) fn note(&mut self, leg: Leg, measurement: Option<Measurement>, reason: String) {
        self.notes.push(Note { leg, measurement, reason });
    }

    /// Called once a round, before its slices.
    pub(crate) fn record_other_load(&mut self, percent: Option<f64>) {
        self.other_load_percents.extend(percent);
    }

    pub(crate) fn other_load_percents(&self) -> &[f64] {
        &self.other_load_percents
    }

    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Failed before, hence not tried again.
    pub(crate) fn is_given_up(&self, leg: Leg, measurement: Measurement) -> bool {
        self.note_number(leg, measurement).is_some()
    }

    /// The footnote of a cell, counted from one.
    pub(crate) fn note_number(&self, leg: Leg, measurement: Measurement) -> Option<usize> {
        let concerns = |note: &Note| note.leg == leg && note.measurement.is_none_or(|of| of == measurement);
        self.notes.iter().position(concerns).map(|position| position + 1)
    }

    pub(crate) fn per_round(&self, leg: Leg, figure: Figure) -> &[Option<f64>] {
        self.samples.get(&(leg, figure)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn median(&self, leg: Leg, figure: Figure) -> Option<f64> {
        let measured: Vec<f64> = self.per_round(leg, figure).iter().flatten().copied().collect();
        median(&measured)
    }

    /// The median of the ratios of each round.
    pub(crate) fn ratio(&self, leg: Leg, base: Leg, figure: Figure) -> Option<f64> {
        median(&ratios_per_round(self.per_round(leg, figure), self.per_round(base, figure)))
    }

    /// A leg of ours that gave a wrong answer, or none, makes the run fail.
    pub(crate) fn own_failures(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| !note.leg.is_peer())
    }
}
