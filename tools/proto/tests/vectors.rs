// SPDX-License-Identifier: GPL-2.0

//! Test vectors: each is received, acted upon, answered and encoded again.
//!
//! Runs `vectors/vectors.json`, or the file that the environment variable `RPCRDMA_VECTORS`
//! names, and prints one line for each vector.

use std::process::ExitCode;

use common::outgoing;
use rpcrdma_proto::proto::connection::hostauth::Policy;
use rpcrdma_proto::proto::connection::negotiate::{Opening, PeerVersionMemo, Time, Versions};
use rpcrdma_proto::proto::connection::{
    Arrived, CloseReason, Config, Connection, Event, Side, MAX_CONTROL_LEN,
};
use rpcrdma_proto::proto::requester::reply::{self, Payload};
use rpcrdma_proto::proto::requester::retry::{self, Attempts, Reaction, Retry, Sent};
use rpcrdma_proto::proto::responder::{self, CallLimits};
use rpcrdma_proto::proto::wire::chunk::{Chunk, ChunkLists, NoChunks};
use rpcrdma_proto::proto::wire::cm_private::{self, Announcement, CmPrivate};
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{Body, Conveyed, FixedWords, Flags, Kind, Outgoing};
use rpcrdma_proto::proto::wire::property::{self, Properties, PropertySet, ReverseSupport};
use rpcrdma_proto::proto::wire::types::{Grant, Handle, MsgType, Segment, Version, Xid};
use rpcrdma_proto::proto::{
    invalidate,
    wire::{v1, v2},
};
use serde_json::{json, Map, Value};

/// The mistake in a vector.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/vectors.json");
    let path = std::env::var("RPCRDMA_VECTORS").unwrap_or_else(|_| own.into());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("cannot read the test vectors in {path}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let vectors: Vec<Value> = match serde_json::from_str(&text) {
        Ok(vectors) => vectors,
        Err(error) => {
            eprintln!("{path} is no array of test vectors: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for vector in &vectors {
        let id = vector["id"].as_str().unwrap_or("(no id)");
        match run(vector) {
            Ok(()) => println!("{id} pass"),
            Err(why) => {
                failed += 1;
                println!("{id} fail: {why}");
            }
        }
    }
    eprintln!("{} vectors, {failed} failed", vectors.len());
    if failed == 0 && !vectors.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(vector: &Value) -> Result {
    let message = unhex(&vector["hex"])?;
    check("len", &json!(message.len()), &vector["len"])?;
    let expect = &vector["expect"];
    match vector["kind"].as_str() {
        Some("cm") if expect["action"] == "cm_encode" => run_cm_encode(&message, expect),
        Some("cm") => run_cm(&message, expect),
        Some("announcement") if expect["action"] == "announcement_encode" => {
            run_announcement_encode(&message, expect)
        }
        Some("announcement") => run_announcement(&message, expect),
        Some("v1" | "v2") => {
            let roles: &[Role] = match expect["role"].as_str() {
                Some("requester") => &[Role::Requester],
                Some("both") => &[Role::Requester, Role::Responder],
                _ => &[Role::Responder],
            };
            roles
                .iter()
                .try_for_each(|role| run_message(&message, expect, *role))
        }
        kind => Err(format!("unknown kind {kind:?}")),
    }
}

/// The role of a message's receiver with respect to the RPC.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// All RPCs that it is told about wait for a Reply.
    Requester,
    /// No RPC of its own is waiting.
    Responder,
}

impl Role {
    /// Roles swap with the direction of the RPC, sides do not.
    fn side(self, expect: &Value) -> Side {
        match (self, expect["direction"] == "reverse") {
            (Self::Requester, false) | (Self::Responder, true) => Side::Client,
            (Self::Requester, true) | (Self::Responder, false) => Side::Server,
        }
    }
}

fn check(what: &str, found: &Value, expected: &Value) -> Result {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} is {found}, not {expected}"))
    }
}

