// SPDX-License-Identifier: GPL-2.0

//! Connections, message by message.

use common::{call, config, read, rpc, segment, words, Lists};
use rpcrdma_proto::proto::connection::credit::RecvCredits;
use rpcrdma_proto::proto::connection::hostauth::{Policy, Verdict};
use rpcrdma_proto::proto::connection::negotiate::{Opening, PeerVersionMemo, Time, Versions};
use rpcrdma_proto::proto::connection::{
    CloseReason, Config, Connection, Event, SendError, Side, MAX_CONTROL_LEN, MAX_PROPERTIES,
};
use rpcrdma_proto::proto::requester::plan::{plan, Buf, CallShape, Limits, Part};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::cm_private::{self, Announcement, CmPrivate};
use rpcrdma_proto::proto::wire::error::{BadHeader, ErrorReport};
use rpcrdma_proto::proto::wire::header::{FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::property::{Properties, ReverseSupport, HOSTAUTH_LEN, SET_LEN};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};
use rpcrdma_proto::proto::wire::v2;
use rpcrdma_proto::proto::wire::xdr::Writer;

const NOW: Time = Time(1000);

/// Credits that version 2 messages of these tests bring: 4 more, 16 at most.
const CREDIT: u32 = 0x0010_0004;

fn config() -> Config {
    let both = config::both(32);
    Config {
        cm_private: CmPrivate {
            recv_size: 8192,
            ..both.cm_private
        },
        properties: Properties {
            send_size: 8192,
            recv_size: 8192,
            ..Properties::DEFAULT
        },
        xid: Xid(0xc1),
        calls: 16,
        grants: 8,
        continued: 10_000,
        ..both
    }
}

fn v1_only() -> Config {
    Config {
        versions: Versions::V1,
        ..config()
    }
}

fn server() -> Connection {
    Connection::server(config(), &[], NOW)
}

fn client(first: Version) -> Connection {
    let mut client = Connection::client(config(), Opening::InBand(first), &[], NOW);
    transmit(&mut client);
    client
}

/// A server that has heard from a version 2 client, and has answered.
fn v2_server() -> Connection {
    let mut server = server();
    assert!(matches!(
        server.receive(NOW, props(0, &[0]), None),
        Event::Ready
    ));
    assert_eq!(transmit(&mut server).len(), 1);
    server
}

/// A client that has heard from a version 2 server.
fn v2_client() -> Connection {
    let mut client = client(Version::V2);
    assert!(matches!(
        client.receive(NOW, props(0, &[0]), None),
        Event::Ready
    ));
    client
}

/// `handle_message` is inlined into each caller. The compiler took two minutes for the 150 calls of this file.
trait Receive {
    fn receive<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a>;
}

impl Receive for Connection {
    #[inline(never)]
    fn receive<'a>(
        &mut self,
        now: Time,
        message: &'a [u8],
        invalidated: Option<Handle>,
    ) -> Event<'a> {
        self.handle_message(now, message, invalidated)
    }
}

/// Takes all messages that wait; their Sends complete at once.
fn transmit(connection: &mut Connection) -> Vec<Vec<u8>> {
    transmit_at(connection, NOW, false)
}

fn transmit_at(connection: &mut Connection, now: Time, waiting: bool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = [0; MAX_CONTROL_LEN];
    while let Some(message) = connection.poll_transmit(now, waiting, false, &mut out) {
        if message.credited {
            connection.handle_sent(1);
        }
        all.push(out[..message.len].to_vec());
    }
    all
}

fn errors(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut all = transmit(connection);
    all.retain(|message| message[15] == 4);
    all
}

/// Events borrow their messages, so these are made to stay.
fn join(start: &[u32], rest: &[u8]) -> &'static [u8] {
    [words(start), rest.to_vec()].concat().leak()
}

fn raw(message: &[u32]) -> &'static [u8] {
    join(message, &[])
}

fn v1_msg(xid: u32, payload: &[u8]) -> &'static [u8] {
    join(&[xid, 1, 32, 0, 0, 0, 0], payload)
}

fn v2_msg(xid: u32, flags: u32, payload: &[u8]) -> &'static [u8] {
    join(&[xid, 2, CREDIT, 0, flags, 0, 0, 0, 0], payload)
}

fn props(flags: u32, set: &[u32]) -> &'static [u8] {
    join(&[0xabc, 2, CREDIT, 5, flags], &words(set))
}

fn send(connection: &mut Connection, message: &Outgoing) -> Result<Vec<u8>, SendError> {
    let mut out = [0; 256];
    let len = connection.send(NOW, &mut out, message, &NoChunks)?;
    Ok(out[..len].to_vec())
}

// Version 1.

/// The fast path of a connection that is settled by `first` has the same result for `message` as
/// the general path, and ignores `others`.
fn may_be_handled_in_a_hurry(
    mut usual: Connection,
    kind: MsgType,
    first: &[u8],
    message: &[u8],
    others: &[(&[u8], Option<Handle>)],
) -> Connection {
    assert!(usual
        .handle_fast(Version::V1, kind, NOW, first, None)
        .is_none());
    usual.receive(NOW, first, None);
    let mut hurried = usual.clone();
    let event = usual.receive(NOW, message, None);
    assert!(matches!(event, Event::Call(_) | Event::Reply(_)));
    let arrived = hurried.handle_fast(Version::V1, kind, NOW, message, None);
    let in_a_hurry = arrived.map(|arrived| arrived.into_event(kind));
    assert_eq!(format!("{in_a_hurry:?}"), format!("{:?}", Some(event)));
    assert_eq!(format!("{hurried:?}"), format!("{usual:?}"));
    let bad = raw(&[9, 1, 32, 4, 2]);
    let nothing = (&[][..], None);
    for &(other, invalidated) in others.iter().chain(&[(bad, None), nothing]) {
        assert!(hurried
            .handle_fast(Version::V1, kind, NOW, other, invalidated)
            .is_none());
        assert_eq!(format!("{hurried:?}"), format!("{usual:?}"));
    }
    usual
}

/// The same for version 2.
//= V2-030, V2-044, V2-048 (test)
//= V2-116 (test)
#[test]
fn version_2_may_be_handled_in_a_hurry() {
    for (mut connection, kind, flags, handle) in [
        (client(Version::V2), MsgType::Reply, 1, None),
        (server(), MsgType::Call, 0, Some(Handle(7))),
    ] {
        let other = 1 - flags;
        let message = v2_msg(10, flags, &rpc(10, flags, 40));
        let hurried = |connection: &mut Connection, message, handle| {
            let arrived = connection.handle_fast(Version::V2, kind, NOW, message, handle);
            let event = arrived.map(|arrived| arrived.into_event(kind));
            event.map(|event| (event.name(), event.xid()))
        };
        assert_eq!(hurried(&mut connection, message, None), None);
        connection.receive(NOW, props(0, &[0]), None);
        for (message, handle) in [
            (v2_msg(9, other, &rpc(9, other, 40)), None),
            (
                join(&[9, 3, CREDIT, 0, flags, 0, 0, 0, 0], &rpc(9, flags, 40)),
                None,
            ),
            (v2_msg(9, flags, &rpc(9, other, 40)), None),
            (v2_msg(9, flags, &rpc(8, flags, 40)), None),
            (v2_msg(9, flags | 2, &rpc(9, flags, 40)), None),
            (v2_msg(9, flags | 4, &rpc(9, flags, 40)), None),
            (v2_msg(9, flags, &[]), None),
            (v1_msg(9, &rpc(9, flags, 40)), None),
            (raw(&[9, 2, CREDIT, 4, 1, 10]), None),
            (raw(&[0, 2, CREDIT, 1, 0, 0, 0, 0, 0]), None),
        ]
        .into_iter()
        // A Call may not invalidate memory.
        .chain(handle.map(|handle| (message, Some(handle))))
        {
            let before = format!("{connection:?}");
            assert_eq!(hurried(&mut connection, message, handle), None);
            assert_eq!(format!("{connection:?}"), before);
        }
        let mut usual = connection.clone();
        usual.receive(NOW, message, None);
        let name = if flags == 1 { "reply" } else { "call" };
        let wanted = Some((name, Some(Xid(10))));
        assert_eq!(hurried(&mut connection, message, None), wanted);
        assert_eq!(format!("{connection:?}"), format!("{usual:?}"));
        // Between parts, it breaks them.
        connection.receive(NOW, v2_msg(9, flags | 2, &rpc(9, flags, 40)), None);
        assert_eq!(hurried(&mut connection, message, None), None);
    }
}

/// A plain message takes the shortest path, with the same result as the general path. The shortest
/// path ignores messages that are not plain.
//= V2-005, V2-014, V2-026 (test)
//= V2-030, V2-044, V2-048 (test)
#[test]
fn plain_messages_of_version_2_take_the_shortest_way() {
    let later = NOW.after(Time(1));
    for (ready, begun, kind, flags) in [
        (v2_client(), client(Version::V2), MsgType::Reply, 1),
        (v2_server(), server(), MsgType::Call, 0),
    ] {
        let hurried = |connection: &mut Connection, message| {
            let arrived = connection.handle_fast_v2(kind, later, message);
            arrived.map(|arrived| format!("{:?}", arrived.into_event(kind)))
        };
        let is_let_alone = |connection: &Connection, message| {
            let mut copy = connection.clone();
            assert_eq!(hurried(&mut copy, message), None, "{message:?}");
            assert_eq!(format!("{copy:?}"), format!("{connection:?}"));
        };
        let other = 1 - flags;
        let message = v2_msg(10, flags, &rpc(10, flags, 40));
        let with = |version, credit, htype, flags, list| {
            let header = [10, version, credit, htype, flags, 0, 0, list, 0];
            join(&header, &rpc(10, flags & 1, 40))
        };
        assert_eq!(with(2, CREDIT, 0, flags, 0), message);
        for credit in [CREDIT, CREDIT & !0xffff] {
            let message = with(2, credit, 0, flags, 0);
            let (mut usual, mut plain) = (ready.clone(), ready.clone());
            let event = format!("{:?}", usual.receive(later, message, None));
            assert_eq!(hurried(&mut plain, message), Some(event));
            assert_eq!(format!("{plain:?}"), format!("{usual:?}"));
        }

        for other in [
            v2_msg(10, flags, &rpc(11, flags, 40)),
            v2_msg(10, flags, &rpc(10, other, 40)),
            v2_msg(10, flags, &rpc(10, flags, 40)[..7]),
            v2_msg(10, other, &rpc(10, other, 40)),
            with(1, CREDIT, 0, flags, 0),
            with(3, CREDIT, 0, flags, 0),
            // A ceiling that is another one, or zero.
            with(2, CREDIT + 0x1_0000, 0, flags, 0),
            with(2, CREDIT & 0xffff, 0, flags, 0),
            with(2, CREDIT, 1, flags, 0),
            with(2, CREDIT, 0, flags | 2, 0),
            with(2, CREDIT, 0, flags | 4, 0),
            with(2, CREDIT, 0, flags, 1),
            &message[..message.len() - 33],
            &[],
        ] {
            is_let_alone(&ready, other);
        }

        // Nothing is settled, or not all is told.
        is_let_alone(&begun, message);
        let (xid, version) = (Xid(9), 2);
        let fixed = FixedWords {
            xid,
            version,
            credit: CREDIT,
            htype: 0,
        };
        let mut owing = ready.clone();
        assert_eq!(owing.refuse(&fixed, ErrorReport::System), Ok(()));
        is_let_alone(&owing, message);
        let mut out = [0; MAX_CONTROL_LEN];
        assert!(owing.poll_transmit(NOW, false, false, &mut out).is_some());
        is_let_alone(&owing, message);
        // Between parts, it breaks them.
        let mut joining = ready.clone();
        joining.receive(NOW, v2_msg(9, flags | 2, &rpc(9, flags, 40)), None);
        is_let_alone(&joining, message);

        // With less than half of 32 credits the peer is to be given more, if there are any; and it
        // must not use more than it has.
        let credits = ready.recv_credits().balance() as usize;
        for (receives, handled) in [(1000, credits - 16), (0, credits)] {
            let mut running_out = ready.clone();
            running_out.handle_posted(receives);
            let all = (0..100).take_while(|_| hurried(&mut running_out, message).is_some());
            assert_eq!(all.count(), handled);
        }
    }
    // A client without a proof may not send a Call.
    let mut unproven = Connection::server(
        Config {
            auth: Policy::Require,
            ..config()
        },
        &[],
        NOW,
    );
    unproven.receive(NOW, props(0, &[0]), None);
    transmit(&mut unproven);
    let message = v2_msg(10, 0, &rpc(10, 0, 40));
    let hurried = |connection: &mut Connection| {
        let arrived = connection.handle_fast_v2(MsgType::Call, NOW, message);
        arrived.is_some()
    };
    assert!(!hurried(&mut unproven));
    unproven.handle_auth(Verdict::Accept);
    assert!(hurried(&mut unproven));
}

