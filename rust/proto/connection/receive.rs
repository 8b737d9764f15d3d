// SPDX-License-Identifier: GPL-2.0

//! Arriving messages.

use crate::proto::{
    connection::{
        continuation::{
            Content,
            PlacedPart,
            Sequence, //
        },
        hostauth::Verdict,
        negotiate::{
            Answer,
            Time,
            Versions, //
        },
        record::Recorder,
        Arrived,
        CloseReason,
        Connection,
        Event,
        FirstMessage,
        Side,
        MAX_PROPERTIES, //
    },
    wire::{
        error::{
            BadHeader,
            ErrorReport, //
        },
        header::{
            Body,
            Conveyed,
            FixedWords,
            Flags,
            Kind,
            RpcStart, //
        },
        property::{
            self,
            Properties,
            PropertySet, //
        },
        types::{
            Grant,
            Handle,
            MsgType,
            Version,
            Xid, //
        },
        v1,
        v2,
        xdr::Reader, //
    },
};

impl<R: Recorder> Connection<R> {
    /// Handles a message. `invalidated` is the handle that the peer's Send has invalidated, from the Receive
    /// completion.
    ///
    /// A valid RPC message after the version is settled takes the fast path; all other messages are handled
    /// out of line.
    #[inline(always)]
    //= V1-004, V1-033, V1-035
    //= V1-118, V1-132
    pub fn handle_message<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        let event = self.handle_unrecorded(now, message, invalidated);
        let xid = event.xid().unwrap_or(Xid(0));
        self.recorder
            .message(self, now, message, invalidated, event.name(), xid);
        event
    }

    #[inline(always)]
    fn handle_unrecorded<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        for version in [Version::V1, Version::V2] {
            if let Some((kind, arrived)) = self.try_fast(version, None, now, message, invalidated) {
                return arrived.into_event(kind);
            }
        }
        self.handle_any(now, message, invalidated)
    }

    /// Handles a valid RPC message of one `kind` in one part, after `version` is settled, as
    /// [`handle_message`](Self::handle_message) does (the fast path). A client expects Replies, a server Calls.
    /// Any other message changes nothing and returns `None`; then `handle_message` has to be called.
    ///
    /// A message of version 1 leaves nothing to transmit. After a message of version 2,
    /// [`has_control_to_send`](Self::has_control_to_send) returns whether there is a message to transmit.
    #[inline(always)]
    pub fn handle_fast<'a>(
        &mut self,
        version: Version,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Option<Arrived<'a>> {
        let (_, arrived) = self.try_fast(version, Some(kind), now, message, invalidated)?;
        self.record_fast(now, message, invalidated, kind, arrived.fixed.xid);
        Some(arrived)
    }

    /// Records a message of the fast path.
    #[inline(always)]
    fn record_fast(
        &self,
        now: Time,
        message: &[u8],
        invalidated: Option<Handle>,
        kind: MsgType,
        xid: Xid,
    ) {
        let event = Event::name_of(kind);
        self.recorder
            .message(self, now, message, invalidated, event, xid);
    }

    /// Does the work of [`handle_fast`](Self::handle_fast), for either kind of message if `only` is `None`.
    #[inline(always)]
    //= V1-033, V1-035, V2-030
    //= V2-044, V2-048
    fn try_fast<'a>(
        &mut self,
        version: Version,
        only: Option<MsgType>,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Option<(MsgType, Arrived<'a>)> {
        let (fixed, rest) = FixedWords::split(message)?;
        if fixed.version != version.number() || !self.negotiation.is_settled_on(version) {
            return None;
        }
        let (kind, arrived) = match version {
            Version::V1 => self.decode_fast_v1(&fixed, rest)?,
            Version::V2 => self.decode_fast_v2(&fixed, rest)?,
        };
        if only.is_some_and(|only| only != kind) {
            return None;
        }
        let is_good = kind == MsgType::Reply || invalidated.is_none();
        if !is_good || !self.auth.may_proceed() {
            return None;
        }
        self.account_fast(version, kind, &arrived.fixed, now);
        Some((kind, arrived))
    }

    /// Handles a message of version 2 without chunks, with the same ceiling as before, and after which this
    /// side has no message to transmit (the fast path for most messages of version 2). Any other message
    /// changes nothing and returns `None`; then [`handle_fast`](Self::handle_fast) has to be called.
    #[inline(always)]
    //= V2-030, V2-044, V2-048
    pub fn handle_fast_v2<'a>(
        &mut self,
        kind: MsgType,
        now: Time,
        message: &'a [u8],
    ) -> Option<Arrived<'a>> {
        let (fixed, rest) = FixedWords::split(message)?;
        if fixed.version != Version::V2.number() || !self.is_between_messages_v2() {
            return None;
        }
        let conveyed = v2::decode_plain(&fixed, rest, kind)?;
        let (mut send, mut recv) = (self.send, self.recv);
        let grant = Grant::from_word(fixed.credit);
        if u32::from(grant.ceiling) != send.ceiling() {
            return None;
        }
        let plain = recv.handle_message() && !recv.is_short();
        let granted = send.handle_grant(grant);
        if !plain {
            return None;
        }
        (self.send, self.recv) = (send, recv);
        self.count_grant(granted);
        self.active = now;
        let start = RpcStart {
            xid: fixed.xid,
            msg_type: Some(kind),
        };
        self.record_fast(now, message, None, kind, fixed.xid);
        Some(whole(&fixed, conveyed, Some(start)))
    }

    /// Returns whether the version is 2, RPC messages may be exchanged, no message has been received in part, and
    /// no message of this side is due, except a grant of credits.
    #[inline(always)]
    fn is_between_messages_v2(&self) -> bool {
        self.negotiation.is_settled_on(Version::V2)
            && self.auth.may_proceed()
            && self.assembler.is_idle()
            && !self.has_non_grant_control()
    }

    #[inline(always)]
    fn account_fast(&mut self, version: Version, kind: MsgType, fixed: &FixedWords, now: Time) {
        match (version, kind) {
            (Version::V1, MsgType::Reply) => self.calls.handle_grant(fixed.credit),
            (Version::V1, MsgType::Call) => {}
            (Version::V2, _) => {
                self.count_message();
                self.take_grant(fixed);
                self.note_call();
                self.active = now;
            }
        }
    }

    /// Notes a complete RPC message: the first one decides about the first message of this side.
    #[inline(always)]
    //= D-12
    fn note_call(&mut self) {
        if self.first_message == FirstMessage::Properties {
            self.first_message = FirstMessage::Reply;
        }
    }

    /// Decodes a good RPC message of version 1.
    #[inline(always)]
    fn decode_fast_v1<'a>(
        &self,
        fixed: &FixedWords,
        rest: Reader<'a>,
    ) -> Option<(MsgType, Arrived<'a>)> {
        let Ok(Body::Conveyed(conveyed)) = v1::decode(fixed, rest) else {
            return None;
        };
        let start = RpcStart::peek(conveyed.payload);
        let direction = v1_direction(fixed, &conveyed, start, self.side).ok()?;
        Some((direction, whole(fixed, conveyed, start)))
    }

    /// Decodes a good RPC message of version 2 that is whole.
    #[inline(always)]
    fn decode_fast_v2<'a>(
        &self,
        fixed: &FixedWords,
        rest: Reader<'a>,
    ) -> Option<(MsgType, Arrived<'a>)> {
        if !self.assembler.is_idle() || !v2::is_rpc(fixed) {
            return None;
        }
        let message = v2::decode(fixed, rest, true)?;
        let Ok(Body::Conveyed(conveyed)) = message.body else {
            return None;
        };
        if message.flags.more {
            return None;
        }
        let start = RpcStart::peek(conveyed.payload);
        if conveyed.kind == Kind::Msg {
            check_start(fixed, start, message.flags).ok()?;
        }
        let kind = if message.flags.response {
            MsgType::Reply
        } else {
            MsgType::Call
        };
        Some((kind, whole(fixed, conveyed, start)))
    }

    /// Counts a version 2 message that takes a credit.
    #[inline(always)]
    //= V2-044
    fn count_message(&mut self) {
        if !self.recv.handle_message() {
            self.counters.overruns = self.counters.overruns.saturating_add(1);
        }
    }

    /// Takes the grant of a version 2 message that is no error.
    #[inline(always)]
    //= V2-048, D-10
    fn take_grant(&mut self, fixed: &FixedWords) {
        let granted = self.send.handle_grant(Grant::from_word(fixed.credit));
        self.count_grant(granted);
    }

    /// Notes a credit word that has `granted` credits, or has a half that is zero.
    #[inline(always)]
    fn count_grant(&mut self, granted: bool) {
        let zero = u64::from(!granted);
        self.counters.zero_grants = self.counters.zero_grants.saturating_add(zero);
    }

    /// Handles every message there may be.
    #[inline(never)]
    //= V1-092, V1-110, V2-004
    //= V2-064, V2-065, V2-167
    //= D-03, D-22, D-46
    fn handle_any<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        let Some((fixed, rest)) = FixedWords::split(message) else {
            return check_invalidation(self.drop_message(), invalidated);
        };
        let accepted = match self.version() {
            Some(version) => Some(version).filter(|v| v.number() == fixed.version),
            None => self.negotiation.versions().accept(fixed.version),
        };
        if accepted == Some(Version::V1) && !self.auth.may_proceed() {
            // It carries no material.
            self.auth.give_up();
        }
        if self.auth.is_given_up() {
            return check_invalidation(self.drop_message(), invalidated);
        }
        let event = match accepted {
            None => self.handle_other_version(&fixed, rest),
            Some(Version::V1) => {
                let body = v1::decode(&fixed, rest);
                self.handle_v1(&fixed, body)
            }
            Some(Version::V2) => match v2::decode(&fixed, rest, self.is_settled()) {
                Some(message) => {
                    let event = self.handle_v2(&fixed, message);
                    self.report_ready_once(event)
                }
                None => self.drop_message(),
            },
        };
        // Rubbish is no sign of life.
        if accepted.is_some() && !matches!(event, Event::Dropped) {
            self.active = now;
        }
        check_invalidation(event, invalidated)
    }

    /// Queues an error message that answers the message with these fixed words.
    ///
    /// # Errors
    ///
    /// The connection has to be closed: too many error messages wait to be sent. They are sent
    /// when [`poll_transmit`](Self::poll_transmit) is called after every message.
    //= V1-093, V2-142, V2-148
    pub fn refuse(&mut self, fixed: &FixedWords, report: ErrorReport) -> Result<(), CloseReason> {
        self.recorder.refuse(fixed, report);
        self.queue_report(fixed, report)
    }

    fn queue_report(&mut self, fixed: &FixedWords, report: ErrorReport) -> Result<(), CloseReason> {
        if self.reports.push(*fixed, report) {
            Ok(())
        } else {
            Err(CloseReason::ReportOverflow)
        }
    }

    /// Queues an error message for a message that has its event.
    fn report(
        &mut self,
        fixed: &FixedWords,
        report: ErrorReport,
        event: Event<'static>,
    ) -> Event<'static> {
        match self.queue_report(fixed, report) {
            Ok(()) => event,
            Err(why) => self.close(why),
        }
    }

    fn refuse_header(&mut self, fixed: &FixedWords, bad: BadHeader) -> Event<'static> {
        self.counters.bad = self.counters.bad.saturating_add(1);
        self.report(fixed, bad.report(), Event::Refused(bad))
    }

    fn drop_message(&mut self) -> Event<'static> {
        self.counters.dropped = self.counters.dropped.saturating_add(1);
        Event::Dropped
    }

    /// Handles a message of an unknown version, or of another version than the connection's. It belongs to no
    /// sequence of messages, and does not change an open sequence.
    ///
    /// Only the accepting side answers: the flags that name the responder cannot be read.
    //= V1-094, V1-099, V2-004
    //= V2-060, V2-065, V2-166
    //= D-03, D-04, D-32
    fn handle_other_version(&mut self, fixed: &FixedWords, rest: Reader<'_>) -> Event<'static> {
        if v1::is_error(fixed) {
            return self.handle_other_error(fixed, rest);
        }
        match self.side {
            Side::Server => {
                let Versions { low, high } = self.negotiation.versions();
                let report = ErrorReport::Version {
                    low: low.number(),
                    high: high.number(),
                };
                self.report(fixed, report, Event::Refused(BadHeader::Version))
            }
            Side::Client if self.is_settled() => self.close(CloseReason::VersionChanged),
            Side::Client => self.drop_message(),
        }
    }

    /// Handles an error message of another version. It is valid only as the answer to the probe, from a server
    /// that names its own version in it. A server of version 1 may answer ERR_CHUNK instead of ERR_VERS.
    //= V2-060, V2-166, D-05
    //= D-32
    fn handle_other_error(&mut self, fixed: &FixedWords, rest: Reader<'_>) -> Event<'static> {
        let report = match v1::decode(fixed, rest) {
            Ok(Body::Error(Some(report))) if !self.is_settled() => report,
            _ => return self.drop_message(),
        };
        match report {
            ErrorReport::Version { low, high } => self.handle_err_vers(fixed, low, high),
            _ if fixed.version == Version::V1.number() => self.handle_err_vers(fixed, 1, 1),
            _ => self.drop_message(),
        }
    }

    /// Makes the version final. Returns an event if the peer may not go on.
    fn settle(&mut self, version: Version) -> Option<Event<'static>> {
        if self.is_settled() {
            return None;
        }
        self.negotiation.settle(version);
        if version == Version::V2 {
            // In version 2 a Call needs only the credit for its message.
            self.calls.handle_grant(u32::MAX);
        }
        self.check_auth()
    }

    // Version 1.

    //= V1-033, V1-035, V1-092
    //= V1-093, V1-095, V1-099
    //= V1-118, V1-132, D-33
    fn handle_v1<'a>(
        &mut self,
        fixed: &FixedWords,
        body: Result<Body<'a>, BadHeader>,
    ) -> Event<'a> {
        let checked = match body {
            Ok(Body::Error(report)) => return self.handle_v1_error(fixed, report),
            Ok(Body::Conveyed(conveyed)) => {
                let start = RpcStart::peek(conveyed.payload);
                let direction = v1_direction(fixed, &conveyed, start, self.side);
                direction.map(|direction| (direction, whole(fixed, conveyed, start)))
            }
            // The RPC message behind a bad header cannot be found: the usual direction of the peer counts.
            Ok(Body::Grant | Body::Properties(_)) => {
                Err((BadHeader::Type, usual_direction(self.side)))
            }
            Err(bad) => Err((bad, usual_direction(self.side))),
        };
        if let Some(event) = self.settle(Version::V1) {
            return event;
        }
        // Even a bad Reply has the number of Calls that the peer accepts.
        if let Ok((MsgType::Reply, _)) | Err((_, MsgType::Reply)) = checked {
            self.calls.handle_grant(fixed.credit);
        }
        match checked {
            Ok((MsgType::Reply, arrived)) => Event::Reply(arrived),
            Ok((MsgType::Call, arrived)) => Event::Call(arrived),
            Err((bad, MsgType::Call)) => self.refuse_header(fixed, bad),
            Err((bad, MsgType::Reply)) => self.fail(fixed.xid, bad),
        }
    }

    //= V1-098, V1-099, D-05
    fn handle_v1_error(
        &mut self,
        fixed: &FixedWords,
        report: Option<ErrorReport>,
    ) -> Event<'static> {
        match report {
            None => self.drop_message(),
            Some(ErrorReport::Version { low, high }) if low > high => self.drop_message(),
            Some(report) => {
                self.calls.handle_grant(fixed.credit);
                match report {
                    ErrorReport::Version { low, high } => self.handle_err_vers(fixed, low, high),
                    report => Event::Error {
                        xid: fixed.xid,
                        report,
                    },
                }
            }
        }
    }

    fn fail(&mut self, xid: Xid, why: BadHeader) -> Event<'static> {
        self.counters.bad = self.counters.bad.saturating_add(1);
        Event::Failed { xid, why }
    }

    // Version 2.

    #[inline]
    //= V2-030, V2-044, V2-048
    //= V2-143, D-03, D-10
    //= D-11, D-12, D-13
    fn handle_v2<'a>(&mut self, fixed: &FixedWords, message: v2::Message<'a>) -> Event<'a> {
        if !matches!(message.body, Ok(Body::Grant)) {
            self.count_message();
        }
        if let Ok(Body::Error(report)) = message.body {
            return self.handle_v2_error(fixed, message.flags.response, report);
        }
        let starting = !self.is_settled();
        let refused = self.settle(Version::V2);
        self.take_grant(fixed);
        if starting {
            // The sender of any first message is ready for one message.
            self.send.ensure_one();
        }
        if matches!(message.body, Ok(Body::Conveyed(_))) && !message.flags.more {
            self.note_call();
        }
        if let Some(event) = refused {
            return event;
        }
        match message.body {
            Ok(Body::Conveyed(conveyed)) => self.handle_conveyed(fixed, message.flags, conveyed),
            Ok(Body::Properties(octets)) => self.handle_property_part(fixed, message.flags, octets),
            Ok(Body::Grant) => Event::None,
            Ok(Body::Error(_)) => self.drop_message(),
            Err(bad) => self.handle_bad(fixed, message.flags.response, bad),
        }
    }

    //= V1-098, V2-143, V2-163
    //= V2-165, V2-166, D-04
    //= D-05, D-12
    fn handle_v2_error(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        report: Option<ErrorReport>,
    ) -> Event<'static> {
        if self.side == Side::Client && !self.is_settled() {
            self.send.ensure_one();
            //= D-12, D-32
            let of_probe = self.negotiation.is_probe(fixed.xid);
            if of_probe && !matches!(report, None | Some(ErrorReport::Version { .. })) {
                // The peer refuses our properties, or a Call, in version 2.
                let by_call = self.negotiation.opens_by_call();
                let event = self.settle(Version::V2);
                if event.is_some() || !by_call {
                    return event.unwrap_or(Event::None);
                }
            }
        }
        match report {
            Some(ErrorReport::Version { low, high }) if response => {
                self.handle_err_vers(fixed, low, high)
            }
            None | Some(ErrorReport::Version { .. }) => self.drop_message(),
            // It can only refuse a message of its receiver, with or without RESPONSE.
            Some(report) => Event::Error {
                xid: fixed.xid,
                report,
            },
        }
    }

    //= V1-094, V2-060, V2-061
    //= V2-065, V2-165, D-05
    //= D-32
    fn handle_err_vers(&mut self, fixed: &FixedWords, low: u32, high: u32) -> Event<'static> {
        let call = self.negotiation.opens_by_call().then_some(fixed.xid);
        match self.negotiation.handle_err_vers(fixed.xid, low, high) {
            Answer::Use(_) => {
                self.calls.restart();
                let changed = Event::VersionChanged { refused: call };
                self.check_auth().unwrap_or(changed)
            }
            Answer::NoCommonVersion => Event::Close {
                why: CloseReason::NoCommonVersion,
                fail: call,
            },
            Answer::Settled => Event::Error {
                xid: fixed.xid,
                report: ErrorReport::Version { low, high },
            },
            Answer::Ignore => self.drop_message(),
        }
    }

    #[inline]
    //= V2-020, V2-025, V2-026
    //= V2-030, V2-032, V2-033
    //= V2-037, V2-169, D-14
    //= D-15, D-17, D-18
    //= D-47
    fn handle_conveyed<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        conveyed: Conveyed<'a>,
    ) -> Event<'a> {
        if !self.auth.may_proceed() {
            self.auth.give_up();
            return self.drop_message();
        }
        let response = flags.response;
        let part = match conveyed.kind {
            Kind::Nomsg if self.assembler.open().is_some() => {
                return self.handle_bad(fixed, response, BadHeader::BrokenSequence)
            }
            Kind::Nomsg => PlacedPart {
                offset: 0,
                len: 0,
                start: None,
                swallowed: false,
            },
            Kind::Msg => {
                let content = Content::Rpc { response };
                let payload = conveyed.payload;
                match self.assembler.add(fixed.xid, content, payload, flags.more) {
                    Ok(part) => part,
                    Err(bad) => return self.handle_bad(fixed, response, bad),
                }
            }
        };
        if part.swallowed {
            return Event::None;
        }
        if conveyed.kind == Kind::Msg {
            if let Err(bad) = check_start(fixed, part.start, flags) {
                return self.fail_sequence(fixed, response, bad);
            }
        }
        if (flags.more || part.offset != 0) && part.len > self.config.continued {
            return self.fail_sequence(fixed, response, BadHeader::TooLong);
        }
        let arrived = Arrived {
            fixed: *fixed,
            conveyed,
            part,
            more: flags.more,
        };
        if response {
            Event::Reply(arrived)
        } else {
            Event::Call(arrived)
        }
    }

    /// Lets the rest of a message in parts pass, because the message is bad and its parts are in order.
    fn fail_sequence(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        bad: BadHeader,
    ) -> Event<'static> {
        self.assembler.fail();
        self.reject(fixed, response, bad)
    }

    /// Rejects a bad message. Either side answers a bad message without RESPONSE. A bad Reply fails its RPC.
    ///
    /// Messages of other types need not belong to an RPC, with any XID: with RESPONSE, there is no RPC to
    /// fail.
    //= V2-011, V2-028, V2-031
    //= V2-034, V2-035, V2-141
    //= V2-145, V2-146, V2-147
    //= D-04, D-19
    fn reject(&mut self, fixed: &FixedWords, response: bool, bad: BadHeader) -> Event<'static> {
        if !response {
            self.refuse_header(fixed, bad)
        } else if v2::is_rpc(fixed) {
            self.fail(fixed.xid, bad)
        } else {
            self.drop_message()
        }
    }

    /// Handles a bad message. It breaks an open sequence.
    //= V2-033, D-15
    fn handle_bad(&mut self, fixed: &FixedWords, response: bool, bad: BadHeader) -> Event<'static> {
        let sequence = self.assembler.abandon();
        let event = self.reject(fixed, response, bad);
        match sequence {
            None => event,
            Some(sequence) => self.break_sequence(fixed, response, &sequence, event),
        }
    }

    //= V2-033, D-15
    fn break_sequence(
        &mut self,
        fixed: &FixedWords,
        response: bool,
        sequence: &Sequence,
        event: Event<'static>,
    ) -> Event<'static> {
        let why = CloseReason::BrokenSequence;
        if sequence.content == (Content::Rpc { response: true }) {
            let fail = Some(sequence.xid);
            return Event::Close { why, fail };
        }
        if response && v2::is_rpc(fixed) {
            let fail = Some(fixed.xid);
            return Event::Close { why, fail };
        }
        if response || sequence.xid != fixed.xid {
            let first = FixedWords {
                xid: sequence.xid,
                ..*fixed
            };
            return self.report(&first, ErrorReport::InvalFlag, event);
        }
        event
    }

    // Properties.

    //= V2-032, V2-037, V2-139
    //= D-26
    fn handle_property_part<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        octets: &'a [u8],
    ) -> Event<'a> {
        let content = Content::Properties;
        let part = match self.assembler.add(fixed.xid, content, octets, flags.more) {
            Ok(part) => part,
            Err(bad) => return self.handle_bad(fixed, flags.response, bad),
        };
        if part.swallowed {
            return Event::None;
        }
        if part.offset == 0 && !flags.more {
            return self.handle_properties(fixed, flags, octets);
        }
        if part.len > MAX_PROPERTIES {
            return self.fail_sequence(fixed, flags.response, BadHeader::TooLong);
        }
        Event::Properties {
            fixed: *fixed,
            flags,
            offset: part.offset,
            octets,
        }
    }

    /// Handles a complete property set, `set`. `fixed` and `flags` belong to its last message.
    ///
    /// The first one of a connection counts. Later ones bring authentication material only.
    //= V2-122, V2-123, V2-124
    //= V2-132, V2-134, V2-138
    //= D-21, D-24, D-29
    pub fn handle_properties<'a>(
        &mut self,
        fixed: &FixedWords,
        flags: Flags,
        set: &'a [u8],
    ) -> Event<'a> {
        let set = match PropertySet::decode(set) {
            Ok(set) => set,
            Err(bad) => return self.reject(fixed, flags.response, bad),
        };
        // Without a mechanism the value may be any octets.
        let value = set.hostauth.filter(|_| self.auth.wants_material());
        let material = match property::material(value.unwrap_or_default()) {
            Ok(material) => material,
            Err(_) if self.auth.is_required() => return self.handle_auth(Verdict::Refuse),
            Err(bad) => return self.reject(fixed, flags.response, bad),
        };
        if self.peer.is_none() {
            let peer = Properties::DEFAULT.with(&set);
            if peer.recv_size < Properties::MIN_RECV_SIZE {
                self.unusable = true;
                return self.close(CloseReason::SmallReceives);
            }
            self.peer = Some(peer);
        }
        match material {
            Some(material) => Event::HostAuth(material),
            None => self.report_ready_once(Event::None),
        }
    }
}

