// SPDX-License-Identifier: GPL-2.0

//! Completions and CM events: to the protocol first, then to the role.

use super::{
    now,
    EndReason,
    LockedState,
    Protocol,
    Role,
    Shared,
    State,
    Step, //
};
use crate::{
    proto::{
        connection::{
            Arrived,
            Event, //
        },
        wire::{
            error::ErrorReport,
            header::FixedWords,
            types::{
                Handle,
                MsgType,
                Version, //
            },
        },
    },
    rdma::{
        cm,
        cq::Completions,
        proof::Invalidated,
        qp::{
            QpEvent,
            QpRef, //
        },
        recv::Received,
        send::SendBufs,
        wqe::{
            CompletionFacts,
            Status,
            WorkKind, //
        },
        Handler, //
    },
    support::{
        errno,
        memalloc::ReserveScope,
        trace, //
    },
};
/// The next use of the buffer of a message that was handled.
pub(crate) enum Disposition<P> {
    /// It is not needed any more: its buffer receives the next.
    Done,
    /// The role keeps it for now.
    Keep(P),
    /// It is answered by an error message, with these fixed words.
    Refuse(FixedWords, ErrorReport),
    /// The connection has to end.
    Close(EndReason),
}

/// Returns the handle that the peer has invalidated.
fn handle_of(invalidated: &Option<Invalidated>) -> Option<Handle> {
    let proof = invalidated.as_ref()?;
    Some(Handle(proof.handle()))
}

impl<R: Role> Handler for Shared<R> {
    type Note = R::Note;

    #[inline]
    fn reserves(&self) -> Option<ReserveScope> {
        self.role.reserves()
    }

    fn cm_event(&self, event: cm::CmEvent<'_>) {
        use cm::CmEvent as E;
        let (why, error) = match event {
            E::AddressResolved => return self.progress.reached(Step::Address),
            E::RouteResolved => return self.progress.reached(Step::Route),
            E::Established {
                private_data,
                queue_pair,
            } => {
                self.begin(private_data, queue_pair);
                return self.progress.reached(Step::Established);
            }
            E::Other => return,
            // mount(8) asks of these two whether an RDMA device leads to the server.
            E::AddressError | E::RouteError => (EndReason::Failed, errno::protocol()),
            E::Unreachable => (EndReason::Failed, errno::timed_out()),
            E::Rejected { stale: false } => (EndReason::Failed, errno::connection_refused()),
            E::Rejected { stale: true } | E::ConnectError => {
                (EndReason::Failed, errno::not_connected())
            }
            E::Disconnected => (EndReason::Disconnected, errno::not_connected()),
            E::AddressChanged => (EndReason::AddressChanged, errno::not_connected()),
            E::DeviceRemoval { device, peer } => {
                self.role.trace_removal(device.as_str(), &peer);
                (EndReason::DeviceRemoved, errno::not_connected())
            }
        };
        if self.progress.failed(error) {
            self.request_close(why);
        }
        if let EndReason::DeviceRemoved = why {
            self.role.device_removed();
        }
    }

    fn queue_pair_event(&self, event: QpEvent) {
        trace::emit(|| trace::RpcrdmaQpEvent {
            cid: self.role.cid(),
            event: event.message(),
        });
        self.role.trace_queue_pair(event);
        self.request_close(EndReason::QueuePair(event));
    }

    fn received(&self, cx: &mut Completions<'_, Self>, mut message: Received<Self>) {
        self.role.received();
        let invalidated = message.take_invalidated();
        let handle = handle_of(&invalidated);
        let mut guard = self.lock();
        let Some(protocol) = &mut guard.protocol else {
            // Nothing was sent yet that this could answer.
            drop(guard);
            return cx.repost(message);
        };
        match protocol.handle_fast(Version::V1, R::FAST_PATH, now(), message.bytes(), handle) {
            Some(arrived) => {
                let fate = self.role.on_fast_path(self, guard, arrived, invalidated);
                self.dispose(cx, message, fate);
            }
            None if protocol.is_version2() => {
                self.received_v2(guard, cx, message, invalidated);
            }
            None => self.received_other(guard, cx, message, invalidated),
        }
    }

    fn sent(&self, cx: &mut Completions<'_, Self>, buffers: SendBufs<Self>) {
        self.make_room(cx.qp(), |state| state.sent(buffers));
    }

    #[inline(always)]
    fn trace_done(&self, kind: WorkKind, facts: impl FnOnce() -> CompletionFacts) {
        self.role.trace_done(kind, facts);
    }

    #[inline(always)]
    fn trace_receives<I: Iterator<Item = u32>>(&self, qp: &QpRef<Self>, numbers: impl Fn() -> I) {
        self.role.trace_receives(qp, numbers);
    }

    fn trace_failed(&self, kind: WorkKind, facts: CompletionFacts) {
        self.role.trace_failed(kind, facts);
    }