//= V1-033, V1-035 (test)
#[test]
fn a_reply_may_be_handled_in_a_hurry() {
    let after = may_be_handled_in_a_hurry(
        client(Version::V1),
        MsgType::Reply,
        v1_msg(9, &rpc(9, 1, 40)),
        join(&[10, 1, 3, 0, 0, 0, 0], &rpc(10, 1, 40)),
        &[
            (v1_msg(9, &rpc(9, 0, 40)), None),
            (v1_msg(9, &rpc(10, 1, 40)), None),
            (v2_msg(9, 1, &rpc(9, 1, 40)), None),
        ],
    );
    assert_eq!(after.calls().limit(), 3);
}

//= V1-118, V1-132 (test)
#[test]
fn a_call_may_be_handled_in_a_hurry() {
    let call = v1_msg(10, &rpc(10, 0, 40));
    may_be_handled_in_a_hurry(
        server(),
        MsgType::Call,
        v1_msg(9, &rpc(9, 0, 40)),
        call,
        &[
            (call, Some(Handle(7))),
            (v1_msg(9, &rpc(9, 1, 40)), None),
            (v1_msg(9, &rpc(10, 0, 40)), None),
            (v2_msg(9, 0, &rpc(9, 0, 40)), None),
        ],
    );
}

//= V1-092, V1-093, V1-095 (test)
//= V1-104, V1-106, V1-111 (test)
#[test]
fn v1_server_answers_bad_headers() {
    for bad in [
        join(&[9, 1, 32, 2, 0, 0, 0], &rpc(9, 0, 40)),
        raw(&[9, 1, 32, 3]),
        raw(&[9, 1, 32, 6, 0, 0, 0]),
        raw(&[9, 1, 32, 1, 0, 0, 0]),
        raw(&[9, 1, 32, 0, 7, 0, 0]),
        v1_msg(9, &rpc(10, 0, 40)),
        v1_msg(9, &rpc(9, 7, 40)),
        v1_msg(9, &[0; 4]),
    ] {
        let mut server = server();
        assert!(matches!(server.receive(NOW, bad, None), Event::Refused(_)));
        assert_eq!(errors(&mut server), [words(&[9, 1, 8, 4, 2])]);
    }
}

//= V1-092, V1-098, V1-099 (test)
//= D-33, D-47 (test)
#[test]
fn v1_client_answers_no_bad_reply() {
    for bad in [
        raw(&[9, 1, 32, 2, 0, 0, 0]),
        raw(&[9, 1, 32, 0, 7, 0, 0]),
        v1_msg(9, &rpc(10, 1, 40)),
        v1_msg(9, &[0; 4]),
    ] {
        let mut client = client(Version::V1);
        let event = client.receive(NOW, bad, None);
        assert!(
            matches!(event, Event::Failed { xid: Xid(9), .. }),
            "{event:?}"
        );
        assert!(transmit(&mut client).is_empty());
    }
}

//= V1-003, V1-024, V1-118 (test)
//= V1-131, V1-132, D-33 (test)
//= D-47 (test)
#[test]
fn whose_xid_it_is_follows_from_the_rpc_message() {
    let chunks = |msg_type| join(&[9, 1, 32, 0, 0, 0, 1, 0], &rpc(9, msg_type, 40));
    // A message that is no Reply ends no RPC of the client, even if it is invalid.
    for call in [chunks(0), v1_msg(9, &rpc(10, 0, 40))] {
        let mut client = client(Version::V1);
        let event = client.receive(NOW, call, None);
        assert!(matches!(event, Event::Refused(_)), "{event:?}");
        assert_eq!(errors(&mut client), [words(&[9, 1, 8, 4, 2])]);
    }
    // A message that is no Reply of the client ends no RPC of the server.
    let mut server = server();
    let event = server.receive(NOW, v1_msg(9, &rpc(10, 1, 40)), None);
    assert!(
        matches!(event, Event::Refused(BadHeader::XidMismatch)),
        "{event:?}"
    );
    let event = server.receive(NOW, chunks(1), None);
    assert!(
        matches!(event, Event::Failed { xid: Xid(9), .. }),
        "{event:?}"
    );
    let event = server.receive(NOW, chunks(0), None);
    assert!(matches!(event, Event::Call(_)), "{event:?}");
}

//= V1-098, V1-099, V2-166 (test)
//= D-05 (test)
#[test]
fn errors_are_never_answered() {
    for side in [Side::Client, Side::Server] {
        for (error, dropped) in [
            (raw(&[9, 1, 32, 4]), true),
            (raw(&[9, 1, 32, 4, 1, 1]), true),
            (raw(&[9, 1, 32, 4, 1, 3, 2]), true),
            (raw(&[9, 3, 32, 4, 1, 1, 1]), true),
            (raw(&[9, 1, 32, 4, 2]), false),
        ] {
            let mut connection = match side {
                Side::Client => client(Version::V1),
                Side::Server => server(),
            };
            let event = connection.receive(NOW, error, None);
            assert_eq!(matches!(event, Event::Dropped), dropped, "{error:?}");
            assert!(transmit(&mut connection).is_empty());
        }
    }
}

//= V1-094, V2-004, V2-060 (test)
//= V2-065, D-03, D-04 (test)
//= D-32 (test)
#[test]
fn a_server_answers_versions_it_does_not_speak() {
    let unknown = join(&[9, 3, 77, 0, 0, 0, 0], &rpc(9, 0, 40));
    let mut server = server();
    server.receive(NOW, unknown, None);
    assert_eq!(errors(&mut server), [words(&[9, 3, 8, 4, 1, 1, 2])]);
    // The first message that is known settles it; then also the other one is refused.
    server.receive(NOW, v1_msg(9, &rpc(9, 0, 40)), None);
    assert_eq!(server.version(), Some(Version::V1));
    server.receive(NOW, v2_msg(9, 0, &rpc(9, 0, 40)), None);
    assert_eq!(errors(&mut server), [words(&[9, 2, 8, 4, 1, 1, 2])]);
    let mut v1_only = Connection::server(v1_only(), &[], NOW);
    v1_only.receive(NOW, props(0, &[0]), None);
    assert_eq!(errors(&mut v1_only), [words(&[0xabc, 2, 8, 4, 1, 1, 1])]);
}

//= V1-006, V1-032, V1-033 (test)
//= V1-034, V1-036, V1-038 (test)
//= V1-043, V1-099, V1-119 (test)
//= V1-120 (test)
#[test]
fn v1_calls_wait_for_the_grant() {
    let mut client = client(Version::V1);
    let first = send(&mut client, &call(1)).unwrap();
    assert_eq!(first, words(&[1, 1, 16, 0, 0, 0, 0]));
    assert_eq!(send(&mut client, &call(2)), Err(SendError::NoCredit));
    let reply = join(&[1, 1, 2, 0, 0, 0, 0], &rpc(1, 1, 24));
    assert!(matches!(client.receive(NOW, reply, None), Event::Reply(_)));
    client.handle_call_ended();
    // Of a malformed error, the grant is not used either.
    let malformed = client.receive(NOW, raw(&[1, 1, 9, 4, 1, 3, 2]), None);
    assert!(matches!(malformed, Event::Dropped));
    assert_eq!(client.calls().limit(), 2);
    send(&mut client, &call(2)).unwrap();
    send(&mut client, &call(3)).unwrap();
    assert_eq!(send(&mut client, &call(4)), Err(SendError::NoCredit));
}

//= V1-118, V1-119, V1-120 (test)
//= V1-130, V1-131, V1-132 (test)
//= V1-133, D-49, NFS-052 (test)
//= NFS-053 (test)
#[test]
fn v1_reverse_calls_are_plain_and_have_xids_of_their_own() {
    let mut server = server();
    server.receive(NOW, v1_msg(9, &rpc(9, 0, 40)), None);
    let sent = send(&mut server, &call(9)).unwrap();
    assert_eq!(sent, words(&[9, 1, 16, 0, 0, 0, 0]));
    assert_eq!(send(&mut server, &call(10)), Err(SendError::NoCredit));
    let mut client = client(Version::V1);
    send(&mut client, &call(9)).unwrap();
    let reverse = [sent, rpc(9, 0, 40)].concat();
    let event = client.receive(NOW, &reverse, None);
    assert!(matches!(event, Event::Call(arrived) if arrived.fixed.xid == Xid(9)));
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(9)
    };
    let answer = send(&mut client, &reply).unwrap();
    assert_eq!(answer, words(&[9, 1, 8, 0, 0, 0, 0]));
    let answer = [answer, rpc(9, 1, 24)].concat();
    assert!(matches!(
        server.receive(NOW, &answer, None),
        Event::Reply(_)
    ));
    server.handle_call_ended();
    let long = Outgoing {
        kind: Kind::Nomsg,
        ..call(11)
    };
    assert_eq!(send(&mut server, &long), Err(SendError::NotSupported));
}

