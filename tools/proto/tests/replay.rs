// SPDX-License-Identifier: GPL-2.0

//! Replays the calls of a kernel on its connections, and compares every result.
//!
//! A trace is the output of the tracepoints `rpcrdma_protocol_*`, one line for each call. Text before the
//! name is ignored, and so are other lines. Each line continues with `CALL: key=value ...`:
//!
//! ```text
//! config: cid= ceiling= continued= keep= answer= auth= inband= set=
//!     The config of the next connect: ceiling, continued, keep_alive, answer, and the announced
//!     properties. auth=1: the peer has to prove its identity. inband=1: the first version is the
//!     version of Opening::InBand, and not of the announcement of the server.
//! connect: cid= now= first= low= high= inval= send= recv= calls= grants= xid= peer=
//!     Connection::client: the first version, config.versions, config.cm_private, calls, grants and
//!     xid of config, and the private data of the server. Connection::server with first=0, and the
//!     private data of the client.
//! send: cid= now= xid= call= nomsg= more= result= header= limit=
//!     Connection::send: call=1 for a Call, nomsg=1 for Kind::Nomsg, and more=1 for a part that is not
//!     the last; result is 0 or SendError::number, header is the written header.
//! message: cid= now= len= inv= bytes= event= xid= limit=
//!     Connection::handle_message: len is the length of the message, bytes are its first 512, and inv is
//!     the handle that was invalidated, or 0; event and xid are Event::name and Event::xid, or 0.
//! ended: cid=
//!     Connection::handle_call_ended.
//! transmit: cid= now= waiting= busy= bytes=
//!     Connection::poll_transmit that returned a message.
//! refuse: cid= xid= vers= credit= type= code= first= second=
//!     Connection::refuse of the Call with these fixed words, with ErrorReport::code and the arguments.
//! timeout: cid= now= event=
//!     Connection::handle_timeout; event is Event::name.
//! ready: cid= count=
//!     Connection::set_ready.
//! grants: cid= count=
//!     Connection::set_grants.
//! ceiling: cid= count=
//!     Connection::set_ceiling.
//! posted: cid= count=
//!     Connection::handle_posted.
//! sent: cid= count=
//!     Connection::handle_sent.
//! lost: cid=
//!     The connection is over.
//! ```
//!
//! Bytes are hexadecimal digits without spaces, times are milliseconds, and `limit` is
//! `calls().limit()` after the call, or in version 2 `send_credits().balance()`. `cid` is the number of
//! the connection. Connections that began before the trace are left out, and so are connections with
//! authentication, and connections with property sets in parts after these: their contents are not
//! recorded.
//!
//! The traces in `traces/` are replayed, and the traces of `RPCRDMA_TRACE`, separated by `:`. To record a
//! trace, on a machine that mounts or serves with the module:
//!
//! ```text
//! trace-cmd record -e 'rpcrdma:rpcrdma_protocol_*' -- COMMAND
//! trace-cmd report > FILE
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use common::{config, words};
use rpcrdma_proto::proto::connection::hostauth::Policy;
use rpcrdma_proto::proto::connection::negotiate::{Opening, Time, Versions};
use rpcrdma_proto::proto::connection::{Config, Connection, MAX_CONTROL_LEN};
use rpcrdma_proto::proto::wire::chunk::{ChunkLists, NoChunks};
use rpcrdma_proto::proto::wire::cm_private::CmPrivate;
use rpcrdma_proto::proto::wire::error::ErrorReport;
use rpcrdma_proto::proto::wire::header::{Body, FixedWords, Kind, Outgoing};
use rpcrdma_proto::proto::wire::property::{Properties, PropertySet};
use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Version, Xid};
use rpcrdma_proto::proto::wire::{v1, v2};

const PREFIX: &str = "rpcrdma_protocol_";

/// The traced length of a header or of a message.
const TRACED: usize = 512;