/// Closes the connection if the peer has invalidated memory with a message that must not do so.
///
/// A Reply may. Whether it was memory of its RPC can only be said with that RPC at hand.
//= V2-116, V2-117, CM-016
//= D-22
fn check_invalidation(event: Event<'_>, invalidated: Option<Handle>) -> Event<'_> {
    if invalidated.is_none() {
        return event;
    }
    let fail = match event {
        Event::Reply(arrived) if !arrived.more => return event,
        Event::Failed { .. } | Event::Close { .. } => return event,
        Event::Error { xid, .. } => Some(xid),
        _ => None,
    };
    Event::Close {
        why: CloseReason::Invalidated,
        fail,
    }
}

/// Returns the event of an RPC message in one part.
#[inline]
fn whole<'a>(fixed: &FixedWords, conveyed: Conveyed<'a>, start: Option<RpcStart>) -> Arrived<'a> {
    Arrived {
        fixed: *fixed,
        conveyed,
        part: PlacedPart {
            offset: 0,
            len: u32::try_from(conveyed.payload.len()).unwrap_or(u32::MAX),
            start,
            swallowed: false,
        },
        more: false,
    }
}

/// Returns the usual direction of the peer's messages on a version 1 connection.
#[inline]
const fn usual_direction(side: Side) -> MsgType {
    match side {
        Side::Client => MsgType::Reply,
        Side::Server => MsgType::Call,
    }
}