fn unhex(value: &Value) -> Result<Vec<u8>> {
    let text = value.as_str().ok_or("hex is missing")?;
    (0..text.len())
        .step_by(2)
        .map(|at| {
            let digits = text.get(at..at + 2).ok_or("odd number of digits")?;
            u8::from_str_radix(digits, 16).map_err(|error| error.to_string())
        })
        .collect()
}

fn hex(bytes: &[u8]) -> Value {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat().into()
}

// CM private data.

//= CM-003, CM-004, CM-005 (test)
//= CM-007, CM-018, CM-023 (test)
//= CM-024, CM-025, CM-026 (test)
//= CM-027, CM-028, CM-029 (test)
//= CM-010, D-35, D-36 (test)
fn run_cm(message: &[u8], expect: &Value) -> Result {
    let found = CmPrivate::find(message);
    let decoded = CmPrivate::decode(message);
    let found = json!({
        "found": found.is_some(),
        "offset": found.map(|(offset, _)| offset),
        "remote_inval": decoded.remote_invalidation,
        "send_size": decoded.send_size,
        "recv_size": decoded.recv_size,
    });
    check("private data", &found, &expect["decoded"])
}

//= CM-001, CM-002, CM-003 (test)
//= CM-006, CM-017, CM-019 (test)
//= CM-020 (test)
fn run_cm_encode(message: &[u8], expect: &Value) -> Result {
    let input = cm_private_of(&expect["input"]);
    check("encoding", &hex(&input.encode()), &hex(message))
}

fn cm_private_of(input: &Value) -> CmPrivate {
    let size = |name: &str| input[name].as_u64().unwrap_or(0) as u32;
    CmPrivate {
        remote_invalidation: input["remote_inval"] == true,
        send_size: size("send_bytes"),
        recv_size: size("recv_bytes"),
    }
}

//= VA-002, VA-003, VA-005 (test)
//= VA-006, D-53 (test)
fn run_announcement(message: &[u8], expect: &Value) -> Result {
    let found = Announcement::find(message);
    let found = json!({
        "found": found.is_some(),
        "offset": found.map(|(offset, _)| offset),
        "highest": Announcement::decode(message).highest,
    });
    check("announcement", &found, &expect["decoded"])
}

//= VA-001, VA-002, VA-003 (test)
//= VA-004 (test)
fn run_announcement_encode(message: &[u8], expect: &Value) -> Result {
    let input = &expect["input"];
    let highest = input["highest"].as_u64().unwrap_or(0) as u8;
    let octets = cm_private::encode(&cm_private_of(input), Announcement { highest });
    check("encoding", &hex(&octets), &hex(message))
}

// Messages.

const NOW: Time = Time(1000);

fn config(versions: Versions) -> Config {
    Config {
        properties: Properties {
            segments: 64,
            ..Properties::DEFAULT
        },
        xid: Xid(0x5e17),
        grants: 32,
        auth: Policy::Optional,
        ..common::config::config(versions, 128)
    }
}

fn connect(message: &[u8], expect: &Value, side: Side) -> Connection {
    let v1_only = json!([1]);
    let versions = if expect["supported"] == v1_only {
        Versions::V1
    } else {
        Versions::BOTH
    };
    match side {
        Side::Server => Connection::server(config(versions), &[], NOW),
        Side::Client => {
            let fixed = FixedWords::split(message).map(|(fixed, _)| fixed);
            let xid = fixed.map_or(Xid(0), |fixed| fixed.xid);
            let versions = match fixed {
                Some(fixed) if fixed.version == 1 => Versions::V1,
                _ => versions,
            };
            let first = PeerVersionMemo::default().first(NOW, versions);
            // An error about a version answers the first message, and other errors answer a Call.
            let error = message.get(12..16) == Some(&[0, 0, 0, 4]);
            let of_call = error && message.get(20..24) != Some(&[0, 0, 0, 1]);
            let config = Config {
                xid: if of_call { Xid(!xid.0) } else { xid },
                ..config(versions)
            };
            let mut client = Connection::client(config, Opening::InBand(first), &[], NOW);
            // A version 2 client has sent its property set, one of version 1 a Call.
            transmit(&mut client);
            if first == Version::V1 {
                let call = Outgoing {
                    xid,
                    direction: MsgType::Call,
                    kind: Kind::Msg,
                    more: false,
                    inv_handle: Handle::NONE,
                };
                let sent = client.send(NOW, &mut [0; 28], &call, &NoChunks);
                assert_eq!(sent, Ok(28));
            }
            client
        }
    }
}

