// SPDX-License-Identifier: GPL-2.0

//! Everything the core can be asked to do, made into code.
//!
//! Compiled with overflow checks, like the kernel, the object must not refer to a panic: then no
//! input can cause a panic. `check` looks at its symbols.

#![no_std]

#[path = "../../../rust/proto/mod.rs"]
pub mod proto;

use proto::connection::continuation::{Assembler, Content, PartSplitter};
use proto::connection::host::{hosts, Address, Demand, KeyName, Prefix};
use proto::connection::hostauth::Verdict;
use proto::connection::negotiate::Time;
use proto::connection::shared_key::{Channel, Handshake};
use proto::connection::{Arrived, Connection, Event, Side};
use proto::requester::plan::{CallShape, Limits};
use proto::requester::{plan, reply, retry};
use proto::responder::{CallLimits, ReplyLimits, ReplyShape, Source};
use proto::wire::chunk::{ChunkLists, ChunkSlices};
use proto::wire::header::{Conveyed, FixedWords, Outgoing};
use proto::wire::property::PropertySet;
use proto::wire::types::{Grant, Handle, Version, Xid};
use proto::wire::xdr::Writer;
use proto::wire::{cm_private, error, property, v1, v2};
use proto::{invalidate, responder};

type Sink<'a> = &'a mut dyn FnMut(u32);

#[no_mangle]
fn encode(out: &mut [u8], chunks: &ChunkSlices<'_>, message: &Outgoing) -> [usize; 2] {
    let Outgoing { xid, kind, .. } = *message;
    [
        v1::encode(out, xid, 2, kind, chunks).unwrap_or(0),
        v2::encode(out, message, Grant::from_word(3), chunks).unwrap_or(0),
    ]
}

#[no_mangle]
fn encode_others(out: &mut [u8], fixed: &FixedWords, report: error::ErrorReport) -> [usize; 5] {
    let grant = Grant::from_word(fixed.credit);
    let mut writer = Writer::new(&mut []);
    [
        v1::encode_error(out, fixed, 1, report).unwrap_or(0),
        v2::encode_error(out, fixed, grant, report).unwrap_or(0),
        v2::encode_grant(out, grant).unwrap_or(0),
        v2::encode_properties(out, fixed.xid, grant, &[], false).unwrap_or(0),
        property::Properties::DEFAULT
            .encode_with(&mut writer, out)
            .is_ok()
            .into(),
    ]
}

#[no_mangle]
fn check_reply(arrived: &Arrived<'_>, offered: &ChunkSlices<'_>) -> u32 {
    let (xid, start) = (arrived.fixed.xid, arrived.part.start);
    match reply::check_conveyed(xid, &arrived.conveyed, start, offered) {
        Ok(reply) => reply.written,
        Err(_) => 0,
    }
}

#[no_mangle]
fn receive(connection: &mut Connection, message: &[u8], invalidated: Option<Handle>) -> u32 {
    match connection.handle_message(Time(5), message, invalidated) {
        Event::Reply(arrived) | Event::Call(arrived) => arrived.part.len,
        _ => 0,
    }
}

#[no_mangle]
fn send(
    connection: &mut Connection,
    out: &mut [u8],
    message: &Outgoing,
    chunks: &ChunkSlices<'_>,
) -> bool {
    connection.handle_sent(1);
    connection.send(Time(5), out, message, chunks).is_ok()
        || connection
            .poll_transmit(Time(5), true, false, out)
            .is_some()
        || connection.send_hostauth(Time(5), out, &[]).is_ok()
        || connection.send_properties(out, &[], true).is_ok()
}

#[no_mangle]
fn prove(
    handshake: &mut Handshake,
    material: &[u8],
    mac: &dyn Fn(&[u8]) -> Option<[u8; 32]>,
) -> bool {
    handshake.handle(material, mac) == Verdict::Accept || handshake.pending().is_some()
}

#[no_mangle]
fn begin(side: Side, channel: &Channel, material: &[u8]) -> bool {
    let value = property::material(material).is_ok();
    value && Handshake::new(side, *channel, [0; 32]).pending().is_some()
}