//= V1-044, V1-045, V1-046 (test)
//= V1-047, V2-055, V2-057 (test)
//= V2-063, V2-067, CM-008 (test)
//= CM-032, D-32 (test)
#[test]
fn thresholds_follow_the_version() {
    let server = CmPrivate {
        remote_invalidation: true,
        send_size: 2048,
        recv_size: 3072,
    };
    let peer = server.encode();
    let v1 = Connection::client(config(), Opening::InBand(Version::V1), &peer, NOW);
    assert_eq!((v1.inline_send(), v1.inline_recv()), (3072, 2048));
    assert!(v1.cm().remote_invalidation);
    let mut v2 = Connection::client(config(), Opening::InBand(Version::V2), &peer, NOW);
    assert_eq!((v2.inline_send(), v2.inline_recv()), (4096, 4096));
    transmit(&mut v2);
    v2.receive(NOW, props(0, &[2, 2, 4, 6000, 1, 4, 7000]), None);
    assert_eq!((v2.inline_send(), v2.inline_recv()), (6000, 7000));
    let mut limits = Limits::v1(0, 0);
    v2.apply(&mut limits);
    assert_eq!((limits.version, limits.inline_send), (Version::V2, 6000));
    assert_eq!(
        (limits.header_segments, limits.segment_bytes),
        (16, 1 << 20)
    );
    assert_eq!(config().receive_size(None), 8192);
    let small = Config {
        cm_private: CmPrivate::DEFAULT,
        properties: Properties::DEFAULT,
        ..config()
    };
    assert_eq!(small.receive_size(None), 4096);
    let v1_only = Config {
        versions: Versions::V1,
        ..small
    };
    assert_eq!(v1_only.receive_size(None), 1024);
    // Small Receives would be against the rules, with any announcement.
    let tiny = Config {
        properties: Properties {
            recv_size: 1024,
            ..Properties::DEFAULT
        },
        ..small
    };
    assert_eq!(tiny.receive_size(None), 4096);
    assert_eq!(tiny.receive_size(Some(Version::V2)), 4096);
}

/// Messages before the version is settled fit either version, and later messages fit the settled
/// version.
//= V1-045, V2-056, D-24 (test)
#[test]
fn buffers_follow_the_version() {
    for (v1, v2, before) in [(4096, 8192, 8192), (16384, 8192, 16384)] {
        let both = Config {
            cm_private: CmPrivate {
                send_size: v1,
                recv_size: v1,
                ..CmPrivate::DEFAULT
            },
            properties: Properties {
                send_size: v2,
                recv_size: v2,
                ..Properties::DEFAULT
            },
            ..config()
        };
        let v1_only = Config {
            versions: Versions::V1,
            ..both
        };
        for (config, version, len) in [
            (both, None, before),
            (both, Some(Version::V1), v1),
            (both, Some(Version::V2), v2),
            (v1_only, None, v1),
            (v1_only, Some(Version::V1), v1),
        ] {
            assert_eq!(config.receive_size(version), len);
            assert_eq!(config.send_size(version), len);
        }
    }
}

//= V1-133, V2-170, D-49 (test)
//= NFS-053 (test)
#[test]
fn calls_of_a_server_name_no_memory() {
    let long = |send, receive| {
        let part = |len| Buf {
            pages: Part {
                len,
                page_offset: 0,
            },
            ..Buf::default()
        };
        CallShape {
            send: part(send),
            arguments: &[],
            receive: part(receive),
            results: &[],
            protected: false,
        }
    };
    let planned = |connection: &Connection, send, receive| {
        let mut limits = Limits::v1(0, 0);
        connection.apply(&mut limits);
        plan(&long(send, receive), &limits)
    };
    let mut v1_server = server();
    v1_server.receive(NOW, v1_msg(9, &rpc(9, 0, 40)), None);
    assert!(planned(&v1_server, 900, 900).is_ok());
    for (send, receive) in [(3000, 900), (900, 3000), (3000, 3000)] {
        assert!(planned(&v1_server, send, receive).is_err());
        assert!(planned(&client(Version::V1), send, receive).is_ok());
        let in_parts = planned(&v2_server(), 3 * send, 3 * receive).unwrap();
        assert_eq!((in_parts.kind(), in_parts.segments()), (Kind::Msg, 0));
    }
}

// Version 2.

//= V2-010, V2-019, V2-028 (test)
//= V2-054, V2-058, V2-136 (test)
//= V2-137, D-12, D-19 (test)
//= D-20 (test)
#[test]
fn a_client_opens_with_its_properties_and_waits() {
    let mut client = Connection::client(config(), Opening::InBand(Version::V2), &[], NOW);
    assert_eq!(client.send_credits().balance(), 1);
    assert_eq!(server().send_credits().balance(), 0);
    let sent = transmit(&mut client);
    assert_eq!(sent.len(), 1);
    assert_eq!(client.send_credits().balance(), 0);
    assert!((28..=1024).contains(&sent[0].len()));
    assert_eq!(sent[0][..20], words(&[0xc1, 2, 0x0020_0020, 5, 0]));
    assert_eq!(send(&mut client, &call(1)), Err(SendError::NotReady));
    client.receive(NOW, props(0, &[0]), None);
    assert!(client.is_settled());
    assert!(send(&mut client, &call(1)).is_ok());
}

//= V2-059, V2-064, D-12 (test)
#[test]
fn a_server_answers_with_its_properties_first() {
    let mut server = server();
    assert!(transmit(&mut server).is_empty());
    let event = server.receive(NOW, v2_msg(9, 0, &rpc(9, 0, 40)), None);
    assert!(matches!(event, Event::Call(_)));
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(9)
    };
    assert_eq!(send(&mut server, &reply), Err(SendError::NotReady));
    assert_eq!(transmit(&mut server)[0][15], 5);
    assert!(send(&mut server, &reply).is_ok());
}

//= V2-047, V2-048, D-10 (test)
//= D-12 (test)
#[test]
fn with_one_credit_the_reply_goes_first() {
    for credit in [0x0010_0001, 0] {
        let mut server = server();
        let first = join(&[9, 2, credit, 0, 0, 0, 0, 0, 0], &rpc(9, 0, 40));
        server.receive(NOW, first, None);
        assert_eq!(server.counters().zero_grants, u64::from(credit == 0));
        assert_eq!(server.send_credits().balance(), 1);
        assert!(transmit(&mut server).is_empty());
        let reply = Outgoing {
            direction: MsgType::Reply,
            ..call(9)
        };
        assert!(send(&mut server, &reply).is_ok());
        server.handle_sent(1);
        assert_eq!(send(&mut server, &reply), Err(SendError::NotReady));
        server.receive(NOW, v2_msg(10, 0, &rpc(10, 0, 40)), None);
        assert_eq!(transmit(&mut server)[0][15], 5);
    }
}

/// A first message that is answered by an error changes nothing for the Call that follows.
//= V2-047, D-12 (test)
#[test]
fn with_one_credit_the_reply_goes_first_after_an_error() {
    let bad = raw(&[8, 2, 0x0010_0001, 9, 0]);
    let refused = join(&[8, 2, 0x0010_0001, 0, 0, 0, 0, 0, 0], &rpc(8, 0, 40));
    for first in [bad, refused] {
        let mut server = server();
        if let Event::Call(arrived) = server.receive(NOW, first, None) {
            server.refuse(&arrived.fixed, ErrorReport::System).unwrap();
        }
        // It takes the credit that there is.
        assert_eq!(transmit(&mut server)[0][15], 4);
        assert_eq!(server.send_credits().balance(), 0);
        let next = join(&[9, 2, 0x0010_0001, 0, 0, 0, 0, 0, 0], &rpc(9, 0, 40));
        let event = server.receive(NOW, next, None);
        assert!(matches!(event, Event::Call(_)), "{event:?}");
        assert!(transmit(&mut server).is_empty());
        let reply = Outgoing {
            direction: MsgType::Reply,
            ..call(9)
        };
        assert!(send(&mut server, &reply).is_ok());
        server.handle_sent(1);
        server.receive(NOW, v2_msg(10, 0, &rpc(10, 0, 40)), None);
        assert_eq!(transmit(&mut server)[0][15], 5);
    }
}

//= V2-038, V2-040, V2-047 (test)
//= D-12, D-14 (test)
#[test]
fn the_reply_that_goes_first_may_have_parts() {
    let mut server = server();
    let first = join(&[9, 2, 0x0010_0001, 0, 0, 0, 0, 0, 0], &rpc(9, 0, 40));
    server.receive(NOW, first, None);
    let grant = raw(&[0, 2, 0x0010_0001, 1, 0, 0, 0, 0, 0]);
    for more in [true, true, false] {
        assert!(transmit(&mut server).is_empty());
        let part = Outgoing {
            direction: MsgType::Reply,
            more,
            ..call(9)
        };
        assert!(send(&mut server, &part).is_ok());
        server.handle_sent(1);
        assert_eq!(server.poll_timeout(true), None);
        server.receive(NOW, grant, None);
    }
    // The sequence that excludes other messages has ended.
    assert_eq!(transmit(&mut server)[0][15], 5);
}

//= D-12 (test)
#[test]
fn a_missing_reply_does_not_silence_a_server() {
    let mut server = server();
    let first = join(&[9, 2, 0x0010_0001, 0, 0, 0, 0, 0, 0], &rpc(9, 0, 40));
    server.receive(NOW, first, None);
    assert!(transmit(&mut server).is_empty());
    let due = server.poll_timeout(false).unwrap();
    assert_eq!(transmit_at(&mut server, due, false)[0][15], 5);
}

//= V2-044, V2-046, V2-047 (test)
//= V2-054, D-09, D-12 (test)
//= D-13 (test)
#[test]
fn what_may_be_sent_is_what_was_granted() {
    let mut server = server();
    server.receive(NOW, props(0, &[0]), None);
    // Four were granted, one goes to the property set.
    assert_eq!(server.send_credits().balance(), 4);
    transmit(&mut server);
    for xid in 0..3 {
        send(&mut server, &call(xid)).unwrap();
    }
    assert_eq!(send(&mut server, &call(3)), Err(SendError::NoCredit));
}

//= V2-011, V2-029, V2-031 (test)
//= V2-033, V2-034, V2-035 (test)
//= V2-142, V2-145, V2-146 (test)
//= V2-147, V2-122, V2-123 (test)
//= D-01, D-03, D-04 (test)
//= D-16, D-18 (test)
#[test]
fn v2_bad_messages_with_calls_are_answered_on_both_sides() {
    for (bad, code) in [
        (raw(&[9, 2, CREDIT, 2, 0, 0, 0, 0, 0]), 3),
        (raw(&[9, 2, CREDIT, 9, 0]), 3),
        (v2_msg(9, 4, &rpc(9, 0, 40)), 4),
        (raw(&[9, 2, CREDIT, 1, 2, 0, 1]), 4),
        // Which of the two MUSTs holds for an unknown type with MORE, the order of the words decides.
        (raw(&[9, 2, CREDIT, 7, 2]), 3),
        (raw(&[9, 2, CREDIT, 0, 0, 0, 3]), 2),
        (raw(&[9, 2, CREDIT, 1, 0, 0, 0, 0, 0]), 2),
        (v2_msg(9, 0, &rpc(9, 1, 40)), 4),
        (v2_msg(9, 0, &rpc(10, 0, 40)), 2),
        (v2_msg(9, 0, &[0, 0, 0, 9]), 2),
        (v2_msg(9, 0, &[]), 2),
        (raw(&[9, 2, CREDIT, 5, 0, 1, 2, 2, 0]), 2),
    ] {
        for mut connection in [v2_server(), v2_client()] {
            let event = connection.receive(NOW, bad, None);
            assert!(matches!(event, Event::Refused(_)), "{bad:?}: {event:?}");
            let answer = words(&[9, 2, 0x0020_0001, 4, 1, code]);
            assert_eq!(errors(&mut connection), [answer]);
        }
    }
}

//= V2-025, V2-030, V2-107 (test)
//= V2-141, D-04, D-18 (test)
//= D-33 (test)
#[test]
fn v2_bad_replies_fail_and_are_not_answered() {
    for bad in [
        v2_msg(9, 9, &rpc(9, 1, 40)),
        raw(&[9, 2, CREDIT, 0, 1, 0, 3]),
        raw(&[9, 2, CREDIT, 1, 1, 0, 0, 0, 0]),
        v2_msg(9, 1, &rpc(9, 0, 40)),
        v2_msg(9, 1, &rpc(10, 1, 40)),
    ] {
        for mut connection in [v2_server(), v2_client()] {
            let event = connection.receive(NOW, bad, None);
            let failed = matches!(event, Event::Failed { xid: Xid(9), .. });
            assert!(failed, "{bad:?}: {event:?}");
            assert!(errors(&mut connection).is_empty());
        }
    }
}