fn transmit(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let mut out = [0; MAX_CONTROL_LEN];
    while let Some(message) = connection.poll_transmit(NOW, false, false, &mut out) {
        sent.push(out[..message.len].to_vec());
        if message.credited {
            connection.handle_sent(1);
        }
    }
    sent
}

/// The outcome of a message.
#[derive(Default)]
struct Outcome {
    action: &'static str,
    /// Facts beyond the action, by the names of the vectors.
    facts: Map<String, Value>,
    /// The error messages that were sent.
    errors: Vec<Vec<u8>>,
}

impl Outcome {
    fn new(action: &'static str) -> Self {
        Self {
            action,
            ..Self::default()
        }
    }

    fn fact(mut self, name: &str, value: Value) -> Self {
        self.facts.insert(name.into(), value);
        self
    }
}

fn run_message(message: &[u8], expect: &Value, role: Role) -> Result {
    let mut connection = connect(message, expect, role.side(expect));
    // The octets of the parts that came before.
    let mut joined = Vec::new();
    for earlier in expect["context"].as_array().into_iter().flatten() {
        let earlier = unhex(earlier)?;
        receive(&mut connection, &earlier, role, &mut joined)?;
        connection.handle_sent(1);
    }
    let outcome = receive(&mut connection, message, role, &mut joined)?;
    check("action", &outcome.action.into(), &expect["action"])?;
    for (name, value) in &outcome.facts {
        if let Some(expected) = expect.get(name) {
            check(name, value, expected)?;
        }
    }
    for name in expect.as_object().into_iter().flat_map(Map::keys) {
        if !OTHER_NAMES.contains(&name.as_str()) && !outcome.facts.contains_key(name) {
            return Err(format!("nothing is known about {name}"));
        }
    }
    for name in ["reply_hex", "also_reply_hex"] {
        if let Some(expected) = expect.get(name) {
            let expected = unhex(expected)?;
            if !outcome.errors.contains(&expected) {
                let errors: Vec<_> = outcome.errors.iter().map(|m| hex(m)).collect();
                return Err(format!("sent {errors:?}, not {}", hex(&expected)));
            }
        }
    }
    let wanted = ["reply_hex", "also_reply_hex"]
        .iter()
        .filter(|name| expect.get(**name).is_some())
        .count();
    check("errors sent", &outcome.errors.len().into(), &wanted.into())?;
    if expect["decoded"].is_object() {
        let open = !joined.is_empty() && expect.get("context").is_some();
        check_decoded(message, &joined, open, &expect["decoded"])?;
    }
    Ok(())
}

/// Fields of a vector that are no outcome, or are checked elsewhere. `why` is for people.
const OTHER_NAMES: [&str; 14] = [
    "ok",
    "action",
    "role",
    "direction",
    "supported",
    "context",
    "input",
    "decoded",
    "error",
    "code",
    "reply_hex",
    "also_reply_hex",
    "why",
    "effective",
];