/// One line of a trace.
struct Line<'a> {
    call: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, call) = line.split_once(PREFIX)?;
        let (call, fields) = call.split_once(':')?;
        let fields = fields.split_whitespace();
        Some(Self {
            call,
            fields: fields.filter_map(|field| field.split_once('=')).collect(),
        })
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        self.fields
            .get(name)
            .copied()
            .ok_or(format!("{name} is missing"))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|error| format!("{name}={text}: {error}"))
    }

    fn word(&self, name: &str) -> Result<u32, String> {
        u32::try_from(self.number(name)?).map_err(|error| format!("{name}: {error}"))
    }

    fn short(&self, name: &str) -> Result<u16, String> {
        u16::try_from(self.number(name)?).map_err(|error| format!("{name}: {error}"))
    }

    fn now(&self) -> Result<Time, String> {
        Ok(Time(self.number("now")?))
    }

    fn octets(&self, name: &str) -> Result<Vec<u8>, String> {
        let text = self.text(name)?.trim_matches('-').as_bytes();
        text.chunks(2)
            .map(|digits| {
                let digits = std::str::from_utf8(digits).map_err(|error| error.to_string())?;
                u8::from_str_radix(digits, 16).map_err(|error| format!("{name}: {error}"))
            })
            .collect()
    }

    /// Compares the results with the results of the kernel.
    fn expect<T: PartialEq + std::fmt::Debug>(
        &self,
        name: &str,
        found: T,
        traced: T,
    ) -> Result<(), String> {
        if found == traced {
            Ok(())
        } else {
            Err(format!(
                "{}: {name} is {found:?}, and {traced:?} in the kernel",
                self.call
            ))
        }
    }
}

/// Returns the limits of a connection that are not in its [`connect`].
fn configure(line: &Line<'_>) -> Result<Config, String> {
    let octets = line.octets("set")?;
    let set = PropertySet::decode(&octets).map_err(|bad| format!("set: {bad:?}"))?;
    Ok(Config {
        properties: Properties::DEFAULT.with(&set),
        ceiling: line.short("ceiling")?,
        continued: line.word("continued")?,
        keep_alive: Time(line.number("keep")?),
        answer: Time(line.number("answer")?),
        auth: match line.word("auth")? {
            0 => Policy::Ignore,
            _ => Policy::Require,
        },
        ..config::kernel(0)
    })
}

fn connect(line: &Line<'_>, config: Config, in_band: bool) -> Result<Connection, String> {
    let version = |name| {
        let number = line.word(name)?;
        Version::from_number(number).ok_or(format!("{name}={number} is no version"))
    };
    let config = Config {
        versions: Versions {
            low: version("low")?,
            high: version("high")?,
        },
        cm_private: CmPrivate {
            remote_invalidation: line.word("inval")? != 0,
            send_size: line.word("send")?,
            recv_size: line.word("recv")?,
        },
        xid: Xid(line.word("xid")?),
        calls: line.word("calls")?,
        grants: line.word("grants")?,
        ..config
    };
    let (now, peer) = (line.now()?, line.octets("peer")?);
    if line.word("first")? == 0 {
        return Ok(Connection::server(config, &peer, now));
    }
    let first = version("first")?;
    let opening = if in_band {
        Opening::InBand(first)
    } else {
        Opening::Announced
    };
    let client = Connection::client(config, opening, &peer, now);
    line.expect("first", client.version(), Some(first))?;
    Ok(client)
}

/// Returns the chunk lists of a message that was sent.
fn lists(message: &[u8]) -> Result<ChunkLists<'_>, String> {
    let (fixed, rest) = FixedWords::split(message).ok_or("the header is too short")?;
    let body = match Version::from_number(fixed.version) {
        Some(Version::V2) => v2::decode(&fixed, rest, true).map(|message| message.body),
        _ => Some(v1::decode(&fixed, rest)),
    };
    match body {
        Some(Ok(Body::Conveyed(conveyed))) => Ok(conveyed.chunks),
        other => Err(format!("no header that could be sent: {other:?}")),
    }
}

fn send(connection: &mut Connection, line: &Line<'_>) -> Result<(), String> {
    let message = Outgoing {
        xid: Xid(line.word("xid")?),
        direction: match line.word("call")? {
            0 => MsgType::Reply,
            _ => MsgType::Call,
        },
        kind: match line.word("nomsg")? {
            0 => Kind::Msg,
            _ => Kind::Nomsg,
        },
        more: line.word("more")? != 0,
        inv_handle: Handle::NONE,
    };
    let (now, header) = (line.now()?, line.octets("header")?);
    let mut out = [0; TRACED];
    let mut whole = header.clone();
    if message.kind == Kind::Msg {
        // No version 2 message is without Payload stream.
        whole.extend([0; 4]);
    }
    let sent = match line.word("result")? {
        0 => connection.send(now, &mut out, &message, &lists(&whole)?),
        _ => connection.send(now, &mut out, &message, &NoChunks),
    };
    let result = sent.map_or_else(|error| error.number().into(), |_| 0);
    line.expect("result", result, line.word("result")?)?;
    let len = sent.unwrap_or(0);
    line.expect("header", &out[..len], &header[..])
}