//= V2-011, V2-028, V2-122 (test)
//= D-04, D-19 (test)
#[test]
fn only_replies_end_rpcs() {
    for bad in [
        raw(&[9, 2, CREDIT, 2, 1, 0, 0, 0, 0]),
        raw(&[9, 2, CREDIT, 9, 1]),
        raw(&[9, 2, CREDIT, 5, 1, 1, 2, 2, 0]),
        raw(&[9, 2, CREDIT, 5, 5, 0]),
        raw(&[9, 2, CREDIT, 5, 1]),
    ] {
        for mut connection in [v2_server(), v2_client()] {
            let dropped = connection.counters().dropped;
            let event = connection.receive(NOW, bad, None);
            assert!(matches!(event, Event::Dropped), "{bad:?}: {event:?}");
            assert_eq!(connection.counters().dropped, dropped + 1);
            assert!(errors(&mut connection).is_empty());
        }
    }
    // Nor does one that breaks in on a Call: the Call is answered, the other not.
    let mut server = v2_server();
    server.receive(NOW, v2_msg(9, 2, &rpc(9, 0, 40)), None);
    let event = server.receive(NOW, raw(&[9, 2, CREDIT, 9, 1]), None);
    assert!(matches!(event, Event::Dropped), "{event:?}");
    let answer = words(&[9, 2, 0x0020_0001, 4, 1, 4]);
    assert_eq!(errors(&mut server), [answer]);
}

//= V2-044, V2-046, V2-143 (test)
//= D-03, D-09 (test)
#[test]
fn credits_of_messages_that_are_not_understood_count() {
    for message in [
        raw(&[9, 2, 0x0020_0003, 9, 1]),
        raw(&[9, 2, 0x0020_0003, 9, 0]),
        v2_msg(9, 8, &rpc(9, 0, 40)),
        raw(&[9, 2, 0x0020_0003, 0, 1, 0, 7]),
    ] {
        let mut client = v2_client();
        let balance = client.send_credits().balance();
        client.receive(NOW, message, None);
        assert!(client.send_credits().balance() > balance, "{message:?}");
    }
}

//= V2-018, V2-163, V2-165 (test)
//= D-02, D-31 (test)
#[test]
fn errors_on_a_settled_connection_are_of_its_version() {
    for (code, report) in [
        (2, ErrorReport::BadXdr),
        (10, ErrorReport::System),
        (99, ErrorReport::Unknown(99)),
    ] {
        // With a word behind it, it is as long as ERR_VERS in version 1.
        let error = raw(&[9, 2, CREDIT, 4, 1, code, 0]);
        let event = v2_client().receive(NOW, error, None);
        let same = matches!(event, Event::Error { xid: Xid(9), report: found } if found == report);
        assert!(same, "{event:?}");
    }
}

//= V2-143, V2-165, V2-166 (test)
//= V2-167, D-05, D-46 (test)
#[test]
fn v2_errors_grant_nothing_and_are_not_answered() {
    let mut client = v2_client();
    let balance = client.send_credits().balance();
    for error in [
        raw(&[9, 2, 0x0020_0009, 4, 1, 8, 1]),
        raw(&[9, 2, 0x0020_0009, 4, 0, 1, 1, 1]),
        raw(&[9, 2, 0x0020_0009, 4, 1]),
        raw(&[9, 2, 0x0020_0009, 0]),
        raw(&[9, 2, 0x0020_0009, 4, 1, 1, 3, 2]),
    ] {
        assert!(matches!(client.receive(NOW, error, None), Event::Dropped));
    }
    // With RESPONSE or without: it can be about a message of its receiver only.
    for flags in [1, 0] {
        let error = raw(&[9, 2, 0x0020_0009, 4, flags, 10]);
        assert!(matches!(
            client.receive(NOW, error, None),
            Event::Error {
                xid: Xid(9),
                report: ErrorReport::System
            }
        ));
    }
    let version = raw(&[9, 2, 0x0020_0009, 4, 1, 1, 1]);
    assert!(matches!(
        client.receive(NOW, version, None),
        Event::Error { .. }
    ));
    assert_eq!(client.send_credits().balance(), balance);
    assert!(errors(&mut client).is_empty());
}

//= V2-025, V2-030, V2-169 (test)
//= V1-118 (test)
#[test]
fn response_tells_whose_xid_it_is() {
    for mut connection in [v2_server(), v2_client()] {
        let call = v2_msg(9, 0, &rpc(9, 0, 40));
        assert!(matches!(
            connection.receive(NOW, call, None),
            Event::Call(_)
        ));
        let reply = v2_msg(9, 1, &rpc(9, 1, 40));
        assert!(matches!(
            connection.receive(NOW, reply, None),
            Event::Reply(_)
        ));
    }
}

//= V2-032, V2-036, V2-037 (test)
//= V2-041, V2-078, D-15 (test)
//= D-17 (test)
#[test]
fn parts_arrive_as_one_call() {
    let mut server = v2_server();
    let message = rpc(9, 0, 100);
    for (from, to, flags) in [(0, 5, 2), (5, 30, 2), (30, 100, 0)] {
        let part = v2_msg(9, flags, &message[from..to]);
        match server.receive(NOW, part, None) {
            Event::Call(arrived) => {
                assert_eq!(arrived.part.offset as usize, from);
                assert_eq!(arrived.part.len as usize, to);
                assert_eq!(arrived.more, flags == 2);
            }
            event => panic!("{event:?}"),
        }
    }
    assert!(!server.is_joining());
    // Too much is refused once, and the rest of it let pass.
    let mut refused = 0;
    for part in 0..6 {
        let octets = if part == 0 {
            &rpc(8, 0, 3000)[..]
        } else {
            &[0; 3000]
        };
        let flags = if part == 5 { 0 } else { 2 };
        let event = server.receive(NOW, v2_msg(8, flags, octets), None);
        refused += u32::from(matches!(event, Event::Refused(BadHeader::TooLong)));
        // The parts that have arrived are kept if no part was refused.
        assert_eq!(server.is_joining(), refused == 0);
    }
    assert_eq!(refused, 1);
    let system = words(&[8, 2, 0x0020_0001, 4, 1, 10]);
    assert_eq!(errors(&mut server), [system]);
    let next = server.receive(NOW, v2_msg(7, 0, &rpc(7, 0, 40)), None);
    assert!(matches!(next, Event::Call(_)));
    // Nor may the last part alone be too much, even by one octet.
    for (len, taken) in [(10_000, true), (10_001, false)] {
        let message = rpc(6, 0, len);
        let (first, last) = message.split_at(9000);
        server.receive(NOW, v2_msg(6, 2, first), None);
        let event = server.receive(NOW, v2_msg(6, 0, last), None);
        assert_eq!(matches!(event, Event::Call(_)), taken, "{event:?}");
        assert_eq!(errors(&mut server).len(), usize::from(!taken));
    }
}

//= V2-033, D-14, D-15 (test)
#[test]
fn a_broken_call_costs_both_xids() {
    let mut server = v2_server();
    server.receive(NOW, v2_msg(9, 2, &rpc(9, 0, 40)), None);
    // Grants and errors may stand between the parts.
    let grant = raw(&[0, 2, CREDIT, 1, 0, 0, 0, 0, 0]);
    assert!(matches!(server.receive(NOW, grant, None), Event::None));
    let error = raw(&[77, 2, CREDIT, 4, 1, 2]);
    assert!(matches!(
        server.receive(NOW, error, None),
        Event::Error { .. }
    ));
    let other = server.receive(NOW, v2_msg(10, 0, &rpc(10, 0, 40)), None);
    assert!(matches!(other, Event::Refused(BadHeader::BrokenSequence)));
    let answers = [10, 9].map(|xid| words(&[xid, 2, 0x0020_0001, 4, 1, 4]));
    assert_eq!(errors(&mut server), answers);
    // Another type breaks it as well.
    server.receive(NOW, v2_msg(9, 2, &rpc(9, 0, 40)), None);
    let set = join(&[9, 2, CREDIT, 5, 0], &words(&[0]));
    assert!(matches!(server.receive(NOW, set, None), Event::Refused(_)));
    assert_eq!(errors(&mut server), [answers[1].clone()]);
}

//= V2-033, V2-141, D-04 (test)
//= D-15 (test)
#[test]
fn a_broken_reply_costs_the_connection() {
    let mut client = v2_client();
    client.receive(NOW, v2_msg(9, 3, &rpc(9, 1, 40)), None);
    let event = client.receive(NOW, v2_msg(10, 1, &rpc(10, 1, 40)), None);
    let closes = matches!(
        event,
        Event::Close {
            why: CloseReason::BrokenSequence,
            fail: Some(Xid(9))
        }
    );
    assert!(closes, "{event:?}");
    assert!(errors(&mut client).is_empty());
    let mut server = v2_server();
    server.receive(NOW, v2_msg(9, 2, &rpc(9, 0, 40)), None);
    let event = server.receive(NOW, v2_msg(10, 1, &rpc(10, 1, 40)), None);
    assert!(matches!(
        event,
        Event::Close {
            fail: Some(Xid(10)),
            ..
        }
    ));
}

//= V2-038, V2-039, V2-040 (test)
//= D-14 (test)
#[test]
fn parts_are_sent_without_anything_between_but_grants() {
    let mut client = v2_client();
    let first = Outgoing {
        more: true,
        ..call(1)
    };
    send(&mut client, &first).unwrap();
    assert!(client.is_sending_parts());
    assert_eq!(send(&mut client, &call(2)), Err(SendError::Busy));
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(1)
    };
    assert_eq!(send(&mut client, &reply), Err(SendError::Busy));
    client.receive(NOW, raw(&[9, 2, CREDIT, 9, 0]), None);
    assert!(errors(&mut client).is_empty());
    while send(&mut client, &first).is_ok() {}
    assert_eq!(send(&mut client, &first), Err(SendError::NoCredit));
    client.receive(NOW, raw(&[0, 2, 0x00ff_0001, 1, 0, 0, 0, 0, 0]), None);
    send(&mut client, &call(1)).unwrap();
    assert!(!client.is_sending_parts());
    client.receive(NOW, raw(&[0, 2, 0x00ff_0001, 1, 0, 0, 0, 0, 0]), None);
    assert_eq!(errors(&mut client).len(), 1);
}

//= V2-040, D-14, D-15 (test)
#[test]
fn what_is_not_finished_costs_the_connection() {
    let mut client = v2_client();
    let first = Outgoing {
        more: true,
        ..call(1)
    };
    send(&mut client, &first).unwrap();
    assert!(matches!(client.abandon(Xid(2)), Event::None));
    let event = client.abandon(Xid(1));
    let why = CloseReason::Abandoned;
    assert!(matches!(event, Event::Close { why: found, fail: None } if found == why));
    let mut whole = v2_client();
    send(&mut whole, &call(1)).unwrap();
    assert!(matches!(whole.abandon(Xid(1)), Event::None));
}

