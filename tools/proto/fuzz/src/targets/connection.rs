// SPDX-License-Identifier: GPL-2.0

//! One connection against a peer that does anything at all.

use common::config::{both, small, v1_only};
use rpcrdma_proto::proto::connection::hostauth::{Policy, Verdict};
use rpcrdma_proto::proto::connection::negotiate::{Opening, PeerVersionMemo, Time};
use rpcrdma_proto::proto::connection::{Config, Connection, Event, SendError, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::requester::plan::Limits;
use rpcrdma_proto::proto::wire::chunk::{ChunkSlices, NoChunks};
use rpcrdma_proto::proto::wire::cm_private::{self, Announcement, CmPrivate};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::types::{
    Grant, Handle, MsgType, ReadSegment, Segment, Version, Xid,
};
use rpcrdma_proto::proto::wire::{v1, v2};

use crate::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let mut config =
        [v1_only, both, small][source.below(3) as usize]((1 + source.u8() % 64).into());
    config.continued = source.length(1 << 16);
    config.auth = [Policy::Ignore, Policy::Optional, Policy::Require][source.below(3) as usize];
    let data = source.u8() % 32;
    let mut data = source.bytes(data.into()).to_vec();
    if source.flag() {
        let peer = CmPrivate::decode(&data);
        let highest = source.u8() % 4;
        data.extend(cm_private::encode(&peer, Announcement { highest }));
    }
    let memory = PeerVersionMemo::default();
    let connection = if source.flag() {
        let opening = if source.flag() {
            Opening::InBand(memory.first(Time(0), config.versions))
        } else {
            Opening::Announced
        };
        let client = Connection::client(config, opening, &data, Time(0));
        let version = match opening {
            Opening::InBand(first) => first,
            Opening::Announced if Announcement::decode(&data).highest < 2 => Version::V1,
            Opening::Announced => config.versions.high,
        };
        assert_eq!(client.version(), Some(version));
        client
    } else {
        Connection::server(config, &data, Time(0))
    };
    let mut subject = Subject {
        connection,
        config,
        now: Time(0),
        credited: 0,
        granted: 1,
        sequence: None,
        final_version: None,
        silent_since_grant: false,
    };
    while !source.is_empty() && subject.step(&mut source) {
        subject.check();
    }
    let mut memory = memory;
    subject.connection.handle_lost(subject.now, &mut memory);
}

struct Subject {
    connection: Connection,
    config: Config,
    now: Time,
    /// Messages sent with a credit.
    credited: u64,
    /// Credits the peer can have given.
    granted: u64,
    /// The length of the parts of a message that have arrived.
    sequence: Option<u32>,
    final_version: Option<Version>,
    /// Nothing was heard, and no time passed, since a message that only grants.
    silent_since_grant: bool,
}

impl Subject {
    fn step(&mut self, source: &mut Source<'_>) -> bool {
        match source.u8() % 16 {
            0 => self.connection.handle_posted(source.u16().into()),
            1 => self.connection.handle_sent(1),
            2 => self.connection.handle_call_ended(),
            3 => {
                let verdicts = [Verdict::Continue, Verdict::Accept, Verdict::Refuse];
                let verdict = verdicts[source.below(3) as usize];
                if let Event::Close { .. } = self.connection.handle_auth(verdict) {
                    return false;
                }
            }
            4 => {
                self.silent_since_grant = false;
                self.now = self.now.after(Time(source.length(100_000).into()));
                if let Event::Close { .. } = self.connection.handle_timeout(self.now) {
                    return false;
                }
            }
            5 | 6 => self.send(source),
            7 => {
                let (waiting, busy) = (source.flag(), source.flag());
                self.poll(waiting, busy);
            }
            8 => self.send_material(source),
            _ => {
                let message = message(source, self.connection.version());
                let version = self.connection.version();
                if let Some(message) = message {
                    return self.receive(&message, version);
                }
            }
        }
        true
    }