    fn lost(&self, status: Status) {
        trace::emit(|| trace::RpcrdmaWcErr {
            cid: self.role.cid(),
            status: status.message(),
        });
        self.request_close(if status.is_flush() {
            EndReason::Disconnected
        } else {
            EndReason::WorkRequest(status)
        });
    }
}

impl<R: Role> Shared<R> {
    /// Begins the protocol of a connection that this side opened, with the private data and the queue pair of the
    /// peer. The protocol of a connection that the peer opened has begun with its request.
    fn begin(&self, private_data: &[u8], queue_pair: u32) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some((config, opening)) = state.opening.take() else {
            return;
        };
        let mut hostauth = state.hostauth.take();
        if let Some(hostauth) = &mut hostauth {
            hostauth.begin(queue_pair);
        }
        let protocol = Protocol::client(self.role.cid(), &config, opening, private_data, now());
        state.protocol = Some(protocol.with(hostauth));
    }

    /// Accounts work requests that have ended by `ended`, and sends the messages that waited for room in the
    /// send queue or for credits. The return value of `ended` is dropped without the lock.
    pub(crate) fn make_room<L>(&self, qp: &QpRef<Self>, ended: impl FnOnce(&mut State<R>) -> L) {
        let mut state = self.lock();
        let left = ended(&mut state);
        // A Send behind the marker of ib_drain_sq() would get no completion: Endpoint::close() sets `closing`
        // and takes the lock before it drains.
        let may_post = !self.is_closing() && state.may_have_more();
        let lost = may_post && state.transmit(qp).is_err();
        drop(state);
        drop(left);
        if lost {
            self.request_close(EndReason::NotPosted);
        }
        self.role.writable(self, qp);
    }

    /// Handles a message of a version 2 connection.
    #[inline(never)]
    fn received_v2(
        &self,
        mut guard: LockedState<'_, R>,
        cx: &mut Completions<'_, Self>,
        message: Received<Self>,
        invalidated: Option<Invalidated>,
    ) {
        let is_plain = invalidated.is_none() && guard.joining.parts() == 0;
        if let (Some(protocol), true) = (&mut guard.protocol, is_plain) {
            if let Some(arrived) = protocol.handle_fast_v2(R::FAST_PATH, now(), message.bytes()) {
                let fate = self.on_fast_path(guard, arrived, None);
                self.role.writable(self, cx.qp());
                return self.dispose(cx, message, fate);
            }
        }
        self.received_with_more(guard, cx, message, invalidated);
    }

    /// Handles a message of version 2 that [`received_v2`](Self::received_v2) does not.
    #[inline(never)]
    fn received_with_more(
        &self,
        mut guard: LockedState<'_, R>,
        cx: &mut Completions<'_, Self>,
        message: Received<Self>,
        invalidated: Option<Invalidated>,
    ) {
        let is_joining = guard.joining.parts() != 0;
        let Some(protocol) = guard.protocol.as_mut().filter(|_| !is_joining) else {
            return self.received_other(guard, cx, message, invalidated);
        };
        let unsignaled = protocol.unsignaled();
        let handle = handle_of(&invalidated);
        match protocol.handle_fast(Version::V2, R::FAST_PATH, now(), message.bytes(), handle) {
            Some(arrived) => {
                let is_changed = unsignaled != protocol.unsignaled();
                let has_control_to_send = is_changed || protocol.has_control_to_send();
                if is_changed {
                    guard.limit_unsignaled();
                }
                let fate = self.on_fast_path(guard, arrived, invalidated);
                self.dispose(cx, message, fate);
                if has_control_to_send {
                    self.make_room(cx.qp(), |_| ());
                } else {
                    self.role.writable(self, cx.qp());
                }
            }
            None => self.received_other(guard, cx, message, invalidated),
        }
    }

    /// Makes the role handle a message of version 2.
    #[inline(always)]
    fn on_fast_path(
        &self,
        guard: LockedState<'_, R>,
        arrived: Arrived<'_>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<R::Pending> {
        self.hold_receive(guard, R::FAST_PATH, |guard| {
            self.role.on_fast_path(self, guard, arrived, invalidated)
        })
    }

    /// Handles a message of version 2 by `handle`. A role that mostly gets Calls may keep a Call. So the Receive of
    /// a whole Call is held before the lock is given up: a message that another thread sends meanwhile must not
    /// grant it. The Receive is released if the role does not keep the Call.
    #[inline(always)]
    fn hold_receive<'a>(
        &self,
        mut guard: LockedState<'a, R>,
        direction: MsgType,
        handle: impl FnOnce(LockedState<'a, R>) -> Disposition<R::Pending>,
    ) -> Disposition<R::Pending> {
        let holds = direction == MsgType::Call && R::FAST_PATH == MsgType::Call;
        if holds {
            guard.hold(1);
        }
        let fate = handle(guard);
        if holds && !matches!(fate, Disposition::Keep(_)) {
            self.lock().release(1);
        }
        fate
    }

    /// Handles a message outside of the fast path.
    #[cold]
    #[inline(never)]
    fn received_other(
        &self,
        guard: LockedState<'_, R>,
        cx: &mut Completions<'_, Self>,
        message: Received<Self>,
        invalidated: Option<Invalidated>,
    ) {
        let fate = self.handle_out_of_line(guard, cx.qp(), &message, invalidated);
        self.dispose(cx, message, fate);
    }

    /// Reposts or keeps the buffer of a message that was handled, or closes the connection.
    #[inline(always)]
    fn dispose(
        &self,
        cx: &mut Completions<'_, Self>,
        message: Received<Self>,
        fate: Disposition<R::Pending>,
    ) {
        match fate {
            Disposition::Done => cx.repost(message),
            Disposition::Keep(pending) => self.role.keep(self, cx, pending, message),
            Disposition::Refuse(fixed, report) => {
                self.role.refused(&message, &fixed, &report);
                // The peer has its credit back with the answer.
                cx.repost(message);
                if let Err(why) = self.refuse(cx.qp(), &fixed, report) {
                    self.request_close(why);
                }
            }
            Disposition::Close(why) => self.request_close(why),
        }
    }

    /// Makes the protocol, and then the role, handle a message of any kind.
    fn handle_out_of_line(
        &self,
        mut guard: LockedState<'_, R>,
        qp: &QpRef<Self>,
        message: &Received<Self>,
        invalidated: Option<Invalidated>,
    ) -> Disposition<R::Pending> {
        let Some(protocol) = &mut guard.protocol else {
            return Disposition::Done;
        };
        let handle = handle_of(&invalidated);
        let event = protocol.handle_message(now(), message.bytes(), handle);
        if !protocol.is_version2() {
            // Version 1 sends no message of its own but a refusal. Where version 2 was tried before, fewer
            // Sends have to ask for completions from now on.
            let answers = matches!(event, Event::Refused(_) | Event::VersionChanged { .. });
            if let Event::VersionChanged { .. } = event {
                self.progress.reached(Step::Settled);
            }
            return self.claim(guard, qp, event, message, invalidated, answers);
        }
        guard.limit_unsignaled();
        let direction = match &event {
            Event::Call(part) if !part.more => MsgType::Call,
            _ => MsgType::Reply,
        };
        let fate = self.hold_receive(guard, direction, |mut guard| match &event {
            Event::Call(part) | Event::Reply(part) if part.more || part.part.offset != 0 => {
                let part = *part;
                self.join(guard, qp, event, &part, message, invalidated)
            }
            Event::Properties {
                fixed,
                flags,
                offset,
                octets,
            } => {
                let (fixed, flags) = (*fixed, *flags);
                self.join_properties(guard, qp, (fixed, flags), (*offset, octets), message)
            }
            _ => {
                if let Event::Ready = event {
                    self.progress.reached(Step::Settled);
                }
                let useless = guard.take_useless();
                let fate = self.claim(guard, qp, event, message, invalidated, true);
                drop(useless);
                fate
            }
        });
        // Any message of version 2 may grant credits.
        self.role.writable(self, qp);
        fate
    }

    /// Makes the role take the request that an event concerns, and handle the event without the lock. With
    /// `answers`, the protocol may have a message to send.
    pub(super) fn claim(
        &self,
        mut guard: LockedState<'_, R>,
        qp: &QpRef<Self>,
        event: Event<'_>,
        message: &Received<Self>,
        mut invalidated: Option<Invalidated>,
        answers: bool,
    ) -> Disposition<R::Pending> {
        let state = &mut *guard;
        let Some((protocol, locked)) = state.established() else {
            return Disposition::Done;
        };
        let claim = self.role.claim(protocol, locked, &event, &mut invalidated);
        let transmitted = if answers { state.transmit(qp) } else { Ok(()) };
        drop(guard);
        if transmitted.is_err() {
            return Disposition::Close(EndReason::NotPosted);
        }
        self.role.arrived(self, event, claim, message, invalidated)
    }

    /// Answers a message by an error message, now or when there is room.
    ///
    /// # Errors
    ///
    /// The connection has to be closed.
    pub(crate) fn refuse(
        &self,
        qp: &QpRef<Self>,
        fixed: &FixedWords,
        report: ErrorReport,
    ) -> Result<(), EndReason> {
        let mut state = self.lock();
        if let Some(protocol) = &mut state.protocol {
            protocol
                .refuse(fixed, report)
                .map_err(EndReason::Protocol)?;
        }
        state.transmit(qp).map_err(|_| EndReason::NotPosted)
    }
}