#[no_mangle]
fn name(text: &str, peer: Option<Address>, is_link: &dyn Fn(&str) -> bool) -> bool {
    let listed = hosts(text).flatten();
    Demand::parse(text).is_some_and(|demand| demand.includes(peer, listed, true))
        || KeyName::parse(text).is_some_and(|name| name.fit(peer, is_link).is_some())
        || Prefix::parse(text).is_some()
}

#[no_mangle]
fn make_plan(call: &CallShape<'_>, limits: &Limits, sink: Sink<'_>) {
    let Ok(plan) = plan::plan(call, limits) else {
        return;
    };
    for range in plan.payload(call) {
        sink(range.start);
    }
    for region in plan.registrations(call) {
        sink(region.range.start);
    }
    sink(plan.layout().position.0);
    sink(plan.pulled_up(call));
}

#[no_mangle]
fn accept(conveyed: &Conveyed<'_>, limits: &CallLimits, sink: Sink<'_>) {
    let Ok(call) = responder::accept(conveyed, 9, limits) else {
        return;
    };
    for source in call.sources() {
        match source {
            Source::Pad(len) => sink(len),
            Source::Stream(range) => sink(range.start),
            Source::Read(segment) => sink(segment.length),
        }
    }
    for segment in responder::slice(call.position_zero(), 3..9) {
        sink(segment.length);
    }
    for (position, _) in call.read_chunks() {
        sink(position.0);
    }
    let long = responder::check_long(Version::V1, Xid(1), conveyed.payload, &call.chunks);
    sink(long.is_ok().into());
}

#[no_mangle]
fn answer(
    chunks: ChunkLists<'_>,
    shape: &ReplyShape<'_>,
    limits: &ReplyLimits,
    out: &mut [u8],
    sink: Sink<'_>,
) {
    let Ok(response) = responder::respond(&chunks, shape, limits) else {
        return;
    };
    for range in response.payload() {
        sink(range.start);
    }
    for (segment, range) in response.writes() {
        sink(segment.length);
        sink(range.start);
    }
    for segment in response.reply_writes() {
        sink(segment.length);
    }
    let len = v1::encode(out, Xid(1), 1, response.kind(), &response);
    sink(len.is_ok().into());
}

#[no_mangle]
fn find_private_data(data: &[u8]) -> usize {
    let offset = cm_private::CmPrivate::find(data).map_or(0, |(offset, _)| offset);
    let announcement = cm_private::Announcement::find(data);
    offset.max(announcement.map_or(0, |(offset, _)| offset))
}

#[no_mangle]
fn read_properties(octets: &[u8], sink: Sink<'_>) {
    if let Ok(set) = PropertySet::decode(octets) {
        set.unknown().for_each(&mut *sink);
    }
    sink(property::subset_contains(&[1], octets.len()).into());
}

#[no_mangle]
fn judge_handles(chunks: &ChunkSlices<'_>, handle: Handle) -> bool {
    invalidate::offer(true, chunks) == handle
        || invalidate::permitted(true, handle, chunks).is_some()
        || invalidate::permitted_v1(true, chunks).is_some()
}

#[no_mangle]
fn react(
    report: error::ErrorReport,
    sent: &retry::Sent<'_>,
    attempts: &mut retry::Attempts,
) -> retry::Reaction {
    retry::react(Version::V2, report, sent, attempts, 9)
}

#[no_mangle]
fn refuse(refusals: &mut retry::Refusals, retry: retry::Retry, limits: &mut Limits) -> bool {
    refusals.apply(limits);
    refusals.goes_again(retry, Time(2), Time(3), 4) && refusals.expire(Time(5))
}

#[no_mangle]
fn join_and_cut(assembler: &mut Assembler, cutter: &mut PartSplitter, octets: &[u8]) -> bool {
    assembler
        .add(Xid(1), Content::Properties, octets, true)
        .is_ok()
        && cutter.next_part().is_some()
}