fn receive(
    connection: &mut Connection,
    message: &[u8],
    role: Role,
    joined: &mut Vec<u8>,
) -> Result<Outcome> {
    let balance = connection.send_credits().balance();
    let limit = connection.calls().limit();
    let zero_grants = connection.counters().zero_grants;
    let event = connection.handle_message(NOW, message, None);
    let mut outcome = match event {
        Event::None | Event::Ready => quiet(message),
        Event::VersionChanged { .. } => renegotiate(connection),
        Event::Dropped => Outcome::new("drop"),
        Event::Refused(_) => Outcome::new("reply_error"),
        Event::Call(arrived) => call(connection, &arrived, joined),
        Event::Reply(arrived) => reply(&arrived, joined),
        Event::Error { xid, report } => error(xid, report, role),
        Event::Failed { xid, .. } if role == Role::Requester => terminate(xid),
        Event::Failed { .. } => Outcome::new("drop"),
        Event::Properties {
            fixed,
            flags,
            octets,
            ..
        } => {
            joined.extend_from_slice(octets);
            match flags.more {
                true => Outcome::new("continue"),
                false => match connection.handle_properties(&fixed, flags, joined) {
                    Event::None | Event::HostAuth(_) => Outcome::new("connprop"),
                    Event::Refused(_) => Outcome::new("reply_error"),
                    event => return Err(format!("unexpected {event:?}")),
                },
            }
        }
        Event::HostAuth(_) => Outcome::new("connprop"),
        Event::Close { why, fail } => match (why, fail) {
            (CloseReason::NoCommonVersion, _) => {
                Outcome::new("fail_connection").fact("next_version", Value::Null)
            }
            (_, Some(xid)) => terminate(xid).fact("disconnect", true.into()),
            (why, None) => return Err(format!("connection closes: {why:?}")),
        },
    };
    outcome.errors = transmit(connection)
        .into_iter()
        .filter(|m| m.get(12..16) == Some(&[0, 0, 0, 4]))
        .collect();
    let violation = connection.counters().zero_grants != zero_grants;
    outcome = outcome.fact("credit_violation", violation.into());
    // While starting, an error gives back the credit that its cause took (D-12), and no other.
    let same = connection.send_credits().balance() <= balance.max(1)
        && connection.calls().limit() == limit;
    outcome = outcome.fact("ignore_credit", same.into());
    outcome.facts.entry("disconnect").or_insert(false.into());
    if let Some(Version::V1) = connection.version() {
        outcome = outcome.fact("effective_credit", connection.calls().limit().into());
    }
    if outcome.action == "connprop" {
        outcome = outcome.fact("effective", effective(message, joined));
    }
    if outcome.action == "grant" && connection.send_credits().balance() < balance {
        return Err("the grant was not added".into());
    }
    Ok(outcome)
}

fn terminate(xid: Xid) -> Outcome {
    Outcome::new("terminate").fact("xid", xid.0.into())
}

fn renegotiate(connection: &Connection) -> Outcome {
    let version = connection.version().map(Version::number);
    Outcome::new("renegotiate").fact("next_version", version.into())
}

/// Nothing is to be done by the caller: tells which message it was.
fn quiet(message: &[u8]) -> Outcome {
    let Some((fixed, rest)) = FixedWords::split(message) else {
        return Outcome::new("drop");
    };
    match v2::decode(&fixed, rest, false).map(|message| message.body) {
        Some(Ok(Body::Grant)) => Outcome::new("grant").fact("sequence_open", true.into()),
        Some(Ok(Body::Properties(_))) => Outcome::new("connprop"),
        _ => Outcome::new("drop"),
    }
}