//= V2-047, D-09 (test)
#[test]
fn completions_may_be_reported_together() {
    for ceiling in [1, 2, 3, 15, 64] {
        let mut client = client(Version::V2);
        let grant = (ceiling << 16) | ceiling;
        let set = join(&[1, 2, grant, 5, 0], &words(&[0]));
        client.receive(NOW, set, None);
        client.handle_sent(9);
        let mut unreported = 0;
        for xid in 0..1000 {
            assert!(send(&mut client, &call(xid)).is_ok(), "{ceiling}: {xid}");
            unreported += 1;
            if client.wants_completion() {
                client.handle_sent(unreported);
                unreported = 0;
            }
            let reply = join(
                &[xid, 2, (ceiling << 16) | 1, 0, 1, 0, 0, 0, 0],
                &rpc(xid, 1, 24),
            );
            client.receive(NOW, reply, None);
        }
        assert!(unreported < ceiling.div_ceil(2));
    }
}

//= D-09 (test)
#[test]
fn so_many_sends_may_go_without_a_completion() {
    for ceiling in [1, 2, 3, 15, 64] {
        let mut client = client(Version::V2);
        let grant = (ceiling << 16) | ceiling;
        let set = join(&[1, 2, grant, 5, 0], &words(&[0]));
        client.receive(NOW, set, None);
        client.handle_sent(1);
        assert_eq!(client.send_credits().ceiling(), ceiling);
        // One of several Sends asks for a completion, which is reported when the next Send asks.
        let (mut unasked, mut asked) = (0, 0);
        for xid in 0..1000 {
            if !client.may_send(|| NOW, MsgType::Call, 1) {
                client.handle_sent(asked);
                asked = 0;
            }
            assert!(send(&mut client, &call(xid)).is_ok(), "{ceiling}: {xid}");
            unasked += 1;
            if unasked >= client.send_credits().unsignaled() {
                asked += unasked;
                unasked = 0;
            }
            let reply = join(
                &[xid, 2, (ceiling << 16) | 1, 0, 1, 0, 0, 0, 0],
                &rpc(xid, 1, 24),
            );
            client.receive(NOW, reply, None);
        }
    }
}

//= V2-044, V2-047, D-12 (test)
#[test]
fn what_may_be_sent_can_be_asked() {
    let mut server = server();
    assert!(!server.may_send(|| NOW, MsgType::Reply, 1));
    server.receive(NOW, props(0, &[0]), None);
    assert!(!server.may_send(|| NOW, MsgType::Reply, 1));
    transmit(&mut server);
    assert!(server.may_send(|| NOW, MsgType::Reply, 3));
    assert!(!server.may_send(|| NOW, MsgType::Reply, 4));
    for xid in 0..3 {
        assert!(server.may_send(|| NOW, MsgType::Reply, 1));
        send(&mut server, &call(xid)).unwrap();
    }
    assert!(!server.may_send(|| NOW, MsgType::Reply, 1));
    // In version 1 only Calls take credits.
    let mut client = client(Version::V1);
    assert!(client.may_send(|| NOW, MsgType::Call, 1));
    send(&mut client, &call(1)).unwrap();
    assert!(!client.may_send(|| NOW, MsgType::Call, 1));
    assert!(client.may_send(|| NOW, MsgType::Reply, 1));
}

//= V2-038, V2-047 (test)
#[test]
fn a_call_is_taken_up_when_there_is_a_credit_for_its_reply() {
    let grant = |xid: u32, grant: u32| {
        join(
            &[xid, 2, (3 << 16) | grant, 0, 0, 0, 0, 0, 0],
            &rpc(xid, 0, 40),
        )
    };
    let mut server = server();
    assert!(server.may_take_call(0), "no message has come yet");
    server.receive(NOW, props(0, &[0]), None);
    transmit(&mut server);
    server.receive(NOW, grant(1, 0), None);
    assert_eq!(server.send_credits().balance(), 3);
    assert!(server.may_take_call(2));
    assert!(!server.may_take_call(3));
    // Each Reply takes the credit that its Call was taken up with.
    for xid in 0..3 {
        assert!(server.may_take_call(2 - xid));
        let reply = Outgoing {
            direction: MsgType::Reply,
            ..call(xid)
        };
        send(&mut server, &reply).unwrap();
    }
    assert!(!server.may_take_call(0));
    // Any number of Calls without a grant changes no count.
    for xid in 10..20 {
        server.receive(NOW, grant(xid, 0), None);
        assert!(!server.may_take_call(0));
    }
    // Credits that wait for completions are not there yet.
    server.receive(NOW, grant(20, 2), None);
    assert!(!server.may_take_call(0));
    server.handle_sent(3);
    assert!(server.may_take_call(1));
    assert!(!server.may_take_call(2));
    // In version 1 a Reply takes none.
    assert!(client(Version::V1).may_take_call(u32::MAX));
}

//= V2-038, V2-039 (test)
#[test]
fn a_message_goes_on_when_there_is_a_credit() {
    let mut client = v2_client();
    let part = Outgoing {
        more: true,
        ..call(1)
    };
    assert!(!client.may_go_on());
    for _ in 0..4 {
        assert!(client.may_send(|| NOW, MsgType::Call, 1) != client.may_go_on());
        send(&mut client, &part).unwrap();
    }
    // All credits are used; nothing else is sent before the end, and that waits for a grant.
    assert!(!client.may_go_on() && !client.may_send(|| NOW, MsgType::Call, 1));
    assert_eq!(send(&mut client, &part), Err(SendError::NoCredit));
    client.handle_sent(4);
    let grant = raw(&[0, 2, CREDIT, 1, 0, 0, 0, 0, 0]);
    client.receive(NOW, grant, None);
    assert!(client.may_go_on() && !client.may_send(|| NOW, MsgType::Call, 1));
    send(&mut client, &call(1)).unwrap();
    assert!(!client.may_go_on() && client.may_send(|| NOW, MsgType::Call, 1));
}

//= V2-044 (test)
#[test]
fn calls_of_version_2_need_no_credit_of_version_1() {
    let mut client = v2_client();
    assert_eq!(client.calls().limit(), config().calls);
    send(&mut client, &call(1)).unwrap();
    send(&mut client, &call(2)).unwrap();
    assert_eq!(client.calls().outstanding(), 2);
    client.handle_call_ended();
    assert_eq!(client.calls().outstanding(), 1);
    // A server that continues with version 1 announces the number of Calls that it accepts.
    let mut client = self::client(Version::V2);
    client.receive(NOW, raw(&[0xc1, 1, 8, 4, 1, 1, 1]), None);
    assert_eq!(client.version(), Some(Version::V1));
    assert_eq!(client.calls().limit(), 1);
}

//= V2-037, V2-038, D-11 (test)
#[test]
fn whoever_waits_for_all_credits_of_a_message_gets_them() {
    let client = v2_client();
    // The peer has 16 Receives, and this side 32.
    let (send, recv) = client.continued_at_once();
    assert_eq!(send, config().continued.min(7 * (4096 - 36)));
    assert_eq!(recv, config().continued);
    assert_eq!(self::client(Version::V1).continued_at_once(), (0, 0));
    // Each direction has the Receives and the lengths of its receiver.
    let config = Config {
        continued: 1 << 20,
        ..config()
    };
    let mut client = Connection::client(config, Opening::InBand(Version::V2), &[], NOW);
    transmit(&mut client);
    client.receive(NOW, props(0, &[1, 2, 4, 2048]), None);
    let at_once = (7 * (2048 - 36), 15 * (4096 - 36));
    assert_eq!(client.continued_at_once(), at_once);
    // With fewer credits than that, the peer is short, and gives more.
    for ceiling in [4, 5, 16, 33] {
        for balance in 0..ceiling {
            let mut recv = RecvCredits::new(ceiling, 0);
            recv.grant();
            for _ in balance..ceiling {
                assert!(recv.handle_message());
            }
            let parts = u32::from(ceiling / 2).saturating_sub(1) + 1;
            if u32::from(balance) < parts {
                assert!(recv.is_short(), "{ceiling} {balance}");
                recv.grant();
                assert!(recv.balance() >= parts);
            }
        }
    }
}

//= V2-110, V2-113, D-23 (test)
#[test]
fn calls_offer_a_handle_of_theirs() {
    let lists = Lists {
        writes: vec![vec![segment(5, 4096), segment(6, 4096)]],
        ..Lists::default()
    };
    let handle = |remote_invalidation, message: &Outgoing| {
        let both = config();
        let config = Config {
            cm_private: CmPrivate {
                remote_invalidation,
                ..both.cm_private
            },
            ..both
        };
        let mut client = Connection::client(config, Opening::InBand(Version::V2), &[], NOW);
        transmit(&mut client);
        client.receive(NOW, props(0, &[0]), None);
        let mut out = [0; 256];
        client.send(NOW, &mut out, message, &lists).unwrap();
        out[20..24].to_vec()
    };
    assert_eq!(handle(true, &call(1)), [0, 0, 0, 6]);
    assert_eq!(handle(false, &call(1)), [0; 4]);
    let named = Outgoing {
        inv_handle: Handle(5),
        ..call(1)
    };
    assert_eq!(handle(true, &named), [0, 0, 0, 5]);
}

//= V1-032, V1-033, V1-035 (test)
//= V2-049 (test)
#[test]
fn what_is_offered_may_change() {
    let mut client = client(Version::V1);
    assert_eq!(send(&mut client, &call(1)).unwrap()[8..12], [0, 0, 0, 16]);
    client.receive(NOW, v1_msg(1, &rpc(1, 1, 24)), None);
    client.handle_call_ended();
    assert_eq!(client.calls().limit(), 16);
    client.set_calls(64);
    client.set_grants(3);
    assert_eq!(send(&mut client, &call(2)).unwrap()[8..12], [0, 0, 0, 64]);
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(9)
    };
    assert_eq!(send(&mut client, &reply).unwrap()[8..12], [0, 0, 0, 3]);
    client.receive(NOW, v1_msg(2, &rpc(2, 1, 24)), None);
    assert_eq!(client.calls().limit(), 32);
    client.set_calls(4);
    assert_eq!(client.calls().limit(), 4);
    // A lower ceiling takes effect as the client spends the 32 credits that it has.
    let mut server = v2_server();
    server.set_ceiling(5);
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(9)
    };
    let sent = send(&mut server, &reply).unwrap();
    assert_eq!(sent[8..12], [0, 32, 0, 0]);
    for xid in 0..20 {
        server.receive(NOW, v2_msg(xid, 0, &rpc(xid, 0, 40)), None);
    }
    let sent = send(&mut server, &reply).unwrap();
    assert_eq!(sent[8..12], [0, 12, 0, 0]);
    for xid in 20..29 {
        server.receive(NOW, v2_msg(xid, 0, &rpc(xid, 0, 40)), None);
    }
    let sent = send(&mut server, &reply).unwrap();
    assert_eq!(sent[8..12], [0, 5, 0, 2]);
}

//= V1-034, D-10 (test)
#[test]
fn no_version_1_message_grants_nothing() {
    let nothing = Config {
        grants: 0,
        calls: 0,
        ..v1_only()
    };
    let mut server = Connection::server(nothing, &[], NOW);
    server.receive(NOW, raw(&[9, 1, 32, 6]), None);
    server.receive(NOW, raw(&[9, 7, 32, 0]), None);
    let answers = [words(&[9, 1, 1, 4, 2]), words(&[9, 7, 1, 4, 1, 1, 1])];
    assert_eq!(errors(&mut server), answers);
    let mut client = Connection::client(nothing, Opening::InBand(Version::V1), &[], NOW);
    assert_eq!(send(&mut client, &call(1)).unwrap()[8..12], [0, 0, 0, 1]);
}

