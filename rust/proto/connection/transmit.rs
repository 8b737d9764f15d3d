// SPDX-License-Identifier: GPL-2.0

//! Messages to the peer: RPC messages of the caller, and messages of the connection itself.

use crate::proto::{
    connection::{
        continuation::Content,
        credit::{
            RecvCredits,
            SendCredits, //
        },
        negotiate::Time,
        record::Recorder,
        Connection,
        FirstMessage,
        SendError,
        Side,
        Transmit, //
    },
    invalidate,
    wire::{
        chunk::Chunks,
        error::ErrorReport,
        header::{
            Kind,
            Outgoing, //
        },
        property,
        types::{
            Handle,
            MsgType,
            Version, //
        },
        v1,
        v2,
        xdr::Writer, //
    },
};

impl<R: Recorder> Connection<R> {
    // Commands.

    /// Writes the header of an RPC message, or of a part of one, and returns its length. The
    /// message is to be sent at once; its completion is to be reported.
    ///
    /// # Errors
    ///
    /// Nothing has happened then.
    #[inline]
    //= V1-006, V1-032, V1-036
    //= V2-038, V2-040, V2-045
    //= V2-047, V2-064, D-12
    //= D-14
    pub fn send<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let result = self.send_unrecorded(now, out, message, chunks);
        self.recorder.send(self, now, message, result, out);
        result
    }

    #[inline(always)]
    fn send_unrecorded<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        if !self.auth.may_proceed() {
            return Err(SendError::NotReady);
        }
        match self.version() {
            Some(Version::V1) => self.send_v1(out, message, chunks),
            Some(Version::V2) => self.send_v2(now, out, message, chunks),
            None => Err(SendError::NotReady),
        }
    }

    #[inline(always)]
    //= V1-006, V1-032, V1-033
    //= V1-034, V1-036, V1-119
    //= V1-120, V1-130, V1-131
    //= V1-133, V2-060, D-19
    //= D-49, NFS-053
    fn send_v1<C: Chunks + ?Sized>(
        &mut self,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let reply = message.direction == MsgType::Reply;
        if reply {
            let grants = self.config.grants;
            return Ok(v1::encode(out, message.xid, grants, message.kind, chunks)?);
        }
        if self.side == Side::Server && names_memory(message, chunks) {
            return Err(SendError::NotSupported);
        }
        if !self.calls.has_room() {
            return Err(SendError::NoCredit);
        }
        let credit = self.calls.requested();
        let len = v1::encode(out, message.xid, credit, message.kind, chunks)?;
        self.calls.start();
        if !self.is_settled() {
            self.negotiation.note_probe(message.xid);
        }
        Ok(len)
    }

    #[inline(never)]
    //= V2-038, V2-054
    fn send_v2<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let reverse = self.side == Side::Server && message.direction == MsgType::Call;
        let started = self.announced && self.is_settled();
        if started && self.sending.is_none() && !message.more && !reverse {
            // Most messages are like that: nothing is to be asked but for a credit.
            let whole = Outgoing {
                more: false,
                ..*message
            };
            return self.compose_v2(now, out, whole, chunks);
        }
        self.send_v2_part(now, out, message, chunks)
    }

    /// Asks all that is to be asked before an RPC message or a part of one is sent in version 2.
    #[inline(never)]
    //= V2-038, V2-040, V2-170
    //= D-12, D-14, D-49
    //= NFS-053
    fn send_v2_part<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        message: &Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let reply = message.direction == MsgType::Reply;
        let this = (message.xid, Content::Rpc { response: reply });
        if self.sending.is_some_and(|open| open != this) {
            return Err(SendError::Busy);
        }
        // No other message may come between the parts of a message.
        let ready =
            self.announced || self.sending == Some(this) || self.holds_properties(now) && reply;
        let opens = self.negotiation.opens_by_call();
        if !(self.is_settled() || opens && !message.more) || !ready {
            return Err(SendError::NotReady);
        }
        if self.side == Side::Server && !reply {
            let explicit = names_memory(message, chunks);
            if !self.properties().reverse.allows(explicit) {
                return Err(SendError::NotSupported);
            }
        }
        let len = self.compose_v2(now, out, *message, chunks)?;
        if opens {
            self.negotiation.note_probe(message.xid);
        }
        Ok(len)
    }

    /// Composes a message, or a part of the one that is being sent, if there is a credit for it.
    #[inline(always)]
    //= V2-047, V2-110, D-28
    fn compose_v2<C: Chunks + ?Sized>(
        &mut self,
        now: Time,
        out: &mut [u8],
        mut message: Outgoing,
        chunks: &C,
    ) -> Result<usize, SendError> {
        let (mut send, mut recv) = (self.send, self.recv);
        if !send.take() {
            return Err(SendError::NoCredit);
        }
        message.inv_handle = self.offer(&message, chunks);
        let len = v2::encode(out, &message, recv.grant(), chunks)?;
        (self.send, self.recv) = (send, recv);
        let reply = message.direction == MsgType::Reply;
        if !reply && self.sending.is_none() {
            self.calls.start();
        }
        self.owes_grant = false;
        self.sending = message
            .more
            .then_some((message.xid, Content::Rpc { response: reply }));
        self.first_message = FirstMessage::Over;
        self.active = now;
        Ok(len)
    }

    /// Returns the handle that the Reply may invalidate: the handle that the caller names, or else a handle of
    /// the message.
    #[inline(always)]
    //= V2-110, V2-113, D-23
    fn offer<C: Chunks + ?Sized>(&self, message: &Outgoing, chunks: &C) -> Handle {
        let call = message.direction == MsgType::Call && !message.more;
        let capable = call && self.config.cm_private.remote_invalidation;
        match message.inv_handle {
            Handle::NONE => invalidate::offer(capable, chunks),
            named => named,
        }
    }

    /// Returns whether credits and the order of messages allow an RPC message in `parts` parts now. `now` is
    /// called at the start of a version 2 connection only.
    #[inline]
    pub fn may_send(&self, now: impl FnOnce() -> Time, direction: MsgType, parts: u32) -> bool {
        let reply = direction == MsgType::Reply;
        match self.version() {
            Some(Version::V1) => reply || self.calls.has_room(),
            Some(Version::V2) => {
                self.send.balance() >= parts.max(1)
                    && self.sending.is_none()
                    && (self.is_settled() || self.negotiation.opens_by_call())
                    && (self.announced || reply && self.holds_properties(now()))
            }
            None => false,
        }
    }

    /// Returns whether a Call of the peer may be taken up, while `taken` others have no Reply yet. In version 2
    /// each Reply takes a credit, which the peer gives: a Call without one for its Reply waits.
    #[inline]
    //= V2-038, V2-047
    pub fn may_take_call(&self, taken: u32) -> bool {
        match self.version() {
            Some(Version::V2) => self.send.balance() > taken,
            _ => true,
        }
    }

    /// Returns whether the next part of the message that was begun may be sent now.
    //= V2-038
    pub const fn may_go_on(&self) -> bool {
        self.sending.is_some() && self.send.balance() != 0
    }

    /// Returns whether a server holds back its properties. With a single credit, a server answers the client's
    /// first Call before it announces its properties. A late Reply does not hold them back for ever.
    //= D-12
    fn holds_properties(&self, now: Time) -> bool {
        self.first_message == FirstMessage::Reply
            && self.side == Side::Server
            && self.send.balance() == 1
            && now < self.active.after(self.config.answer)
    }

    /// Makes authentication material the next message, as if it was a later part of a property set: a peer that
    /// waits for it may refuse other messages.
    //= V2-134, V2-135, D-50
    pub fn owe_hostauth(&mut self) {
        // The properties of this side go first in any case.
        if self.announced {
            let properties = (self.config.xid, Content::Properties);
            self.sending.get_or_insert(properties);
        }
    }

    /// Writes a message with authentication material, and returns its length. It must not follow
    /// other parts of a property set.
    ///
    /// # Errors
    ///
    /// Nothing has happened then. Material that is too long for one message has to be encoded with
    /// [`encode_with`](property::Properties::encode_with) and sent with [`send_properties`](Self::send_properties).
    //= V2-134, V2-197, D-50
    pub fn send_hostauth(
        &mut self,
        now: Time,
        out: &mut [u8],
        material: &[u8],
    ) -> Result<usize, SendError> {
        let (send, mut recv) = self.credits_for_properties()?;
        let prefix = v2::encode_properties(out, self.config.xid, recv.grant(), &[], false)?;
        let mut body = Writer::new(out.get_mut(prefix..).unwrap_or_default());
        self.config.properties.encode_with(&mut body, material)?;
        let len = prefix.saturating_add(body.len());
        self.check_len(len)?;
        (self.send, self.recv, self.sending) = (send, recv, None);
        let message = out.get(..len).unwrap_or_default();
        self.recorder.transmit(now, false, false, message);
        Ok(len)
    }

    /// Writes a message with a property set, or with a part of one, and returns its length. Its
    /// completion is to be reported.
    ///
    /// Parts are sent in order. The first has four bytes at least, and none is empty.
    ///
    /// # Errors
    ///
    /// Nothing has happened then.
    //= V2-032, V2-040, V2-139
    //= D-26
    pub fn send_properties(
        &mut self,
        out: &mut [u8],
        octets: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        let (send, mut recv) = self.credits_for_properties()?;
        let xid = self.config.xid;
        let len = v2::encode_properties(out, xid, recv.grant(), octets, more)?;
        self.check_len(len)?;
        (self.send, self.recv) = (send, recv);
        self.sending = more.then_some((xid, Content::Properties));
        Ok(len)
    }

    fn credits_for_properties(&self) -> Result<(SendCredits, RecvCredits), SendError> {
        if !self.announced || !self.is_settled() {
            return Err(SendError::NotReady);
        }
        let this = (self.config.xid, Content::Properties);
        if self.sending.is_some_and(|open| open != this) {
            return Err(SendError::Busy);
        }
        let mut send = self.send;
        if !send.take() {
            return Err(SendError::NoCredit);
        }
        Ok((send, self.recv))
    }

    fn check_len(&self, len: usize) -> Result<(), SendError> {
        if len > self.inline_send() as usize {
            return Err(SendError::NoRoom);
        }
        Ok(())
    }

    // Work to do.

    /// Composes the next message that is no RPC message, if one is to be sent now.
    ///
    /// `out` has [`MAX_CONTROL_LEN`](super::MAX_CONTROL_LEN) bytes. `waiting` says whether RPCs
    /// of this side wait for the peer, and `busy` whether an RPC message is about to be sent,
    /// which will carry a grant.
    //= V1-092, V2-038, V2-039
    //= V2-051, V2-116, D-11
    //= D-12, D-14, D-20
    //= D-51
    pub fn poll_transmit(
        &mut self,
        now: Time,
        waiting: bool,
        busy: bool,
        out: &mut [u8],
    ) -> Option<Transmit> {
        if self.auth.is_given_up() {
            return None;
        }
        let between_parts = self.sending.is_some();
        let transmit = if between_parts {
            None
        } else {
            self.transmit_report(out)
                .or_else(|| self.transmit_properties(now, out))
        };
        let transmit = transmit.or_else(|| self.transmit_grant(now, waiting, busy, out))?;
        self.active = now;
        let message = out.get(..transmit.len).unwrap_or_default();
        self.recorder.transmit(now, waiting, busy, message);
        Some(transmit)
    }

    /// Returns whether there may be a message to [transmit](Self::poll_transmit) that is due at any time.
    #[inline]
    //= V2-051, D-11
    pub fn has_control_to_send(&self) -> bool {
        self.has_non_grant_control() || self.recv.is_short()
    }

    #[inline(always)]
    pub(super) fn has_non_grant_control(&self) -> bool {
        !self.announced || self.owes_grant || !self.reports.is_empty()
    }

    //= V1-093, V1-094, V1-095
    //= V2-029, V2-142, V2-143
    //= D-02, D-11
    fn transmit_report(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let (fixed, report) = self.reports.first()?;
        let is_v2 = self.version() == Some(Version::V2);
        let mut send = self.send;
        if is_v2 && !send.take() {
            return None;
        }
        let len = match report {
            ErrorReport::Version { .. } => {
                v1::encode_error(out, &fixed, self.config.grants, report)
            }
            _ if is_v2 => v2::encode_error(out, &fixed, self.recv.no_grant(), report),
            _ => v1::encode_error(out, &fixed, self.config.grants, report),
        };
        let len = len.ok()?;
        self.reports.pop();
        self.send = send;
        self.owes_grant = is_v2;
        if self.first_message == FirstMessage::Reply {
            // The client has its credit back and calls again.
            self.first_message = FirstMessage::Properties;
        }
        Some(Transmit {
            len,
            credited: is_v2,
        })
    }

    /// Composes the properties. A client opens the connection with them, and a server answers the first message
    /// with them.
    //= V2-058, V2-059, V2-136
    //= V2-137, D-12, D-19
    //= D-20, VA-011
    fn transmit_properties(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let may_start = self.side == Side::Client || self.is_settled();
        let is_v2 = self.version() == Some(Version::V2);
        if self.announced || !may_start || !is_v2 || self.holds_properties(now) {
            return None;
        }
        let mut send = self.send;
        if !send.take() {
            return None;
        }
        let mut set = [0; property::SET_LEN];
        let mut body = Writer::new(&mut set);
        self.config.properties.encode(&mut body).ok()?;
        let mut recv = self.recv;
        let len = v2::encode_properties(out, self.config.xid, recv.grant(), &set, false).ok()?;
        (self.send, self.recv) = (send, recv);
        self.announced = true;
        self.first_message = FirstMessage::Over;
        if !self.is_settled() {
            self.negotiation.note_probe(self.config.xid);
        }
        self.owes_grant = false;
        Some(Transmit {
            len,
            credited: true,
        })
    }

    /// Grants credits without any payload when the peer runs short of them, when an error
    /// message could not give one back, and to find out whether a silent peer is alive.
    //= V2-051, V2-052, V2-053
    //= D-11, D-51
    fn transmit_grant(
        &mut self,
        now: Time,
        waiting: bool,
        busy: bool,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let due = self.ping_due()?;
        let idle = now >= due;
        let carried = busy && self.send.balance() != 0;
        let short = self.owes_credits();
        let seen = self.recv.may_grant_alone() || now >= self.granted.after(self.config.answer);
        let useful = short && !carried && seen;
        if !useful && !(idle && (waiting || short)) {
            return None;
        }
        let mut recv = self.recv;
        let len = v2::encode_grant(out, recv.grant_alone()).ok()?;
        self.recv = recv;
        self.granted = now;
        self.owes_grant = false;
        Some(Transmit {
            len,
            credited: false,
        })
    }
}

/// Returns whether the receiver of a Call would have to read or write memory.
fn names_memory<C: Chunks + ?Sized>(message: &Outgoing, chunks: &C) -> bool {
    message.kind == Kind::Nomsg
        || chunks.reads().next().is_some()
        || chunks.writes().next().is_some()
        || chunks.reply().is_some()
}
