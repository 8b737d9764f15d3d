// SPDX-License-Identifier: GPL-2.0

//! The record of a connection has each call that changes it, once.

use std::cell::RefCell;
use std::rc::Rc;

use common::{call, config, rpc, words};
use rpcrdma_proto::proto::connection::negotiate::{Opening, Time};
use rpcrdma_proto::proto::connection::record::Recorder;
use rpcrdma_proto::proto::connection::{Config, Connection, SendError, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::wire::chunk::NoChunks;
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{FixedWords, Outgoing};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};

const NOW: Time = Time(7);

/// A recorder that writes a line for each call.
#[derive(Clone, Default)]
struct Lines(Rc<RefCell<Vec<String>>>);

impl Lines {
    fn add(&self, line: String) {
        self.0.borrow_mut().push(line);
    }

    /// Compares the lines since the last call of this function.
    fn assert<const N: usize>(&self, expected: [&str; N]) {
        assert_eq!(self.0.take(), expected);
    }
}

impl Recorder for Lines {
    fn began(
        &self,
        config: &Config,
        in_band: bool,
        first: Option<Version>,
        peer: &[u8],
        now: Time,
    ) {
        let (xid, octets, now) = (config.xid.0, peer.len(), now.0);
        self.add(format!(
            "began {xid:x} in_band {in_band} {first:?} peer {octets} at {now}"
        ));
    }

    fn send(
        &self,
        _: &Connection<Self>,
        now: Time,
        message: &Outgoing,
        result: Result<usize, SendError>,
        out: &[u8],
    ) {
        let (xid, direction, now) = (message.xid.0, message.direction, now.0);
        let first = &out[..4];
        self.add(format!(
            "send {xid} {direction:?} {result:?} {first:x?} at {now}"
        ));
    }

    fn message(
        &self,
        _: &Connection<Self>,
        now: Time,
        message: &[u8],
        invalidated: Option<Handle>,
        event: &'static str,
        xid: Xid,
    ) {
        let (len, handle, xid, now) = (message.len(), invalidated.map_or(0, |h| h.0), xid.0, now.0);
        self.add(format!("message {len} {handle} {event} {xid} at {now}"));
    }

    fn transmit(&self, now: Time, waiting: bool, busy: bool, message: &[u8]) {
        let (len, now) = (message.len(), now.0);
        self.add(format!("transmit {waiting} {busy} {len} at {now}"));
    }

    fn refuse(&self, fixed: &FixedWords, report: ErrorReport) {
        self.add(format!("refuse {} {}", fixed.xid.0, report.name()));
    }

    fn grants(&self, grants: u32) {
        self.add(format!("grants {grants}"));
    }

    fn ready(&self, calls: u32) {
        self.add(format!("ready {calls}"));
    }

    fn ceiling(&self, ceiling: u16) {
        self.add(format!("ceiling {ceiling}"));
    }

    fn posted(&self, posted: u32) {
        self.add(format!("posted {posted}"));
    }

    fn sent(&self, count: u32) {
        self.add(format!("sent {count}"));
    }

    fn call_ended(&self) {
        self.add("call ended".into());
    }

    fn timeout(&self, now: Time, event: &'static str) {
        self.add(format!("timeout {event} at {}", now.0));
    }
}

/// A client of version 2, its server, and their records.
fn pair() -> [(Connection<Lines>, Lines); 2] {
    let config = config::both(4);
    let (data, lines) = (config.private_data(), [Lines::default(), Lines::default()]);
    let [of_client, of_server] = lines.clone();
    let client = Connection::recorded_client(of_client, config, Opening::Announced, &data, NOW);
    let server = Connection::recorded_server(of_server, config, &data, NOW);
    let [of_client, of_server] = lines;
    of_client.assert(["began 7fff0001 in_band false Some(V2) peer 16 at 7"]);
    of_server.assert(["began 7fff0001 in_band false None peer 16 at 7"]);
    [(client, of_client), (server, of_server)]
}