/// Returns whether a version 1 message is a Call of the peer or a Reply to a Call of this side, or the error
/// in it with its direction.
///
/// The header has no direction, so an inline RPC message decides. A message in memory has the usual
/// direction.
#[inline(always)]
//= V1-003, V1-024, V1-095
//= V1-118, V1-130, V1-131
//= V1-132, V1-133, D-47
fn v1_direction(
    fixed: &FixedWords,
    conveyed: &Conveyed<'_>,
    start: Option<RpcStart>,
    side: Side,
) -> Result<MsgType, (BadHeader, MsgType)> {
    let usual = usual_direction(side);
    if conveyed.kind == Kind::Nomsg {
        return Ok(usual);
    }
    let Some(start) = start else {
        return Err((BadHeader::Truncated, usual));
    };
    match start.msg_type {
        Some(direction) if start.xid == fixed.xid => {
            let plain = direction == usual || conveyed.chunks.is_empty();
            if plain {
                Ok(direction)
            } else {
                Err((BadHeader::Direction, direction))
            }
        }
        // Whose Call it is cannot be told from a Reply that belongs to no RPC.
        Some(_) if side == Side::Server => Err((BadHeader::XidMismatch, usual)),
        Some(direction) => Err((BadHeader::XidMismatch, direction)),
        None if start.xid == fixed.xid => Err((BadHeader::Direction, usual)),
        None => Err((BadHeader::XidMismatch, usual)),
    }
}

/// Checks the first words of an RPC message against the header, as soon as they are there.
//= V2-014, V2-026, D-18
//= D-47
fn check_start(fixed: &FixedWords, start: Option<RpcStart>, flags: Flags) -> Result<(), BadHeader> {
    let Some(start) = start else {
        return if flags.more {
            Ok(())
        } else {
            Err(BadHeader::Truncated)
        };
    };
    let announced = if flags.response {
        MsgType::Reply
    } else {
        MsgType::Call
    };
    if start.xid != fixed.xid {
        Err(BadHeader::XidMismatch)
    } else if start.msg_type != Some(announced) {
        Err(BadHeader::Direction)
    } else {
        Ok(())
    }
}