//= V2-032, V2-037, V2-139 (test)
//= D-26 (test)
#[test]
fn property_sets_may_come_in_parts() {
    let mut server = server();
    let set = words(&[1, 2, 4, 8192]);
    let first = join(&[0xabc, 2, CREDIT, 5, 2], &set[..6]);
    let last = join(&[0xabc, 2, CREDIT, 5, 0], &set[6..]);
    let event = server.receive(NOW, first, None);
    assert!(matches!(event, Event::Properties { offset: 0, .. }));
    match server.receive(NOW, last, None) {
        Event::Properties {
            fixed,
            flags,
            offset: 6,
            ..
        } if !flags.more => {
            let event = server.handle_properties(&fixed, flags, &set);
            assert!(matches!(event, Event::Ready));
        }
        event => panic!("{event:?}"),
    }
    assert_eq!(server.inline_send(), 8192);
    let part = join(&[0xabc, 2, CREDIT, 5, 2], &[0; 4000]);
    let mut refused = 0;
    for _ in 0..MAX_PROPERTIES / 4000 + 2 {
        let event = server.receive(NOW, part, None);
        refused += u32::from(matches!(event, Event::Refused(BadHeader::TooLong)));
    }
    assert_eq!(refused, 1);
    let mut client = v2_client();
    client.receive(NOW, join(&[0xabc, 2, CREDIT, 5, 2], &[0; 4]), None);
    let empty = client.receive(NOW, join(&[0xabc, 2, CREDIT, 5, 2], &[]), None);
    assert!(matches!(empty, Event::Refused(BadHeader::NoPayload)));
}

//= V2-032, V2-038, V2-040 (test)
//= V2-134, V2-139, D-14 (test)
//= D-26, D-50 (test)
#[test]
fn long_material_is_sent_in_parts() {
    let config = Config {
        auth: Policy::Optional,
        ..config()
    };
    let mut server = Connection::server(config, &[], NOW);
    let mut client = v2_client();
    let mut out = vec![0; 8192];
    let material = [7; 9000];
    let long = client.send_hostauth(NOW, &mut out, &material[..5000]);
    assert_eq!(long, Err(SendError::NoRoom));
    let mut set = vec![0; SET_LEN + HOSTAUTH_LEN + material.len()];
    let mut writer = Writer::new(&mut set);
    config
        .properties
        .encode_with(&mut writer, &material)
        .unwrap();
    let mut joined = Vec::new();
    let mut parts = set.chunks(4000).peekable();
    while let Some(part) = parts.next() {
        let more = parts.peek().is_some();
        let len = client.send_properties(&mut out, part, more).unwrap();
        client.handle_sent(1);
        assert_eq!(send(&mut client, &call(1)).is_err(), more);
        let message = out[..len].to_vec().leak();
        let Event::Properties {
            fixed,
            flags,
            octets,
            offset,
        } = server.receive(NOW, message, None)
        else {
            panic!("no part of a property set");
        };
        assert_eq!((offset as usize, flags.more), (joined.len(), more));
        joined.extend_from_slice(octets);
        if !more {
            let event = server.handle_properties(&fixed, flags, &joined);
            assert!(matches!(event, Event::HostAuth(found) if found == material));
        }
    }
}

//= V2-119, V2-133, V2-138 (test)
//= D-21, D-24 (test)
#[test]
fn only_the_first_property_set_counts() {
    let mut server = server();
    server.receive(NOW, props(0, &[1, 2, 4, 2048]), None);
    assert_eq!(server.inline_send(), 2048);
    server.receive(NOW, props(0, &[1, 2, 4, 8192]), None);
    assert_eq!(server.inline_send(), 2048);
    let mut client = client(Version::V2);
    let small = client.receive(NOW, props(0, &[1, 2, 4, 1023]), None);
    let why = CloseReason::SmallReceives;
    assert!(matches!(small, Event::Close { why: found, .. } if found == why));
    let mut memory = PeerVersionMemo::default();
    client.handle_lost(NOW, &mut memory);
    assert_eq!(memory.first(NOW, Versions::BOTH), Version::V1);
}

//= V2-132, V2-170, D-28 (test)
//= D-49, NFS-053 (test)
#[test]
fn reverse_calls_follow_what_the_client_takes() {
    for (brs, plain, chunks) in [
        (ReverseSupport::None, false, false),
        (ReverseSupport::Inline, true, false),
        (ReverseSupport::General, true, true),
    ] {
        let number = brs as u32;
        let mut server = server();
        server.receive(NOW, props(0, &[1, 5, 4, number]), None);
        transmit(&mut server);
        assert_eq!(send(&mut server, &call(1)).is_ok(), plain);
        for (xid, lists) in (2..).zip(one_of_each_list()) {
            let mut out = [0; 256];
            let sent = server.clone().send(NOW, &mut out, &call(xid), &lists);
            assert_eq!(sent.is_ok(), chunks, "{sent:?}");
        }
    }
    // No memory is named in version 1.
    for lists in one_of_each_list() {
        let mut server = server();
        server.receive(NOW, v1_msg(9, &rpc(9, 0, 40)), None);
        let sent = server.send(NOW, &mut [0; 256], &call(1), &lists);
        assert_eq!(sent, Err(SendError::NotSupported));
    }
}

/// Lists of chunks with one chunk: a Read chunk, a Write chunk, a Reply chunk.
fn one_of_each_list() -> [Lists; 3] {
    [
        Lists {
            reads: vec![read(40, 1, 100)],
            ..Lists::default()
        },
        Lists {
            writes: vec![vec![segment(1, 100)]],
            ..Lists::default()
        },
        Lists {
            reply: Some(vec![segment(1, 100)]),
            ..Lists::default()
        },
    ]
}

//= V2-051, V2-052, V2-053 (test)
//= D-11 (test)
#[test]
fn grants_go_out_when_the_peer_runs_short() {
    let mut server = v2_server();
    // The property set has granted 32; the client uses them up without any Reply.
    let mut grants = 0;
    for xid in 0..40 {
        server.receive(NOW, v2_msg(xid, 0, &rpc(xid, 0, 40)), None);
        for message in transmit(&mut server) {
            assert_eq!(message.len(), v2::GRANT_LEN);
            grants += 1;
        }
    }
    assert_eq!(server.counters().overruns, 0);
    assert!((1..=4).contains(&grants), "{grants}");
    // An error message cannot give a credit back, so a grant follows.
    let mut server = v2_server();
    server.receive(NOW, raw(&[9, 2, CREDIT, 9, 0]), None);
    let sent = transmit(&mut server);
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[0][15], sent[1].len()), (4, v2::GRANT_LEN));
}

/// A grant takes no credit, so the one Receive that the peer reserves for it has to be free. That is
/// shown by a message that used a credit of the grant, or of a later message.
//= V2-051, V2-052, D-10 (test)
//= D-11 (test)
#[test]
fn a_second_grant_waits_for_the_peer() {
    // The time counts from the grant, not from the start of the connection.
    for start in [NOW, NOW.after(Time(60_000))] {
        let mut server = server();
        server.handle_posted(5);
        server.receive(start, props(0, &[0]), None);
        let transmit = |server: &mut Connection| transmit_at(server, start, false);
        assert_eq!(transmit(&mut server)[0][8..12], [0, 32, 0, 4]);
        let next = |server: &mut Connection, posted| {
            server.receive(start, v2_msg(1, 0, &rpc(1, 0, 40)), None);
            server.handle_posted(posted);
        };
        next(&mut server, 5);
        assert_eq!(transmit(&mut server)[0][8..12], [0, 32, 0, 1]);
        // The client may have sent three more without having looked at the grant.
        for _ in 0..3 {
            next(&mut server, 9);
            assert!(transmit(&mut server).is_empty());
        }
        let mut patient = server.clone();
        let due = patient.poll_timeout(false);
        assert_eq!(due, Some(start.after(config().answer)));
        assert_eq!(transmit_at(&mut patient, due.unwrap(), false).len(), 1);
        next(&mut server, 9);
        assert_eq!(transmit(&mut server)[0][8..12], [0, 32, 0, 8]);
    }
}

/// A peer that waits for credits of half the ceiling receives the lower ceiling.
//= V2-049, V2-051, D-10 (test)
//= D-11 (test)
#[test]
fn a_lower_ceiling_is_told_to_a_peer_that_waits() {
    let mut server = v2_server();
    server.set_ceiling(5);
    for xid in 0..16 {
        server.receive(NOW, v2_msg(xid, 0, &rpc(xid, 0, 40)), None);
    }
    assert!(transmit(&mut server).is_empty());
    server.receive(NOW, v2_msg(16, 0, &rpc(16, 0, 40)), None);
    assert_eq!(transmit(&mut server)[0][8..12], [0, 15, 0, 0]);
    assert!(transmit(&mut server).is_empty());
}

//= V2-051, D-51, NFS-059 (test)
#[test]
fn silent_peers_are_pinged_while_rpcs_wait() {
    let mut client = v2_client();
    assert_eq!(client.poll_timeout(false), None);
    let due = client.poll_timeout(true).unwrap();
    assert_eq!(due, NOW.after(Time(60_000)));
    assert!(transmit_at(&mut client, Time(due.0 - 1), true).is_empty());
    let sent = transmit_at(&mut client, due, true);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].len(), v2::GRANT_LEN);
    assert!(transmit_at(&mut client, due, true).is_empty());
}

//= V2-062, V1-122, D-12 (test)
//= D-32 (test)
#[test]
fn an_unanswered_probe_ends_the_connection() {
    let mut probing = client(Version::V2);
    let due = probing.poll_timeout(false).unwrap();
    assert!(matches!(probing.handle_timeout(NOW), Event::None));
    let event = probing.handle_timeout(due);
    let why = CloseReason::NoAnswer;
    assert!(matches!(event, Event::Close { why: found, .. } if found == why));
    let mut memory = PeerVersionMemo::default();
    probing.handle_lost(due, &mut memory);
    assert_eq!(memory.first(due, Versions::BOTH), Version::V1);
    // A version 1 client asks nothing, and waits for no answer.
    assert_eq!(client(Version::V1).poll_timeout(true), None);
}

/// A client that knows that the server says nothing to a CONNPROP.
fn client_by_call() -> Connection {
    let config = Config {
        xid: Xid(0),
        ..config()
    };
    Connection::client(config, Opening::InBand(Version::V2), &[], NOW)
}

/// A client whose server has announced this version, or none.
fn client_of(config: Config, highest: Option<u8>) -> Connection {
    let data = highest.map(|highest| {
        let peer = CmPrivate::DEFAULT;
        cm_private::encode(&peer, Announcement { highest })
    });
    let data = data.as_ref().map_or(&[][..], |data| data);
    let mut client = Connection::client(config, Opening::Announced, data, NOW);
    assert_eq!(
        client.announcement(),
        highest.map(|highest| Announcement { highest })
    );
    let first = transmit(&mut client);
    let asks = client.version() == Some(Version::V2);
    assert_eq!(first.len(), usize::from(asks), "{first:02x?}");
    assert_eq!(client.is_asking(), asks);
    client
}

