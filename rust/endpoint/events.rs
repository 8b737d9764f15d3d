// SPDX-License-Identifier: GPL-2.0

//! Completions and CM events: to the protocol first, then to the role.

use super::{
    now,
    CloseReason,
    Role,
    Shared,
    Step, //
};
use crate::{
    proto::{
        connection::Event,
        types::Handle, //
    },
    rdma::{
        cm,
        cq::Completions,
        local_inv::LocalInvBox,
        mr::{
            Idle,
            MrList, //
        },
        proof::Unexposed,
        recv::Received,
        send::SendBufs,
        wqe::Status,
        Handler, //
    },
    support::{
        errno,
        trace, //
    }, //
};

/// What becomes of a message that was handled.
pub(crate) enum Fate<P> {
    /// It is not needed any more: its buffer receives the next.
    Done,
    /// The role keeps it for now.
    Keep(P),
    /// The connection has to end.
    Close(CloseReason),
}

impl<R: Role> Handler for Shared<R> {
    type Waiter = R::Waiter;

    fn cm_event(&self, event: cm::Event<'_>) {
        use cm::Event as E;
        let (why, error) = match event {
            E::AddressResolved => return self.progress.reached(Step::Address),
            E::RouteResolved => return self.progress.reached(Step::Route),
            E::Established(private_data) => {
                let protocol = self.role.begin(private_data, now());
                self.lock().protocol = protocol;
                return self.progress.reached(Step::Established);
            }
            E::Other => return,
            // mount(8) asks of these two whether an RDMA device leads to the server.
            E::AddressError | E::RouteError => (CloseReason::Failed, errno::protocol()),
            E::Unreachable => (CloseReason::Failed, errno::timed_out()),
            E::Rejected { stale: false } => (CloseReason::Failed, errno::connection_refused()),
            E::Rejected { stale: true } | E::ConnectError => {
                (CloseReason::Failed, errno::not_connected())
            }
            E::Disconnected => (CloseReason::Disconnected, errno::not_connected()),
            E::AddressChanged => (CloseReason::AddressChanged, errno::not_connected()),
            E::DeviceRemoval => (CloseReason::DeviceRemoved, errno::not_connected()),
        };
        if self.progress.failed(error) {
            self.lose(why);
        }
    }

    fn received(&self, cx: &mut Completions<'_, Self>, mut message: Received<Self>) {
        let handle = message.invalidated().map(Handle);
        trace::wc_receive(|| {
            let handle = handle.map_or(0, |handle| handle.0);
            (self.role.cid(), message.bytes().len() as u32, handle)
        });
        let mut invalidated = message.take_invalidated();
        let (event, claim) = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let Some(protocol) = &mut state.protocol else {
                // Nothing was sent yet that this could answer.
                drop(guard);
                return cx.repost(message);
            };
            let event = protocol.handle_message(now(), message.bytes(), handle);
            let claim = self
                .role
                .claim(protocol, &mut state.role, &event, &mut invalidated);
            // A refusal is the only message of its own that version 1 has.
            if matches!(event, Event::Refused(_)) && state.transmit(cx.qp()).is_err() {
                drop(guard);
                return self.lose(CloseReason::NotPosted);
            }
            (event, claim)
        };
        match self.role.arrived(self, event, claim, &message, invalidated) {
            Fate::Done => cx.repost(message),
            Fate::Keep(pending) => self.role.keep(self, cx, pending, message),
            Fate::Close(why) => self.lose(why),
        }
    }

    fn sent(&self, buffers: SendBufs<Self>) {
        trace::wc_send(|| (self.role.cid(),));
        self.lock().sent(buffers);
        self.role.writable();
    }

    fn invalidated(
        &self,
        cx: &mut Completions<'_, Self>,
        inv: LocalInvBox<Self>,
        waiter: R::Waiter,
        mrs: MrList<Idle>,
        proof: Unexposed,
    ) {
        trace::wc_li_done(|| (self.role.cid(),));
        self.role.invalidated(self, cx, inv, waiter, mrs, proof);
    }

    fn invalidation_failed(&self, inv: LocalInvBox<Self>) {
        self.park(inv);
    }

    fn lost(&self, status: Status) {
        trace::wc_err(|| (self.role.cid(), status.message()));
        self.lose(if status.is_flush() {
            CloseReason::Disconnected
        } else {
            CloseReason::WorkRequest(status)
        });
    }
}