    fn receive(&mut self, message: &[u8], before: Option<Version>) -> bool {
        self.silent_since_grant = false;
        if let Some((fixed, _)) = FixedWords::split(message) {
            self.granted += u64::from(Grant::from_word(fixed.credit).granted).max(1);
        }
        let v2 = |connection: &Connection| connection.version() == Some(Version::V2);
        let hurried = [MsgType::Call, MsgType::Reply]
            .into_iter()
            .find_map(|kind| {
                let mut hurried = self.connection.clone();
                let arrived = hurried.handle_fast_v2(kind, self.now, message)?;
                Some((format!("{:?}", arrived.into_event(kind)), hurried))
            });
        let event = self.connection.handle_message(self.now, message, None);
        if let Some((hurried_event, hurried)) = hurried {
            assert_eq!(hurried_event, format!("{event:?}"));
            assert_eq!(format!("{hurried:?}"), format!("{:?}", self.connection));
            assert!(!hurried.has_control_to_send());
        }
        match event {
            Event::Call(arrived) | Event::Reply(arrived) => {
                let payload = arrived.conveyed.payload;
                assert!(message.ends_with(payload));
                if arrived.conveyed.kind == Kind::Msg {
                    let offset = arrived.part.offset;
                    assert!(offset == 0 || Some(offset) == self.sequence);
                    let len = offset + payload.len() as u32;
                    assert_eq!(len, arrived.part.len);
                    let several = offset != 0 || arrived.more;
                    assert!(
                        !several || len <= self.config.continued,
                        "memory without bound"
                    );
                    assert!(!several || v2(&self.connection));
                    self.sequence = arrived.more.then_some(len);
                    let start = arrived.part.start;
                    assert!(arrived.more || start.is_some_and(|s| s.xid == arrived.fixed.xid));
                }
            }
            Event::Properties {
                offset,
                octets,
                flags,
                ..
            } => {
                assert!(offset == 0 || Some(offset) == self.sequence);
                let len = offset + octets.len() as u32;
                assert!(len <= 65536, "memory without bound");
                self.sequence = flags.more.then_some(len);
            }
            Event::Close { .. } => return false,
            _ => {}
        }
        let after = self.connection.version();
        assert!(
            before.is_none() || after == before || !self.connection.is_settled() || {
                // The one change there may be.
                self.final_version.is_none()
            }
        );
        true
    }

    fn send(&mut self, source: &mut Source<'_>) {
        let reads = [ReadSegment::default(); 2];
        let segments = [Segment::default(); 3];
        let chunks = ChunkSlices {
            reads: &reads[..source.below(3) as usize],
            writes: &[&segments],
            reply: None,
        };
        let outgoing = Outgoing {
            xid: Xid(source.below(3)),
            direction: if source.flag() {
                MsgType::Reply
            } else {
                MsgType::Call
            },
            kind: if source.flag() {
                Kind::Nomsg
            } else {
                Kind::Msg
            },
            more: source.flag(),
            inv_handle: Handle(source.u8().into()),
        };
        let mut out = vec![0; source.below(256) as usize];
        let before = (
            self.connection.send_credits().balance(),
            self.connection.calls().outstanding(),
        );
        let grantable = self.connection.recv_credits().grantable();
        let result = if source.flag() {
            self.connection.send(self.now, &mut out, &outgoing, &chunks)
        } else {
            self.connection
                .send(self.now, &mut out, &outgoing, &NoChunks)
        };
        let after = (
            self.connection.send_credits().balance(),
            self.connection.calls().outstanding(),
        );
        match result {
            Ok(len) => {
                assert!(len <= out.len() && len % 4 == 0);
                if self.connection.version() == Some(Version::V2) {
                    self.credited += 1;
                    assert_eq!(after.0 + 1, before.0);
                    let granted = u32::from_be_bytes([0, 0, out[10], out[11]]);
                    assert_eq!(granted, grantable);
                }
            }
            Err(error) => {
                assert_eq!(before, after, "nothing has happened");
                assert!(error != SendError::NoCredit || before.0 == 0 || before.1 != 0);
            }
        }
    }

    fn send_material(&mut self, source: &mut Source<'_>) {
        let mut out = vec![0; source.below(512) as usize];
        let len = source.u8();
        let sent = self
            .connection
            .send_hostauth(self.now, &mut out, source.bytes(len.into()));
        if let Ok(len) = sent {
            assert!(len <= out.len());
            self.credited += 1;
        }
    }

    fn poll(&mut self, waiting: bool, busy: bool) {
        let mut out = [0; MAX_CONTROL_LEN];
        // Reports, properties, a grant: the sequence of messages ends.
        for _ in 0..40 {
            let told = self.connection.has_control_to_send() || waiting;
            match self
                .connection
                .poll_transmit(self.now, waiting, busy, &mut out)
            {
                None => return,
                Some(transmit) => {
                    assert!(told, "something to tell that was not announced");
                    assert!(transmit.len >= 20 && transmit.len <= MAX_CONTROL_LEN);
                    assert_eq!(transmit.len % 4, 0);
                    self.credited += u64::from(transmit.credited);
                    let v2 = self.connection.version() == Some(Version::V2);
                    if v2 && !transmit.credited {
                        assert!(!self.silent_since_grant, "a second grant");
                        self.silent_since_grant = true;
                    }
                }
            }
        }
        panic!("it talks without end");
    }

