// SPDX-License-Identifier: GPL-2.0

//! The record of a connection: all calls that change its state.

use super::{
    negotiate::Time,
    Config,
    Connection,
    SendError, //
};
use crate::proto::wire::{
    error::ErrorReport,
    header::{
        FixedWords,
        Outgoing, //
    },
    types::{
        Handle,
        Version,
        Xid, //
    },
};

/// Records the calls that change a [`Connection`]. A record can be replayed on another connection.
///
/// The recorder is dropped with its connection. `()` records nothing and costs nothing.
pub trait Recorder: Sized {
    /// Records [`Connection::client`] or [`Connection::server`].
    ///
    /// `first` is the version that the connecting side begins with. `in_band` is true if it does not come from
    /// the announcement of the server. `peer` is the private data of the peer.
    fn began(
        &self,
        config: &Config,
        in_band: bool,
        first: Option<Version>,
        peer: &[u8],
        now: Time,
    ) {
        let _ = (config, in_band, first, peer, now);
    }

    /// Records [`Connection::send`] with its result. `out` begins with the header.
    #[inline(always)]
    fn send(
        &self,
        connection: &Connection<Self>,
        now: Time,
        message: &Outgoing,
        result: Result<usize, SendError>,
        out: &[u8],
    ) {
        let _ = (connection, now, message, result, out);
    }

    /// Records a message that arrived, with the name and the XID of its event.
    #[inline(always)]
    fn message(
        &self,
        connection: &Connection<Self>,
        now: Time,
        message: &[u8],
        invalidated: Option<Handle>,
        event: &'static str,
        xid: Xid,
    ) {
        let _ = (connection, now, message, invalidated, event, xid);
    }

    /// Records [`Connection::poll_transmit`] with the message that it composed.
    fn transmit(&self, now: Time, waiting: bool, busy: bool, message: &[u8]) {
        let _ = (now, waiting, busy, message);
    }

    /// Records [`Connection::refuse`].
    fn refuse(&self, fixed: &FixedWords, report: ErrorReport) {
        let _ = (fixed, report);
    }

    /// Records [`Connection::set_ready`].
    fn ready(&self, calls: u32) {
        let _ = calls;
    }

    /// Records [`Connection::set_grants`].
    fn grants(&self, grants: u32) {
        let _ = grants;
    }

    /// Records [`Connection::set_ceiling`].
    fn ceiling(&self, ceiling: u16) {
        let _ = ceiling;
    }

    /// Records [`Connection::handle_posted`].
    fn posted(&self, posted: u32) {
        let _ = posted;
    }

    /// Records [`Connection::handle_sent`].
    fn sent(&self, count: u32) {
        let _ = count;
    }

    /// Records [`Connection::handle_call_ended`].
    fn call_ended(&self) {}

    /// Records [`Connection::handle_timeout`] with the name of its event.
    fn timeout(&self, now: Time, event: &'static str) {
        let _ = (now, event);
    }
}

impl Recorder for () {}