//= V1-057, V1-061, V2-079 (test)
//= V2-115, NFS-044 (test)
fn call(connection: &mut Connection, arrived: &Arrived<'_>, joined: &mut Vec<u8>) -> Outcome {
    joined.extend_from_slice(arrived.conveyed.payload);
    if arrived.more {
        return Outcome::new("continue");
    }
    let version = connection.version().unwrap_or(Version::V1);
    let limits = CallLimits {
        version,
        read_chunks: 16,
        write_chunks: 16,
        segments: 64,
        segment_bytes: 1 << 20,
        call_bytes: 4 << 20,
    };
    match responder::accept(&arrived.conveyed, arrived.part.len, &limits) {
        Err(report) => match connection.refuse(&arrived.fixed, report) {
            Ok(()) => Outcome::new("reply_error"),
            Err(_) => Outcome::new("fail_connection"),
        },
        Ok(call) => {
            let read_chunks: Vec<_> = match call.position_zero().next() {
                Some(_) => vec![json!({"position": 0, "length": call.stream_len})],
                None => Vec::new(),
            }
            .into_iter()
            .chain(
                call.read_chunks()
                    .map(|(position, length)| json!({"position": position.0, "length": length})),
            )
            .collect();
            let Conveyed {
                inv_handle, chunks, ..
            } = arrived.conveyed;
            let may_invalidate = invalidate::permitted(true, inv_handle, &chunks);
            let outcome = Outcome::new("deliver_call")
                .fact("assembled_len", call.len.into())
                .fact("read_chunks", read_chunks.into())
                .fact(
                    "may_invalidate",
                    may_invalidate.unwrap_or(Handle::NONE).0.into(),
                );
            if arrived.conveyed.chunks.is_empty() {
                outcome.fact("assembled_hex", hex(joined))
            } else {
                outcome
            }
        }
    }
}

/// The provided chunks are derived from the Reply: the returned number of bytes.
//= V1-064, V1-066, V1-067 (test)
//= V1-072, V1-083, V2-087 (test)
//= V2-101 (test)
fn reply(arrived: &Arrived<'_>, joined: &mut Vec<u8>) -> Outcome {
    joined.extend_from_slice(arrived.conveyed.payload);
    if arrived.more {
        return Outcome::new("continue");
    }
    let chunks = arrived.conveyed.chunks;
    let (xid, start) = (arrived.fixed.xid, arrived.part.start);
    match reply::check_conveyed(xid, &arrived.conveyed, start, &chunks) {
        Err(_) => terminate(xid),
        Ok(reply) => {
            let lengths: Vec<_> = chunks.writes.iter().map(|c| c.length()).collect();
            let outcome = Outcome::new("complete").fact("write_chunk_lengths", lengths.into());
            match reply.payload {
                Payload::ReplyChunk { len } => outcome.fact("reply_chunk_length", len.into()),
                Payload::Inline(_) => outcome,
            }
        }
    }
}

//= V2-151, V2-155, V2-157 (test)
//= V2-159, V2-161, V2-163 (test)
//= V2-165, V1-098 (test)
fn error(xid: Xid, report: ErrorReport, role: Role) -> Outcome {
    if role == Role::Responder {
        return Outcome::new("drop");
    }
    let sent = Sent {
        long: false,
        read_chunks: 1,
        write_chunks: &[1024; 4],
        reply_chunk: 1024,
        segments: 64,
        header_segments: 64,
    };
    match retry::react(
        Version::V2,
        report,
        &sent,
        &mut Attempts::default(),
        1 << 20,
    ) {
        Reaction::Terminate => terminate(xid),
        Reaction::Retry(retry) => Outcome::new("retry").fact(
            "retry",
            match retry {
                Retry::LongCall => "position_zero",
                Retry::Continuation => "continuation",
                Retry::ReplyChunkOnly => "reply_chunk_only",
                Retry::FewerSegments(_) | Retry::ShorterHeader(_) => "fewer_segments",
                Retry::LargerWriteChunk { .. } => "larger_write_chunk",
                Retry::LargerReplyChunk(_) => "larger_reply_chunk",
            }
            .into(),
        ),
    }
}

fn reverse_number(reverse: ReverseSupport) -> u32 {
    match reverse {
        ReverseSupport::None => 0,
        ReverseSupport::Inline => 1,
        ReverseSupport::General => 2,
    }
}

fn effective(message: &[u8], joined: &[u8]) -> Value {
    let body = if joined.is_empty() {
        message.get(20..).unwrap_or_default()
    } else {
        joined
    };
    let properties = match PropertySet::decode(body) {
        Ok(set) => Properties::DEFAULT.with(&set),
        Err(_) => return Value::Null,
    };
    json!({
        "sbsiz": properties.send_size,
        "rbsiz": properties.recv_size,
        "rssiz": properties.segment_size,
        "rcsiz": properties.segments,
        "brs": reverse_number(properties.reverse),
    })
}