    fn check(&mut self) {
        let connection = &self.connection;
        assert!(
            self.credited <= self.granted,
            "more is sent than was granted: {:?}",
            connection
        );
        if connection.is_settled() {
            let version = connection.version();
            assert!(self.final_version.is_none() || self.final_version == version);
            self.final_version = version;
            let versions = self.config.versions;
            assert!(version.is_some_and(|v| (versions.low..=versions.high).contains(&v)));
        }
        assert!(connection.inline_send() <= self.config.properties.send_size.max(1024 * 256));
        let mut limits = Limits::v1(u32::MAX, u32::MAX);
        connection.apply(&mut limits);
        assert!(limits.inline_send == connection.inline_send() && limits.inline_send >= 1024);
        let due = connection.poll_timeout(true);
        let hopeless = self.config.auth == Policy::Require;
        assert!(due.is_none() || hopeless || connection.version() == Some(Version::V2));
        assert!(connection.calls().limit() <= self.config.calls.max(1));
        assert!(connection.recv_credits().balance() <= self.config.ceiling.max(1).into());
    }
}

/// Composes a message: mostly one that could be right.
fn message(source: &mut Source<'_>, version: Option<Version>) -> Option<Vec<u8>> {
    let xid = Xid(source.below(4));
    let payload = payload(source, xid);
    let response = source.flag();
    let more = source.u8() % 4 == 1;
    let grant = Grant::from_word(source.u32());
    let v2 = match version {
        Some(Version::V2) => source.u8() % 8 != 1,
        Some(Version::V1) => source.u8() % 8 == 1,
        None => source.flag(),
    };
    let kind = if source.u8() % 4 == 1 {
        Kind::Nomsg
    } else {
        Kind::Msg
    };
    let segments = [Segment::default(); 2];
    let writes = [&segments[..source.below(3) as usize]];
    let chunks = ChunkSlices {
        reads: &[],
        writes: &writes[..usize::from(source.u8() % 4 == 1)],
        reply: (kind == Kind::Nomsg).then_some(&segments),
    };
    let mut out = vec![0; 200];
    let len = match source.u8() % 16 {
        0 => return Some(source.bytes(64).to_vec()),
        1 => {
            let fixed = FixedWords {
                xid,
                version: if v2 { 2 } else { 1 },
                credit: 0,
                htype: 0,
            };
            let report = report(source);
            let len = if v2 {
                v2::encode_error(&mut out, &fixed, grant, report)
            } else {
                v1::encode_error(&mut out, &fixed, source.u8().into(), report)
            };
            out.truncate(len.ok()?);
            return Some(out);
        }
        2 | 3 => {
            let len = source.u8();
            let set = source.bytes(len.into());
            out.resize(300, 0);
            v2::encode_properties(&mut out, xid, grant, set, more).ok()?
        }
        4 => v2::encode_grant(&mut out, grant).ok()?,
        _ if v2 => {
            let outgoing = Outgoing {
                xid,
                direction: if response {
                    MsgType::Reply
                } else {
                    MsgType::Call
                },
                kind,
                more,
                inv_handle: Handle::NONE,
            };
            v2::encode(&mut out, &outgoing, grant, &chunks).ok()?
        }
        _ => v1::encode(&mut out, xid, source.u8().into(), kind, &chunks).ok()?,
    };
    out.truncate(len);
    if kind == Kind::Msg {
        out.extend(payload);
    }
    Some(out)
}

fn payload(source: &mut Source<'_>, xid: Xid) -> Vec<u8> {
    let mut payload = Vec::new();
    match source.u8() % 4 {
        0 => {}
        1 => payload.extend(xid.0.to_be_bytes()),
        _ => {
            payload.extend(xid.0.to_be_bytes());
            payload.extend(u32::from(source.u8() % 3).to_be_bytes());
        }
    }
    let len = source.u8();
    payload.extend(source.bytes(len.into()));
    payload
}

fn report(source: &mut Source<'_>) -> ErrorReport {
    match source.u8() % 4 {
        0 | 1 => ErrorReport::Version {
            low: source.below(4),
            high: source.below(4),
        },
        2 => ErrorReport::BadXdr,
        _ => ErrorReport::WriteResource {
            chunk_index: source.below(3),
            length_needed: source.u32(),
        },
    }
}