fn message(connection: &mut Connection, line: &Line<'_>) -> Result<(), String> {
    let mut message = line.octets("bytes")?;
    // The bytes behind the traced bytes are Payload stream, of which only the length counts.
    message.resize(line.number("len")? as usize, 0);
    let invalidated = Some(line.word("inv")?).filter(|handle| *handle != 0);
    let event = connection.handle_message(line.now()?, &message, invalidated.map(Handle));
    line.expect("event", event.name(), line.text("event")?)?;
    line.expect("xid", event.xid().map_or(0, |xid| xid.0), line.word("xid")?)
}

fn refuse(connection: &mut Connection, line: &Line<'_>) -> Result<(), String> {
    let fixed = FixedWords {
        xid: Xid(line.word("xid")?),
        version: line.word("vers")?,
        credit: line.word("credit")?,
        htype: line.word("type")?,
    };
    connection
        .refuse(&fixed, report(line)?)
        .map_err(|why| format!("refuse: {why:?}"))
}

/// Reads the code and its arguments in the order of an error message of version 2.
fn report(line: &Line<'_>) -> Result<ErrorReport, String> {
    let [code, first, second] = ["code", "first", "second"].map(|name| line.word(name));
    let message = words(&[0, 2, 0, 4, 1, code?, first?, second?]);
    let (fixed, rest) = FixedWords::split(&message).ok_or("no fixed words")?;
    match v2::decode(&fixed, rest, true).map(|message| message.body) {
        Some(Ok(Body::Error(Some(report)))) => Ok(report),
        other => Err(format!("no report: {other:?}")),
    }
}

fn timeout(connection: &mut Connection, line: &Line<'_>) -> Result<(), String> {
    let event = connection.handle_timeout(line.now()?);
    line.expect("event", event.name(), line.text("event")?)
}

fn transmit(connection: &mut Connection, line: &Line<'_>) -> Result<(), String> {
    let mut out = [0; MAX_CONTROL_LEN];
    let (waiting, busy) = (line.word("waiting")? != 0, line.word("busy")? != 0);
    let sent = connection.poll_transmit(line.now()?, waiting, busy, &mut out);
    let len = sent.map_or(0, |sent| sent.len);
    line.expect("bytes", &out[..len], &line.octets("bytes")?[..])
}

/// The connections of a trace, by their numbers.
#[derive(Default)]
struct Kernel {
    /// The limits of the connections that are about to begin, and whether they negotiate in-band.
    configs: HashMap<u64, (Config, bool)>,
    connections: HashMap<u64, Connection>,
}

