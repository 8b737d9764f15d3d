// SPDX-License-Identifier: GPL-2.0

//! The Receives of a connection: how many Calls a client is granted, and which Calls use them.
//!
//! A connection begins with the Receives for a few Calls. If the client uses all of them, more are posted. In
//! version 2, a Call that is kept holds its Receive, and a Call is taken up only if the client has given a credit
//! for its Reply.

use super::{
    connection::{
        Open,
        Server,
        ServerMessage, //
    },
    role::trace_answer,
    settings, //
};
use crate::{
    endpoint::{
        now,
        Buffers,
        EndReason,
        Endpoint,
        NewBuffers,
        Protocol,
        Shared,
        State, //
    },
    proto::{
        connection::credit::Allowance,
        resources::ResponderResources,
        wire::{
            error::ErrorReport,
            header::FixedWords,
            types::Version, //
        },
    },
    rdma::qp::QpRef,
    support::trace, //
};
use core::ops::Range;
use kernel::prelude::*;

/// Makes the first buffers and posts the first Receives of a connection. Context: process, may sleep.
///
/// # Errors
///
/// `ENOMEM`: there is no memory. `EIO`: the queue pair does not take the Receives.
pub(super) fn make_first(
    endpoint: &Endpoint<Server>,
    protocol: &Protocol,
    buffers: &Buffers,
) -> Result {
    let sizes = &endpoint.shared().role.sizes;
    let allowance = Allowance::new(sizes.first_calls(), sizes.grants, now());
    let mut state = endpoint.shared().lock();
    state.set_messages(protocol.messages_for(allowance.calls()));
    let receives = &mut state.role.receives;
    let batch = ResponderResources::recv_batch(allowance.calls());
    receives.batch.set_batch(batch);
    receives.allowance = allowance;
    drop(state);
    endpoint.make(buffers)
}

impl State<Server> {
    /// Updates the grant of connection number `cid` for a Reply: the number of Calls that there are Receives for, and
    /// `most` at most. If more Receives are useful, returns the present and the wanted number of Calls: the caller makes
    /// the connection [grow](Open::grow).
    #[inline(always)]
    //= V1-033, V1-035, V1-040
    pub(super) fn update_grant(&mut self, cid: u32, most: u32) -> Option<Range<u32>> {
        let wanted = self.role.receives.allowance.handle_reply(most, now);
        self.set_grants(cid, most);
        wanted
    }

    /// Sets the grant of connection number `cid` to the number of Calls that there are Receives for, and `most` at most.
    #[inline(always)]
    fn set_grants(&mut self, cid: u32, most: u32) {
        let grants = most.min(self.role.receives.allowance.calls());
        let changed = self
            .established()
            .is_some_and(|(protocol, _)| protocol.set_grants(grants));
        if changed {
            trace::emit(|| trace::SvcrdmaCredits { cid, limit: grants });
        }
    }

    /// Counts a Call that was [held](Self::hold) as `held` Receives. It is in progress until [`Self::end_call`], and uses
    /// a credit for each of these Receives. Version 1 holds no Receives.
    #[inline(always)]
    pub(super) fn begin_call(&mut self, held: u32) {
        self.role.receives.in_progress += held.max(1);
    }

    /// Ends a Call, and releases the Receives that it has [held](Self::hold): its buffer
    /// [receives again](Self::receive_again) before another message is posted.
    #[inline(always)]
    pub(super) fn end_call(&mut self, held: u32) {
        let receives = &mut self.role.receives;
        receives.in_progress = receives.in_progress.saturating_sub(held.max(1));
        if held != 0 {
            receives.taken = receives.taken.saturating_sub(1);
            self.release(held);
        }
    }

    /// Makes the buffer of `call` receive another message. The client may use the credit as soon as it has the
    /// Reply.
    pub(super) fn receive_again(&mut self, qp: &QpRef<Shared<Server>>, call: ServerMessage) {
        // If that fails the Send cannot help either, but its buffers go where they belong.
        let _ = self.role.receives.batch.repost(qp, call);
    }

    /// Returns whether another Call of the client may be taken up.
    #[inline]
    pub(super) fn may_take_call(&self) -> bool {
        let taken = self.role.receives.taken;
        self.protocol()
            .is_none_or(|protocol| protocol.may_take_call(taken))
    }

    /// Returns whether the client has given no credit that a Reply could take.
    pub(super) fn lacks_credit(&self) -> bool {
        self.protocol()
            .is_some_and(|protocol| !protocol.may_take_call(0))
    }