//= VA-007, VA-008, VA-009 (test)
//= D-53 (test)
#[test]
fn a_client_opens_with_what_the_server_announces() {
    for highest in [None, Some(0), Some(1)] {
        let mut client = client_of(config(), highest);
        assert_eq!(client.version(), Some(Version::V1));
        // There is nothing to wait for, and no other version to come.
        assert!(!client.may_change_version() && !client.is_asking());
        assert_eq!(client.poll_timeout(true), None);
        assert_eq!(send(&mut client, &call(1)).unwrap()[4..8], words(&[1]));
        let changed = client.receive(NOW, raw(&[1, 1, 32, 4, 1, 2, 2]), None);
        let why = CloseReason::NoCommonVersion;
        assert!(matches!(changed, Event::Close { why: found, .. } if found == why));
    }
    for highest in [2, 3, 255] {
        let mut client = client_of(config(), Some(highest));
        assert_eq!(client.version(), Some(Version::V2));
        let ready = client.receive(NOW, props(0, &[0]), None);
        assert!(matches!(ready, Event::Ready));
    }
    for highest in [None, Some(1), Some(2), Some(3)] {
        assert_eq!(client_of(v1_only(), highest).version(), Some(Version::V1));
    }
    // An announcement may be wrong.
    let mut client = client_of(config(), Some(2));
    let changed = client.receive(NOW, raw(&[0xc1, 2, 32, 4, 1, 1, 1]), None);
    assert!(matches!(changed, Event::VersionChanged { refused: None }));
    assert_eq!(client.version(), Some(Version::V1));
}

//= VA-010, D-53 (test)
#[test]
fn a_server_takes_whatever_its_client_opens_with() {
    for highest in [0, 1, 2, 3] {
        let data = cm_private::encode(&CmPrivate::DEFAULT, Announcement { highest });
        let mut server = Connection::server(config(), &data, NOW);
        assert_eq!(server.announcement(), Some(Announcement { highest }));
        assert_eq!(server.version(), None);
        let ready = server.receive(NOW, props(0, &[0]), None);
        assert!(matches!(ready, Event::Ready));
        let mut server = Connection::server(config(), &data, NOW);
        let called = server.receive(NOW, v1_msg(1, &rpc(1, 0, 40)), None);
        assert!(matches!(called, Event::Call(_)));
    }
    assert_eq!(server().announcement(), None);
}

//= VA-004 (test)
#[test]
fn a_side_announces_the_highest_version_that_it_speaks() {
    for (config, highest) in [(config(), 2), (v1_only(), 1)] {
        let data = config.private_data();
        assert_eq!(data[..8], config.cm_private.encode());
        assert_eq!(
            Announcement::find(&data),
            Some((8, Announcement { highest }))
        );
    }
}

//= V2-135, VA-012, D-50 (test)
#[test]
fn who_has_to_prove_something_cannot_do_without_an_announcement() {
    let demanding = Config {
        auth: Policy::Require,
        ..config()
    };
    for highest in [None, Some(1)] {
        let mut client = client_of(demanding, highest);
        assert!(client.poll_timeout(false).is_some_and(|due| due <= NOW));
        let event = client.handle_timeout(NOW);
        let why = CloseReason::NotAuthenticated;
        assert!(matches!(event, Event::Close { why: found, .. } if found == why));
    }
    let mut client = client_of(demanding, Some(2));
    assert!(matches!(client.handle_timeout(NOW), Event::None));
}

//= V2-058, V2-063, D-20 (test)
//= D-32 (test)
#[test]
fn a_call_may_open_version_2() {
    let mut client = client_by_call();
    assert_eq!((client.inline_send(), client.inline_recv()), (1024, 4096));
    assert!(!client.is_asking() && transmit(&mut client).is_empty());
    // Nothing was asked, and a Call may take its time.
    assert_eq!(client.poll_timeout(true), None);
    let mut memory = PeerVersionMemo::default();
    client.remember(NOW, &mut memory);
    assert_eq!(memory, PeerVersionMemo::default());
    let part = Outgoing {
        more: true,
        ..call(1)
    };
    assert_eq!(send(&mut client, &part), Err(SendError::NotReady));
    assert!(client.may_send(|| NOW, MsgType::Call, 1));
    assert_eq!(send(&mut client, &call(1)).unwrap()[..8], words(&[1, 2]));
    assert!(!client.may_send(|| NOW, MsgType::Call, 1));
    assert_eq!(client.poll_timeout(true), None);
    client.handle_sent(1);
    let event = client.receive(NOW, v2_msg(1, 1, &rpc(1, 1, 24)), None);
    assert!(matches!(event, Event::Reply(_)), "{event:?}");
    assert!(client.is_settled() && transmit(&mut client).is_empty());
    // From here on the default of version 2 holds.
    assert_eq!((client.inline_send(), client.inline_recv()), (4096, 4096));
    assert!(send(&mut client, &call(2)).is_ok());
    // So it is done with the next one, for a while.
    client.handle_lost(NOW, &mut memory);
    assert!(memory.opens_by_call(NOW));
    assert_eq!(memory.first(NOW, Versions::BOTH), Version::V2);
    assert!(!memory.opens_by_call(NOW.after(PeerVersionMemo::KEEP)));
}

//= V2-060, V2-061, V2-062 (test)
//= D-12, D-32 (test)
#[test]
fn a_call_that_opens_version_2_may_be_refused() {
    // For something else: the server speaks version 2.
    let mut client = client_by_call();
    send(&mut client, &call(1)).unwrap();
    client.handle_sent(1);
    let event = client.receive(NOW, raw(&[1, 2, CREDIT, 4, 1, 3]), None);
    let expected = Some(Xid(1));
    assert!(matches!(event, Event::Error { .. }) && event.xid() == expected);
    assert!(client.is_settled() && send(&mut client, &call(1)).is_ok());
    // For its version, or by the end of the connection.
    let mut client = client_by_call();
    send(&mut client, &call(1)).unwrap();
    let mut memory = PeerVersionMemo::default();
    client.remember(NOW, &mut memory);
    assert_eq!(memory.first(NOW, Versions::BOTH), Version::V1);
    let event = client.receive(NOW, raw(&[1, 2, 32, 4, 1, 1, 1]), None);
    assert!(matches!(event, Event::VersionChanged { refused } if refused == expected));
    assert_eq!(client.version(), Some(Version::V1));
}

/// A server that cannot do anything with a CONNPROP, and says so in version 2, speaks it all the same.
//= D-12, D-32 (test)
#[test]
fn properties_that_are_refused_settle_the_version() {
    // RESPONSE may be missing.
    let mut refused = client(Version::V2);
    let event = refused.receive(NOW, raw(&[0xc1, 2, CREDIT, 4, 0, 3]), None);
    assert!(matches!(event, Event::Ready), "{event:?}");
    let mut refused = client(Version::V2);
    // Of another message, malformed, of a version without RESPONSE.
    for other in [
        raw(&[9, 2, CREDIT, 4, 1, 3]),
        raw(&[0xc1, 2, CREDIT, 4, 1]),
        raw(&[0xc1, 2, CREDIT, 4, 0, 1, 1, 1]),
    ] {
        refused.receive(NOW, other, None);
        assert!(!refused.is_settled());
    }
    let event = refused.receive(NOW, raw(&[0xc1, 2, CREDIT, 4, 1, 3]), None);
    assert!(matches!(event, Event::Ready), "{event:?}");
    assert_eq!(refused.version(), Some(Version::V2));
    assert!(refused.poll_timeout(false).is_none());
    // One Call may go, as if nothing had been said, and its Reply grants more.
    send(&mut refused, &call(1)).unwrap();
    assert_eq!(send(&mut refused, &call(2)), Err(SendError::NoCredit));
    refused.handle_sent(1);
    let event = refused.receive(NOW, v2_msg(1, 1, &rpc(1, 1, 24)), None);
    assert!(matches!(event, Event::Reply(_)), "{event:?}");
    send(&mut refused, &call(2)).unwrap();
}

//= V2-060, V2-061, V2-063 (test)
//= V2-065, D-02, D-32 (test)
#[test]
fn a_client_goes_on_with_version_1_on_the_same_connection() {
    let mut falling = client(Version::V2);
    let err_vers = raw(&[0xc1, 2, 32, 4, 1, 1, 1]);
    assert!(matches!(
        falling.receive(NOW, err_vers, None),
        Event::VersionChanged { refused: None }
    ));
    assert_eq!(falling.version(), Some(Version::V1));
    assert_eq!((falling.inline_send(), falling.inline_recv()), (1024, 1024));
    let sent = send(&mut falling, &call(1)).unwrap();
    assert_eq!(sent, words(&[1, 1, 16, 0, 0, 0, 0]));
    let reply = v1_msg(1, &rpc(1, 1, 24));
    assert!(matches!(falling.receive(NOW, reply, None), Event::Reply(_)));
    assert!(falling.is_settled());
    let changed = falling.receive(NOW, v2_msg(1, 1, &rpc(1, 1, 24)), None);
    let why = CloseReason::VersionChanged;
    assert!(matches!(changed, Event::Close { why: found, .. } if found == why));
    // A server may also name its own version in the error.
    let mut falling = client(Version::V2);
    let foreign = falling.receive(NOW, raw(&[9, 1, 32, 4, 1, 1, 1]), None);
    assert!(matches!(foreign, Event::Dropped));
    let err_vers = falling.receive(NOW, raw(&[0xc1, 1, 32, 4, 1, 1, 1]), None);
    assert!(matches!(err_vers, Event::VersionChanged { refused: None }));
    assert_eq!(falling.version(), Some(Version::V1));
    // A server that does not look at the version may find fault with the rest.
    for version in [1, 2] {
        let mut falling = client(Version::V2);
        let foreign = falling.receive(NOW, raw(&[9, version, 32, 4, 2]), None);
        assert!(matches!(foreign, Event::Dropped));
        let err_chunk = falling.receive(NOW, raw(&[0xc1, version, 32, 4, 2]), None);
        assert!(matches!(err_chunk, Event::VersionChanged { refused: None }));
        assert_eq!(falling.version(), Some(Version::V1));
    }
    let mut settled = v2_client();
    let late = settled.receive(NOW, raw(&[0xc1, 2, 32, 4, 2]), None);
    assert!(matches!(late, Event::Dropped));
    let mut stuck = client(Version::V2);
    let none = stuck.receive(NOW, raw(&[0xc1, 2, 32, 4, 1, 3, 4]), None);
    let why = CloseReason::NoCommonVersion;
    assert!(matches!(none, Event::Close { why: found, .. } if found == why));
}