impl Kernel {
    /// Replays a line, and says whether it is about a connection that is known.
    fn replay_line(&mut self, line: &Line<'_>) -> Result<bool, String> {
        let cid = line.number("cid")?;
        match line.call {
            "config" => {
                let in_band = line.word("inband")? != 0;
                self.configs.insert(cid, (configure(line)?, in_band));
                return Ok(true);
            }
            "connect" => {
                // A kernel that speaks version 1 alone may have said nothing else.
                let config = self.configs.remove(&cid);
                let (config, in_band) = config.unwrap_or_else(|| (config::kernel(0), false));
                if config.auth == Policy::Ignore {
                    self.connections
                        .insert(cid, connect(line, config, in_band)?);
                }
            }
            "lost" => return Ok(self.connections.remove(&cid).is_some()),
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(&cid) else {
            return Ok(false);
        };
        match line.call {
            "connect" => {}
            "send" => send(connection, line)?,
            "message" => message(connection, line)?,
            "refuse" => refuse(connection, line)?,
            "ended" => connection.handle_call_ended(),
            "transmit" => transmit(connection, line)?,
            "timeout" => timeout(connection, line)?,
            "ready" => connection.set_ready(line.word("count")?),
            "grants" => {
                connection.set_grants(line.word("count")?);
            }
            "ceiling" => connection.set_ceiling(line.short("count")?),
            "posted" => connection.handle_posted(line.word("count")?),
            "sent" => connection.handle_sent(line.word("count")?),
            call => return Err(format!("{call} is not known")),
        }
        if line.fields.contains_key("limit") {
            let limit = match connection.version() {
                Some(Version::V2) => connection.send_credits().balance(),
                _ => connection.calls().limit(),
            };
            line.expect("limit", limit, line.word("limit")?)?;
        }
        if line.fields.get("event") == Some(&"properties") {
            self.connections.remove(&cid);
        }
        Ok(true)
    }
}

/// Replays a trace, and returns the number of each call, and of callbacks of the server.
fn replay(trace: &str) -> Result<BTreeMap<&str, u32>, String> {
    let mut kernel = Kernel::default();
    let mut calls = BTreeMap::new();
    for (number, line) in trace.lines().enumerate() {
        if let Some(line) = Line::parse(line) {
            let replayed = kernel
                .replay_line(&line)
                .map_err(|why| format!("line {}: {why}", number + 1))?;
            if replayed {
                let callback = line.fields.get("event") == Some(&"call");
                for what in [line.call]
                    .into_iter()
                    .chain(callback.then_some("callback"))
                {
                    *calls.entry(what).or_default() += 1;
                }
            }
        }
    }
    Ok(calls)
}

fn traces() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let own = fs::read_dir(directory).expect("traces");
    let mut paths: Vec<_> = own.map(|entry| entry.expect("entry").path()).collect();
    let named = std::env::var_os("RPCRDMA_TRACE").unwrap_or_default();
    paths.extend(std::env::split_paths(&named).filter(|path| path.file_name().is_some()));
    let read = |path: &Path| fs::read_to_string(path).expect("a trace that can be read");
    paths
        .iter()
        .map(|path| (path.display().to_string(), read(path)))
        .collect()
}

//= V1-006, V1-032, V1-033 (test)
//= V1-035, V1-036, V1-043 (test)
//= V1-118, V1-132 (test)
#[test]
fn kernels_got_the_same_answers() {
    for (name, trace) in traces() {
        let calls = replay(&trace).unwrap_or_else(|why| panic!("{name}: {why}"));
        for call in ["connect", "send", "message", "ended"] {
            assert!(calls.contains_key(call), "{name} has no {call}");
        }
        println!("{name}: {calls:?}");
    }
}

#[test]
fn another_answer_is_noticed() {
    let client = [
        ("connect", "calls=", "calls=1"),
        ("send", "call=1", "call=0"),
        ("send", "header=", "header=ff"),
        ("send", "result=0", "result=2"),
        ("message", "event=reply", "event=failed"),
        ("message", "event=call", "event=reply"),
        ("message", "limit=", "limit=9"),
    ];
    let server = [
        ("connect", "first=0", "first=1"),
        ("connect", "grants=", "grants=1"),
        ("send", "call=1", "call=0"),
        ("send", "header=", "header=ff"),
        ("message", "event=refused", "event=dropped"),
        ("message", "event=error", "event=call"),
        ("grants", "count=", "count=1"),
        ("refuse", "xid=0x", "xid=0x1"),
        ("transmit", "bytes=", "bytes=ff"),
    ];
    let version2 = [
        ("config", "set=", "set=ff"),
        ("ceiling", "count=144", "count=14"),
        ("posted", "count=145", "count=14"),
        ("sent", "count=5", "count=4"),
        ("timeout", "event=none", "event=close"),
        ("send", "more=1", "more=0"),
        ("send", "header=", "header=ff"),
        ("transmit", "bytes=", "bytes=ff"),
        ("message", "event=ready", "event=none"),
    ];
    notices("recorded.trace", &client);
    notices("server.trace", &server);
    notices("version2.trace", &version2);
}

/// Each change of the trace `name` is noticed: in the first line of a call that has the one text, it is
/// replaced by the other.
fn notices(name: &str, changes: &[(&str, &str, &str)]) {
    let (_, trace) = traces()
        .into_iter()
        .find(|(path, _)| path.ends_with(name))
        .expect("a trace of that name");
    for (line, from, to) in changes {
        let line = format!("{PREFIX}{line}: ");
        let mut lines = trace.split_inclusive('\n');
        let spoilt = lines.find(|text| text.contains(&line) && text.contains(from));
        let spoilt = spoilt.unwrap_or_else(|| panic!("there is no {line} with {from}"));
        let spoiled = trace.replacen(spoilt, &spoilt.replacen(from, to, 1), 1);
        assert!(replay(&spoiled).is_err(), "{to} is not noticed");
    }
}