// Every field of the header, and the header encoded again.

fn segment_fields(segment: &Segment) -> Map<String, Value> {
    let fields = json!({
        "handle": segment.handle.0,
        "length": segment.length,
        "offset": format!("{:#018x}", segment.offset),
    });
    fields.as_object().cloned().unwrap_or_default()
}

fn chunk_fields(chunk: Chunk<'_>) -> Value {
    chunk.segments().map(|s| segment_fields(&s)).collect()
}

fn list_fields(fields: &mut Map<String, Value>, chunks: &ChunkLists<'_>) {
    let reads = chunks.reads.iter().map(|read| {
        let mut fields = segment_fields(&read.segment);
        fields.insert("position".into(), read.position.0.into());
        fields
    });
    fields.insert("reads".into(), reads.collect());
    fields.insert(
        "writes".into(),
        chunks.writes.iter().map(chunk_fields).collect(),
    );
    fields.insert("reply".into(), chunks.reply.map(chunk_fields).into());
}

fn error_fields(fields: &mut Map<String, Value>, report: ErrorReport) -> u64 {
    let mut add = |name: &str, value: u32| fields.insert(name.into(), value.into());
    add("err", report.code());
    match report {
        ErrorReport::Version { low, high } => {
            add("vers_low", low);
            add("vers_high", high);
            8
        }
        ErrorReport::ReadChunks { max_chunks } | ErrorReport::WriteChunks { max_chunks } => {
            add("max_chunks", max_chunks);
            4
        }
        ErrorReport::Segments { max_segments } => {
            add("max_segments", max_segments);
            4
        }
        ErrorReport::WriteResource {
            chunk_index,
            length_needed,
        } => {
            add("chunk_index", chunk_index);
            add("length_needed", length_needed);
            8
        }
        ErrorReport::ReplyResource { length_needed } => {
            add("length_needed", length_needed);
            4
        }
        _ => 0,
    }
}

