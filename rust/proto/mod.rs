// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol, versions 1 and 2, as pure decisions over bytes.
//!
//! This code does not allocate, block, sleep, read a clock or call other layers. Time, memory and memory
//! registrations are arguments; the work to do is in the return values. No input can make this code panic
//! or access a byte outside of its arguments.
//!
//! # Modules
//!
//! - [`wire`]: the bytes of a message in either version, and its meaning
//! - [`connection`]: the state of a connection: version, properties, authentication, credits, messages in parts
//! - [`requester`]: the form of a Call and of its Reply, the check of a Reply, the reaction to an error
//! - [`responder`]: the check of a Call, the form of its Reply
//! - [`invalidate`]: the handle that a Reply invalidates
//! - [`resources`]: the sizes of the queues and pools of a connection on a device
//!
//! A Requester gets the form of an RPC from [`requester::plan`], registers the memory of the plan, and encodes
//! the header through a [`connection`], which identifies the Reply. A Responder checks a Call that a
//! [`connection`] has identified, and gets the form of the Reply from [`responder::respond`]. An error of either
//! goes to [`connection`], which sends it.
//!
//! # Example
//!
//! A Requester sends a small Call and gets its Reply, on a version 1 connection:
//!
//! ```
//! use rpcrdma_proto::proto::wire::chunk::NoChunks;
//! use rpcrdma_proto::proto::wire::cm_private::CmPrivate;
//! use rpcrdma_proto::proto::connection::{Config, Connection, Event};
//! use rpcrdma_proto::proto::wire::header::Outgoing;
//! use rpcrdma_proto::proto::connection::hostauth::Policy;
//! use rpcrdma_proto::proto::connection::negotiate::{Opening, Time, Versions};
//! use rpcrdma_proto::proto::requester::plan::{plan, Buf, CallShape, Limits, Part};
//! use rpcrdma_proto::proto::wire::property::Properties;
//! use rpcrdma_proto::proto::requester::reply::{check_conveyed, Payload};
//! use rpcrdma_proto::proto::wire::types::{Handle, MsgType, Xid};
//!
//! let config = Config {
//!     versions: Versions::V1,
//!     cm_private: CmPrivate::DEFAULT,
//!     properties: Properties::DEFAULT,
//!     xid: Xid(0),
//!     calls: 32,
//!     grants: 16,
//!     ceiling: 0,
//!     continued: 0,
//!     keep_alive: Time(60_000),
//!     answer: Time(5_000),
//!     auth: Policy::Ignore,
//! };
//! let now = Time(0);
//! let mut client = Connection::client(config, Opening::Announced, &[], now);
//! let mut limits = Limits::v1(4096, 4096);
//! client.apply(&mut limits);
//!
//! let head = |len| Buf { head: Part { len, page_offset: 0 }, ..Buf::default() };
//! let call = CallShape {
//!     send: head(40),
//!     arguments: &[],
//!     receive: head(128),
//!     results: &[],
//!     protected: false,
//! };
//! let plan = plan(&call, &limits).unwrap();
//! let mut header = [0; 64];
//! let message = Outgoing {
//!     xid: Xid(7),
//!     direction: MsgType::Call,
//!     kind: plan.kind(),
//!     more: false,
//!     inv_handle: Handle::NONE,
//! };
//! let len = client.send(now, &mut header, &message, &NoChunks).unwrap();
//! assert_eq!(len as u32, plan.header_len);
//!
//! // The header, and an RPC Reply of 24 bytes.
//! let mut message = header[..len].to_vec();
//! message.extend([0, 0, 0, 7, 0, 0, 0, 1]);
//! message.resize(len + 24, 0);
//! let Event::Reply(arrived) = client.handle_message(now, &message, None) else { panic!() };
//! let (xid, start) = (arrived.fixed.xid, arrived.part.start);
//! let reply = check_conveyed(xid, &arrived.conveyed, start, &NoChunks).unwrap();
//! client.handle_call_ended();
//! assert!(matches!(reply.payload, Payload::Inline(bytes) if bytes.len() == 24));
//! ```
//!
//! # Citations
//!
//! A requirement that a piece of code fulfils is cited above it as `//= V1-014`, with the identifiers of
//! `Documentation/requirements`. `V1` stands for the version 1 protocol, `V2` for
//! version 2, `CM` for the private data exchanged while connecting, `VA` for the announcement of the
//! version in them (`Documentation/version2.rst`), `NFS` for the NFS upper-layer
//! binding and `D` for the decisions taken where the documents leave a choice.

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod connection;
pub mod invalidate;
pub mod requester;
pub mod resources;
pub mod responder;
pub mod wire;