//= V2-060, V2-061, D-19 (test)
//= D-32 (test)
#[test]
fn any_first_call_may_be_refused_for_its_version() {
    // The Call that comes first is not known when the connection starts.
    let mut rising = client(Version::V1);
    send(&mut rising, &call(77)).unwrap();
    let foreign = rising.receive(NOW, raw(&[78, 1, 32, 4, 1, 2, 2]), None);
    assert!(matches!(foreign, Event::Dropped));
    let changed = rising.receive(NOW, raw(&[77, 1, 32, 4, 1, 2, 2]), None);
    assert!(matches!(
        changed,
        Event::VersionChanged {
            refused: Some(Xid(77))
        }
    ));
    assert_eq!(rising.version(), Some(Version::V2));
    assert_eq!(send(&mut rising, &call(77)), Err(SendError::NotReady));
    assert_eq!(transmit(&mut rising)[0][15], 5);
    let ready = rising.receive(NOW, props(0, &[0]), None);
    assert!(matches!(ready, Event::Ready));
    assert!(send(&mut rising, &call(77)).is_ok());
    // The server speaks version 2 after all: the memory of the refusal is cleared.
    let mut memory = PeerVersionMemo::default();
    memory.remember_v1(NOW);
    rising.handle_lost(NOW, &mut memory);
    assert_eq!(memory.first(NOW, Versions::BOTH), Version::V2);
    // Another Call takes the place of one that was given up.
    let mut stuck = Connection::client(v1_only(), Opening::InBand(Version::V1), &[], NOW);
    send(&mut stuck, &call(1)).unwrap();
    stuck.handle_call_ended();
    send(&mut stuck, &call(2)).unwrap();
    let none = stuck.receive(NOW, raw(&[2, 1, 32, 4, 1, 2, 2]), None);
    assert!(matches!(
        none,
        Event::Close {
            why: CloseReason::NoCommonVersion,
            fail: Some(Xid(2))
        }
    ));
}

//= D-12, D-20 (test)
#[test]
fn ready_is_told_once() {
    let mut client = client(Version::V2);
    let event = client.receive(NOW, props(0, &[0]), None);
    assert!(matches!(event, Event::Ready), "{event:?}");
    let event = client.receive(NOW, props(0, &[0]), None);
    assert!(matches!(event, Event::None), "{event:?}");
    // A Call speaks for itself, but does not keep it from being told.
    let mut server = server();
    let event = server.receive(NOW, v2_msg(9, 0, &rpc(9, 0, 40)), None);
    assert!(matches!(event, Event::Call(_)), "{event:?}");
    let event = server.receive(NOW, props(0, &[0]), None);
    assert!(matches!(event, Event::Ready), "{event:?}");
}

//= V2-116, V2-117, CM-016 (test)
//= D-22 (test)
#[test]
fn only_replies_invalidate() {
    let handle = Some(Handle(5));
    let closes = |event: Event<'_>, failed: Option<Xid>| {
        let why = CloseReason::Invalidated;
        assert!(
            matches!(event, Event::Close { why: found, fail } if found == why && fail == failed),
            "{event:?}"
        );
    };
    let settled = || {
        let mut client = client(Version::V1);
        client.receive(NOW, v1_msg(1, &rpc(1, 1, 24)), None);
        client
    };
    for fresh in [true, false] {
        let new = || {
            if fresh {
                client(Version::V1)
            } else {
                settled()
            }
        };
        let reply = v1_msg(9, &rpc(9, 1, 24));
        let event = new().receive(NOW, reply, handle);
        assert!(matches!(event, Event::Reply(_)), "{event:?}");
        let bad = raw(&[9, 1, 32, 0, 7, 0, 0]);
        let event = new().receive(NOW, bad, handle);
        assert!(matches!(event, Event::Failed { .. }), "{event:?}");
        let error = raw(&[9, 1, 32, 4, 2]);
        closes(new().receive(NOW, error, handle), Some(Xid(9)));
        for other in [
            v1_msg(9, &rpc(9, 0, 40)),
            v1_msg(9, &rpc(8, 0, 40)),
            raw(&[9, 1, 32, 4, 1]),
            &reply[..15],
        ] {
            closes(new().receive(NOW, other, handle), None);
        }
    }
    for other in [
        v2_msg(9, 3, &rpc(9, 1, 24)),
        props(0, &[0]),
        raw(&[0, 2, CREDIT, 1, 0, 0, 0, 0, 0]),
    ] {
        closes(v2_client().receive(NOW, other, handle), None);
    }
}

//= D-32 (test)
#[test]
fn rubbish_does_not_put_off_the_answer() {
    let mut probing = client(Version::V2);
    let due = probing.poll_timeout(false).unwrap();
    let later = Time(due.0 - 1);
    for rubbish in [
        raw(&[9, 2, CREDIT, 0]),
        raw(&[9, 2, CREDIT, 4, 1, 8, 1]),
        raw(&[9]),
    ] {
        let event = probing.receive(later, rubbish, None);
        assert!(matches!(event, Event::Dropped), "{event:?}");
    }
    assert_eq!(probing.poll_timeout(false), Some(due));
}

//= V2-134, V2-135, V2-197 (test)
//= D-21, D-50 (test)
#[test]
fn policy_decides_about_peers_without_proof() {
    let material = [1, 6, 8, 4, 0x6162_6364];
    let with = |auth| {
        let config = Config { auth, ..config() };
        Connection::server(config, &[], NOW)
    };
    let first = v2_msg(9, 0, &rpc(9, 0, 40));
    let is_closed = |event: Event<'_>| {
        let why = CloseReason::NotAuthenticated;
        matches!(event, Event::Close { why: found, .. } if found == why)
    };
    assert!(matches!(
        with(Policy::Ignore).receive(NOW, props(0, &material), None),
        Event::Ready
    ));
    // A Call before the proof gets no answer, in either version, and later messages are ignored.
    // The connection ends when the time for the proof is over.
    let v1 = v1_msg(9, &rpc(9, 0, 40));
    let reply = v2_msg(9, 1, &rpc(9, 1, 40));
    let parts = v2_msg(9, 2, &rpc(9, 0, 40));
    for early in [v1, first, reply, parts] {
        let mut server = with(Policy::Require);
        if early != v1 {
            server.receive(NOW, props(0, &[0]), None);
            transmit(&mut server);
        }
        assert!(!server.is_given_up());
        let event = server.receive(NOW, early, None);
        assert!(matches!(event, Event::Dropped), "{event:?}");
        assert!(server.is_given_up());
        for later in [props(0, &material), first, v1, raw(&[1, 2, CREDIT, 99, 0])] {
            let event = server.receive(NOW, later, None);
            assert!(matches!(event, Event::Dropped), "{event:?}");
            // It may not invalidate memory either.
            let event = server.clone().receive(NOW, later, Some(Handle(5)));
            let why = CloseReason::Invalidated;
            assert!(matches!(event, Event::Close { why: found, .. } if found == why));
        }
        assert!(!server.is_joining());
        assert!(transmit(&mut server).is_empty());
        let due = NOW.after(config().answer).after(config().answer);
        assert_eq!(server.poll_timeout(false), Some(due));
        assert!(matches!(server.handle_timeout(NOW), Event::None));
        assert!(is_closed(server.handle_timeout(due)));
    }
    assert!(matches!(
        with(Policy::Optional).receive(NOW, first, None),
        Event::Call(_)
    ));
    // A peer without an obligation to prove itself may fail to, and may still prove itself later.
    let mut server = with(Policy::Optional);
    let event = server.receive(NOW, props(0, &material), None);
    assert!(matches!(event, Event::HostAuth(b"abcd")));
    assert!(matches!(server.handle_auth(Verdict::Refuse), Event::Ready));
    assert!(matches!(server.receive(NOW, first, None), Event::Call(_)));
    // Any octets are material where nothing looks at it.
    let unparsable = props(0, &[2, 2, 4, 2048, 6, 8, 0x746f_6b65, 0x6e31_3233]);
    let mut server = with(Policy::Ignore);
    let event = server.receive(NOW, unparsable, None);
    assert!(matches!(event, Event::Ready));
    assert_eq!(server.inline_send(), 2048);
    // Where a mechanism does, they are a bad set, or the end of a peer that has to prove something.
    assert!(matches!(
        with(Policy::Optional).receive(NOW, unparsable, None),
        Event::Refused(BadHeader::Property)
    ));
    assert!(is_closed(
        with(Policy::Require).receive(NOW, unparsable, None)
    ));
    // Version 1 carries no material: there is nothing to wait for.
    for (version, required) in [(Version::V1, true), (Version::V2, false)] {
        let config = Config {
            auth: Policy::Require,
            ..config()
        };
        let mut client = Connection::client(config, Opening::InBand(version), &[], NOW);
        assert_eq!(client.poll_timeout(false) == Some(NOW), required);
        assert_eq!(is_closed(client.handle_timeout(NOW)), required);
        assert_eq!(send(&mut client, &call(1)), Err(SendError::NotReady));
        transmit(&mut client);
        let err_vers = raw(&[0xc1, 2, 32, 4, 1, 1, 1]);
        let event = client.receive(NOW, err_vers, None);
        assert_eq!(is_closed(event), !required);
    }
    let mut server = with(Policy::Require);
    let set = props(0, &material);
    let event = server.receive(NOW, set, None);
    assert!(matches!(event, Event::HostAuth(b"abcd")));
    let mut out = [0; 256];
    assert_eq!(
        server.send_hostauth(NOW, &mut out, b"round"),
        Err(SendError::NotReady)
    );
    transmit(&mut server);
    let len = server.send_hostauth(NOW, &mut out, b"round").unwrap();
    assert_eq!(out[20..24], words(&[6]));
    assert_eq!(
        out[len - 20..len],
        words(&[6, 12, 5, 0x726f_756e, 0x6400_0000])
    );
    // All other properties are repeated, as they were.
    let again = props(0, &[]).len() + SET_LEN;
    assert_eq!(len, again + HOSTAUTH_LEN + 8);
    assert!(matches!(server.handle_auth(Verdict::Continue), Event::None));
    // No part of an RPC is sent before the peer has proven its identity.
    let reply = Outgoing {
        direction: MsgType::Reply,
        ..call(9)
    };
    assert_eq!(send(&mut server, &reply), Err(SendError::NotReady));
    assert_eq!(send(&mut server, &call(9)), Err(SendError::NotReady));
    assert!(matches!(server.receive(NOW, set, None), Event::HostAuth(_)));
    assert!(matches!(server.handle_auth(Verdict::Accept), Event::Ready));
    assert!(send(&mut server, &reply).is_ok());
    assert!(matches!(server.receive(NOW, first, None), Event::Call(_)));
    assert!(is_closed(server.handle_auth(Verdict::Refuse)));
}

//= V2-142, V2-148, D-04 (test)
#[test]
fn reports_that_are_sent_do_not_pile_up() {
    let mut server = v2_server();
    for xid in 0..40 {
        let event = server.receive(NOW, v2_msg(xid, 0, &rpc(xid, 0, 40)), None);
        let Event::Call(arrived) = event else {
            panic!("{event:?}")
        };
        let report = ErrorReport::ReadChunks { max_chunks: 1 };
        assert_eq!(server.refuse(&arrived.fixed, report), Ok(()));
        assert_eq!(errors(&mut server).len(), 1);
    }
    // If they are not sent, the caller hears of it when it refuses, not with the next message.
    let fixed = FixedWords {
        xid: Xid(1),
        version: 2,
        credit: CREDIT,
        htype: 0,
    };
    for number in 0..17 {
        let refused = server.refuse(&fixed, ErrorReport::System);
        let full = number == 16;
        assert_eq!(refused == Err(CloseReason::ReportOverflow), full);
    }
}

//= V2-037, V2-148 (test)
#[test]
fn reports_do_not_pile_up() {
    let mut server = v2_server();
    let bad = raw(&[9, 2, CREDIT, 9, 0]);
    let mut events = (0..17).map(|_| server.receive(NOW, bad, None));
    assert!(events
        .by_ref()
        .take(16)
        .all(|event| matches!(event, Event::Refused(_))));
    let why = CloseReason::ReportOverflow;
    assert!(matches!(events.next(), Some(Event::Close { why: found, .. }) if found == why));
}
