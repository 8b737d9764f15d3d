// SPDX-License-Identifier: GPL-2.0

//! Whether a peer that has not proven who it is may go on.
//!
//! The material is opaque: the caller hands it to a mechanism of its own and reports back.

/// What local policy demands.
//= V2-135, D-50
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Policy {
    /// Material is not looked at.
    Ignore,
    /// Material is looked at, and the result does not matter.
    Log,
    /// The peer has to prove who it is.
    Require,
}

/// What a mechanism says to a piece of material.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Another round is needed.
    Continue,
    /// The peer is who it claims to be.
    Accept,
    /// It is not.
    Refuse,
}

/// The state of one side's judgement about the other.
//= V2-134, V2-135, V2-197
#[derive(Clone, Copy, Debug)]
pub struct HostAuth {
    policy: Policy,
    verdict: Verdict,
}

impl HostAuth {
    /// Starts with a peer that has proven nothing.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            verdict: Verdict::Continue,
        }
    }

    /// Says whether material is to be handed to a mechanism.
    pub fn wants_material(&self) -> bool {
        self.policy != Policy::Ignore
    }

    /// Takes over what a mechanism said.
    pub fn handle_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }

    /// Says whether the peer has proven who it is.
    pub fn is_proven(&self) -> bool {
        self.verdict == Verdict::Accept
    }

    /// Says whether RPCs may be exchanged with the peer now.
    #[inline]
    pub fn may_proceed(&self) -> bool {
        self.policy != Policy::Require || self.is_proven()
    }

    /// Says whether the connection has to be closed.
    ///
    /// A peer that could only be authenticated by a mechanism that is not there, or in a version
    /// that cannot carry material, is refused at once.
    pub fn is_refused(&self, possible: bool) -> bool {
        self.policy == Policy::Require
            && (self.verdict == Verdict::Refuse || (self.verdict == Verdict::Continue && !possible))
    }
}