    /// Counts a Call that is taken up and that was [held](Self::hold) as `receives` Receives. Returns the present and
    /// the wanted number of Calls if more Receives are useful: the caller makes the connection
    /// [grow](Open::grow_for_calls).
    #[inline]
    pub(super) fn take_call(&mut self, receives: u32) -> Option<Range<u32>> {
        let accounts = &mut self.role.receives;
        // Version 1 holds no Receives.
        accounts.taken += u32::from(receives != 0);
        let in_progress = accounts.in_progress;
        accounts
            .allowance
            .handle_call(in_progress, settings::max_requests, now)
    }
}

impl Open<'_> {
    /// Makes room for more Calls of `version` at a time: for `calls.end` instead of `calls.start`. Without memory
    /// everything stays as it is.
    ///
    /// Context: process, may sleep. Called once for each [`State::update_grant`] that asked for it.
    pub(super) fn grow(&self, calls: Range<u32>, version: Version) {
        let sizes = &self.shared().role.sizes;
        let more = sizes.buffers(&sizes.config(self.cid()), &calls, Some(version));
        let Ok(new) = NewBuffers::new(self.endpoint().pd(), &more) else {
            let mut state = self.shared().lock();
            return state.role.receives.allowance.handle_no_memory(now());
        };
        let mut state = self.shared().lock();
        if state.add_buffers(self.endpoint().qp(), new).is_err() {
            drop(state);
            return self.shared().request_close(EndReason::NotPosted);
        }
        let receives = &mut state.role.receives;
        receives
            .batch
            .set_batch(ResponderResources::recv_batch(calls.end));
        receives.allowance.handle_posted(calls.end);
        let calls = receives.allowance.calls();
        if let Some(messages) = state
            .protocol()
            .map(|protocol| protocol.messages_for(calls))
        {
            state.set_messages(messages);
        }
    }

    /// Makes room for more Calls of `version`, as [`Self::grow`] does, while Calls in progress use the credits. The client
    /// is told by the next Reply, or at once in version 2.
    #[cold]
    #[inline(never)]
    pub(super) fn grow_for_calls(&self, calls: Range<u32>, version: Version) {
        self.grow(calls, version);
        let shared = self.shared();
        if version == Version::V1 || shared.is_closing() {
            return;
        }
        let mut state = shared.lock();
        state.set_grants(self.cid(), settings::max_requests());
        let told = state.transmit(self.endpoint().qp());
        drop(state);
        if told.is_err() {
            shared.request_close(EndReason::NotPosted);
        }
    }

    /// Drops a Call that gets no Reply: its buffer receives another message. In version 2 the client is told of
    /// that, for this may have been its last credit.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    #[cold]
    pub(super) fn drop_call(&self, mut call: ServerMessage) -> Result<(), EndReason> {
        let qp = self.endpoint().qp();
        let note = call.note_mut();
        note.joined = None;
        let held = note.held;
        let mut state = self.shared().lock();
        state.end_call(held);
        let posted = state.role.receives.batch.repost(qp, call);
        let told = match state.protocol() {
            Some(protocol) if protocol.is_version2() => state.transmit(qp),
            _ => Ok(()),
        };
        drop(state);
        // Another Call may have its credit.
        self.shared().role.send_waiting(self.shared(), qp);
        posted.and(told).map_err(|_| EndReason::NotPosted)
    }

    /// Answers a Call by an error message, unless the connection has to end. The client has its credit back with the
    /// message, so the Receive goes first.
    #[cold]
    pub(super) fn refuse(&self, call: ServerMessage, report: ErrorReport) {
        let shared = self.shared();
        let Some((fixed, _)) = FixedWords::split(call.bytes()) else {
            return shared.request_close(EndReason::NotPosted);
        };
        // The cause of the refusal may be the cause of the end: a Reply whose result found no memory may fit in no
        // form. The client sends the Call again, by another connection.
        if shared.is_closing() {
            return;
        }
        trace::emit(|| trace::SvcrdmaError {
            cid: self.cid(),
            xid: fixed.xid.0,
            why: report.name(),
        });
        trace_answer(self.cid(), &fixed, false);
        let refused = self
            .drop_call(call)
            .and_then(|()| shared.refuse(self.endpoint().qp(), &fixed, report));
        if let Err(why) = refused {
            shared.request_close(why);
        }
    }
}