/// Has `from` send its next message of the protocol, and `to` handle it.
fn pass(from: &mut Connection<Lines>, to: &mut Connection<Lines>) -> usize {
    let mut out = [0; MAX_CONTROL_LEN];
    let transmit = from.poll_transmit(NOW, true, false, &mut out);
    let len = transmit.expect("a message").len;
    let _ = to.handle_message(NOW, &out[..len], None);
    len
}

#[test]
fn each_call_is_recorded_once() {
    let [(mut client, of_client), (mut server, of_server)] = pair();
    let len = pass(&mut client, &mut server);
    of_client.assert([format!("transmit true false {len} at 7").as_str()]);
    of_server.assert([format!("message {len} 0 ready 0 at 7").as_str()]);
    let len = pass(&mut server, &mut client);
    of_server.assert([format!("transmit true false {len} at 7").as_str()]);
    of_client.assert([format!("message {len} 0 ready 0 at 7").as_str()]);

    // Nothing to say.
    let mut out = [0; 256];
    let none = client.poll_transmit(NOW, false, true, &mut out);
    assert_eq!(none, None);
    of_client.assert([]);

    client.handle_sent(1);
    of_client.assert(["sent 1"]);
    server.handle_sent(1);
    of_server.assert(["sent 1"]);

    // On all three ways that a message is handled.
    let sent = client.send(NOW, &mut out, &call(300), &NoChunks);
    let header = sent.expect("credits");
    of_client.assert([format!("send 300 Call Ok({header}) [0, 0, 1, 2c] at 7").as_str()]);
    out[header..header + 8].copy_from_slice(&rpc(300, 0, 8));
    let message = &out[..header + 8];
    let line = format!("message {} 0 call 300 at 7", message.len());
    for way in 0..3 {
        let [(mut client, _), (mut server, lines)] = pair();
        pass(&mut client, &mut server);
        pass(&mut server, &mut client);
        lines.0.take();
        match way {
            0 => drop(server.handle_message(NOW, message, None)),
            1 => {
                let (version, kind) = (Version::V2, MsgType::Call);
                assert!(server
                    .handle_fast(version, kind, NOW, message, None)
                    .is_some());
            }
            _ => assert!(server.handle_fast_v2(MsgType::Call, NOW, message).is_some()),
        }
        lines.assert([line.as_str()]);
    }

    let event = server.handle_message(NOW, message, Some(Handle(9)));
    assert_eq!(event.name(), "close");
    of_server.assert([format!("message {} 9 close 0 at 7", message.len()).as_str()]);
    let (fixed, _) = FixedWords::split(message).expect("a header");
    assert_eq!(server.refuse(&fixed, ErrorReport::System), Ok(()));
    of_server.assert(["refuse 300 system"]);

    // Without a credit for it.
    for xid in 301..=303 {
        let _ = client.send(NOW, &mut out, &call(xid), &NoChunks);
    }
    of_client.0.take();
    let sent = client.send(NOW, &mut out, &call(304), &NoChunks);
    assert!(sent.is_err());
    of_client.assert([format!("send 304 Call {sent:?} [0, 0, 1, 2f] at 7").as_str()]);
    client.handle_call_ended();
    of_client.assert(["call ended"]);

    client.set_ready(2);
    of_client.assert(["ready 2"]);
    assert!(server.set_grants(3));
    of_server.assert(["grants 3"]);
    assert!(!server.set_grants(3));
    of_server.assert([]);
    server.set_ceiling(2);
    of_server.assert(["ceiling 2"]);
    server.handle_posted(2);
    of_server.assert(["posted 2"]);
    server.handle_posted(2);
    of_server.assert([]);
    assert_eq!(client.handle_timeout(Time(8)).name(), "none");
    of_client.assert(["timeout none at 8"]);
    assert!(client.send_hostauth(NOW, &mut out, &words(&[1])).is_err());
    of_client.assert([]);
}