//= V1-001, V1-002, V1-003 (test)
//= V1-005, V1-006, V1-007 (test)
//= V1-008, V1-009, V1-010 (test)
//= V1-011, V1-012, V1-013 (test)
//= V1-014, V1-016, V1-018 (test)
//= V1-020, V1-021, V2-002 (test)
//= V2-003, V2-005, V2-007 (test)
//= V2-008, V2-009, V2-012 (test)
//= V2-014, V2-015, V2-016 (test)
//= V2-017, V2-018, V2-019 (test)
//= V2-025, V2-045, V2-066 (test)
//= V2-120, V2-144, V2-164 (test)
fn check_decoded(message: &[u8], joined: &[u8], open: bool, expected: &Value) -> Result {
    let (fixed, rest) = FixedWords::split(message).ok_or("no fixed words")?;
    let mut fields = Map::new();
    fields.insert("version".into(), fixed.version.into());
    fields.insert("xid".into(), fixed.xid.0.into());
    fields.insert("htype".into(), fixed.htype.into());
    let is_v1 = fixed.version == 1 || expected["layout"] == "v1";
    let grant = Grant::from_word(fixed.credit);
    let (flags, body) = if is_v1 {
        fields.insert("credit".into(), fixed.credit.into());
        let body = match fixed.version {
            1 => v1::decode(&fixed, rest),
            _ => v2::decode(&fixed, rest, false).ok_or("short")?.body,
        };
        (Flags::default(), body)
    } else {
        fields.insert("granted".into(), grant.granted.into());
        fields.insert("max".into(), grant.ceiling.into());
        let decoded = v2::decode(&fixed, rest, false).ok_or("short")?;
        fields.insert("response".into(), decoded.flags.response.into());
        fields.insert("more".into(), decoded.flags.more.into());
        (decoded.flags, decoded.body)
    };
    let body = body.map_err(|bad| format!("header is {bad:?}"))?;
    let mut again = vec![0; message.len()];
    let hdr_len = match body {
        Body::Conveyed(conveyed) => {
            list_fields(&mut fields, &conveyed.chunks);
            fields.insert("payload_len".into(), conveyed.payload.len().into());
            if !is_v1 {
                fields.insert("inv_handle".into(), conveyed.inv_handle.0.into());
            }
            let outgoing = outgoing(&fixed, flags, &conveyed);
            if is_v1 {
                let kind = conveyed.kind;
                v1::encode(&mut again, fixed.xid, fixed.credit, kind, &conveyed.chunks)
            } else {
                v2::encode(&mut again, &outgoing, grant, &conveyed.chunks)
            }
        }
        Body::Grant => {
            list_fields(&mut fields, &ChunkLists::EMPTY);
            fields.insert("payload_len".into(), 0.into());
            fields.insert("inv_handle".into(), 0.into());
            v2::encode_grant(&mut again, grant)
        }
        Body::Properties(octets) => {
            let whole = if open { joined } else { octets };
            property_fields(&mut fields, whole)?;
            v2::encode_properties(&mut again, fixed.xid, grant, octets, flags.more)
        }
        Body::Error(report) => {
            let report = report.ok_or("error message is too short")?;
            let layout = if is_v1 { "v1" } else { "v2" };
            fields.insert("layout".into(), layout.into());
            let arguments = error_fields(&mut fields, report);
            let len = if is_v1 { 20 } else { 24 } + arguments as usize;
            match report {
                // Version 1 can send two codes only, and version 2 sends VERS as version 1 does.
                ErrorReport::Version { .. } | ErrorReport::Unknown(_) => {
                    again[..len].copy_from_slice(&message[..len]);
                    Ok(len)
                }
                _ if is_v1 => v1::encode_error(&mut again, &fixed, fixed.credit, report),
                _ => v2::encode_error(&mut again, &fixed, grant, report),
            }
        }
    }
    .map_err(|_| "the header does not fit where it was")?;
    fields.insert("hdr_len".into(), hdr_len.into());
    check("decoded", &fields.into(), expected)?;
    // Received, but never sent: no credits, or no maximum of credits, property sets as answers, errors that are
    // none, and a part that is not the last with a handle to invalidate.
    let foreign = match body {
        _ if fixed.credit == 0 || !is_v1 && fixed.credit < 1 << 16 => true,
        Body::Properties(_) => flags.response,
        Body::Error(_) => !flags.response && !is_v1,
        Body::Conveyed(conveyed) => flags.more && conveyed.inv_handle != Handle::NONE,
        Body::Grant => false,
    };
    if !foreign {
        let range = ..hdr_len;
        check("encoded", &hex(&again[range]), &hex(&message[range]))?;
    }
    Ok(())
}

//= V2-119, V2-121, V2-124 (test)
//= V2-125, V2-127, V2-128 (test)
//= V2-130, V2-131, V2-132 (test)
//= V2-134, V2-140 (test)
fn property_fields(fields: &mut Map<String, Value>, octets: &[u8]) -> Result {
    let set = PropertySet::decode(octets).map_err(|bad| format!("property set is {bad:?}"))?;
    let mut props = Map::new();
    let numbers = [
        ("sbsiz", set.send_size),
        ("rbsiz", set.recv_size),
        ("rssiz", set.segment_size),
        ("rcsiz", set.segments),
        ("brs", set.reverse.map(reverse_number)),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            props.insert(name.into(), value.into());
        }
    }
    let material = property::material(set.hostauth.unwrap_or_default());
    if let Some(material) = material.map_err(|bad| format!("material is {bad:?}"))? {
        props.insert("hostauth".into(), hex(material));
    }
    fields.insert("props".into(), props.into());
    fields.insert("unknown".into(), set.unknown().collect::<Vec<_>>().into());
    Ok(())
}
