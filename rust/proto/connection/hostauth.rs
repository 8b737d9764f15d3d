// SPDX-License-Identifier: GPL-2.0

//! The decision whether a peer without a proof of its identity may proceed.
//!
//! The material is opaque: the caller gives it to its own mechanism and reports the verdict.

/// The local policy.
//= V2-135, D-50
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Policy {
    /// Material is ignored: no mechanism can judge it.
    Ignore,
    /// The peer may give a proof, and need not.
    Optional,
    /// The peer has to give a proof.
    Require,
}

/// The verdict of a mechanism about authentication material.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Another round is needed.
    Continue,
    /// The peer has proven its identity.
    Accept,
    /// The peer has not proven its identity.
    Refuse,
}

/// The state of one side's judgement about the other.
//= V2-134, V2-135, V2-197
#[derive(Clone, Copy, Debug)]
pub struct HostAuth {
    policy: Policy,
    verdict: Verdict,
    given_up: bool,
}

impl HostAuth {
    /// Starts with a peer that has proven nothing.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            verdict: Verdict::Continue,
            given_up: false,
        }
    }

    /// Returns whether material is to be handed to a mechanism.
    pub fn wants_material(&self) -> bool {
        self.policy != Policy::Ignore
    }

    /// Returns whether the peer has to give a proof.
    pub fn is_required(&self) -> bool {
        self.policy == Policy::Require
    }

    /// Takes over the verdict of a mechanism.
    pub fn handle_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }

    /// Returns whether the peer has proven its identity.
    pub fn is_proven(&self) -> bool {
        self.verdict == Verdict::Accept
    }

    /// Returns whether RPCs may be exchanged with the peer now.
    #[inline]
    pub fn may_proceed(&self) -> bool {
        self.policy != Policy::Require || self.is_proven()
    }

    /// Ignores the peer from now on, because it has sent an RPC message before its proof. The connection
    /// is closed when the time for the proof is over.
    ///
    /// An error message would end the RPC of a client that lacks its key for a while. Without an answer
    /// the client repeats its Call on the next connection, after that time.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Returns whether the peer is ignored.
    #[inline]
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Returns whether the connection has to be closed.
    ///
    /// A peer that has to give a proof in a version that cannot carry material is refused at once.
    pub fn is_refused(&self, can_carry: bool) -> bool {
        self.policy == Policy::Require
            && (self.verdict == Verdict::Refuse
                || (self.verdict == Verdict::Continue && !can_carry))
    }
}
