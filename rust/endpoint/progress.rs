// SPDX-License-Identifier: GPL-2.0

//! The progress of connecting, as the connection manager reports it.

use crate::support::{
    completion::Completion,
    errno, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// A step of connecting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A device was found.
    Address,
    /// A route was found.
    Route,
    /// The connection stands.
    Established,
    /// Both sides know in which version they speak.
    Settled,
}

/// The outcome so far.
struct Outcome {
    established: bool,
    error: Option<Error>,
}

/// The steps that a connecting task waits for.
#[pin_data]
pub(super) struct Progress {
    #[pin]
    outcome: SpinLock<Outcome>,
    #[pin]
    address: Completion,
    #[pin]
    route: Completion,
    #[pin]
    established: Completion,
    #[pin]
    settled: Completion,
}

impl Progress {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            outcome <- new_spinlock!(Outcome { established: false, error: None }),
            address <- Completion::new(),
            route <- Completion::new(),
            established <- Completion::new(),
            settled <- Completion::new(),
        })
    }

    fn completion(&self, step: Step) -> &Completion {
        match step {
            Step::Address => &self.address,
            Step::Route => &self.route,
            Step::Established => &self.established,
            Step::Settled => &self.settled,
        }
    }

    /// Waits for a step, at most `timeout` milliseconds. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// The error of [`failed`](Self::failed), or `ETIMEDOUT`.
    pub(super) fn wait(&self, step: Step, timeout: u32) -> Result {
        let in_time = self.completion(step).wait_timeout(timeout);
        match self.outcome.lock().error {
            Some(error) => Err(error),
            None if in_time => Ok(()),
            None => Err(errno::timed_out()),
        }
    }

    /// Completes a step: wakes the task that waits for it. Context: any.
    pub(super) fn reached(&self, step: Step) {
        if step == Step::Established {
            self.outcome.lock().established = true;
        }
        self.completion(step).complete_all();
    }

    /// Returns 1 if the connection stands, 0 if it has not been established, or the error number by which it was
    /// lost or connecting has failed. Context: any.
    pub(super) fn status(&self) -> i32 {
        let outcome = self.outcome.lock();
        match outcome.error {
            Some(error) => error.to_errno(),
            None => outcome.established.into(),
        }
    }

    /// Notes that the connection is lost, or that connecting has failed. Returns whether it was established.
    /// Context: any.
    pub(super) fn failed(&self, error: Error) -> bool {
        let established = {
            let mut outcome = self.outcome.lock();
            outcome.error.get_or_insert(error);
            outcome.established
        };
        for step in [Step::Address, Step::Route, Step::Established, Step::Settled] {
            self.completion(step).complete_all();
        }
        established
    }
}
