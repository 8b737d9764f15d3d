// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection's queues and pools on a device.
//!
//! The send queue holds Sends with the registrations in front of them, invalidations, and in the end the
//! marker of its drain. A full queue would end the connection, so each kind has its share:
//!
//! - Sends and registrations take entries until a completion covers them. The transport counts them and
//!   waits when [`Resources::send_room`] is used up, which may be much less than the worst case of all Sends.
//! - A registration has at most one invalidation in the queue, so [`Resources::registrations`] bounds the
//!   invalidations. This also covers RPCs that were given up: the credit goes to another RPC before the
//!   invalidation has ended.
//!
//! One Send in [`Resources::signal_interval`] entries is signaled. `send_room` is more than the unsignaled
//! entries and the largest Send, so that a completion comes whenever a sender waits for room.

use crate::proto::connection::credit::RecvCredits;

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The most pages of one registration.
    pub registration_pages: u32,
    /// The most work requests of one queue.
    pub max_qp_wr: u32,
    /// The most entries of a completion queue.
    pub max_cqe: u32,
}

/// The resources of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// The number of RPCs that may be in flight: the credits to request.
    pub requests: u32,
    /// The number of Receives.
    pub receives: u32,
    /// The number of Receives that are reposted together; up to one less may be waiting for the others.
    pub recv_batch: u32,
    /// The number of Send buffers.
    pub sends: u32,
    /// The most pages of one registration.
    pub segment_pages: u32,
    /// The most Segments of a chunk.
    pub chunk_segments: u32,
    /// The most registrations that exist at a time.
    pub registrations: u32,
    /// The most entries of the send queue for Sends and registrations.
    pub send_room: u32,
    /// The number of entries after which a Send is signaled.
    pub signal_interval: u32,
}

impl Resources {
    /// The entries that a drain needs in each queue for its marker.
    pub const MARKER: u32 = 1;

    /// Entries of the send queue, but for the marker's.
    pub const fn send_wr(&self) -> u32 {
        self.send_room.saturating_add(self.registrations)
    }

    /// Adds Receives, as far as the device has them, so that the peer may send `messages` at a time
    /// (version 2). Returns the number that it may send, which is 0 if the device has too few.
    //= V2-052, D-10
    pub fn add_messages(&mut self, messages: u32, device: &Device) -> u16 {
        let most = room(device, self.send_wr());
        add_messages(&mut self.receives, self.recv_batch, messages, most)
    }

    /// Returns the maximum number of registrations of one RPC: a Read chunk, and a Write chunk or a Reply
    /// chunk.
    pub const fn per_call(&self) -> u32 {
        self.chunk_segments.saturating_mul(2)
    }
}

/// The most Segments of a chunk that every NFS server takes.
const MOST_SEGMENTS: u32 = 16;

/// The parts of a message besides its page list: head and tail are registered apart.
const OTHER_PARTS: u32 = 2;

/// Receives for messages that answer no request: Calls of the server, which may send 16 and one more to probe.
/// Also counted here are Receives that wait for a complete batch, and the Receive of the Reply that is being
/// handled: the next Call may take its credit before the Receive is posted again.
const EXTRA_RECEIVES: u32 = 33;
/// The lower limit of these Receives.
const FEWEST_EXTRA_RECEIVES: u32 = 2;

/// The longest time without a completion, in entries of the send queue.
const MOST_UNSIGNALED: u32 = 64;

/// Returns the resources of a connection of at most `requests` RPCs at a time, of at most `data_pages` pages
/// each, or `None` if the device cannot have a connection at all.
///
/// Each RPC has room for one chunk of the largest size at a time, as READ, WRITE and READDIR need. An RPC with
/// two such chunks also has room, but other RPCs may have to wait then.
pub fn resources(requests: u32, data_pages: u32, device: &Device) -> Option<Resources> {
    let segment_pages = device.registration_pages.min(data_pages);
    if segment_pages == 0 {
        return None;
    }
    let chunk_segments = data_pages
        .div_ceil(segment_pages)
        .saturating_add(OTHER_PARTS)
        .min(MOST_SEGMENTS);
    let per_call = chunk_segments.saturating_mul(2);

    // The entries for the Sends of a connection with one RPC at a time.
    let queue = device.max_qp_wr.saturating_sub(Resources::MARKER);
    let largest_send = per_call.saturating_add(1);
    let left = queue.saturating_sub(largest_send).saturating_sub(per_call);
    // There are at most two Send buffers for each RPC.
    let signal_interval = bounded(left / 8, 1, MOST_UNSIGNALED.min(requests));
    let unsignaled = signal_interval.saturating_sub(1);
    let fixed = unsignaled.saturating_add(largest_send);
    // For each further RPC: registrations, and later their invalidations. The registrations of the first RPC
    // are in `fixed`.
    let each = chunk_segments.saturating_mul(2);
    let first = fixed.saturating_sub(chunk_segments);

    let by_send_queue = queue.saturating_sub(first).checked_div(each)?;
    let by_receive_queue = queue.saturating_sub(FEWEST_EXTRA_RECEIVES);
    let completions = device.max_cqe.saturating_sub(2 * Resources::MARKER);
    let by_completions = completions
        .saturating_sub(first)
        .saturating_sub(EXTRA_RECEIVES.min(queue))
        .checked_div(each.saturating_add(1))?;
    let requests = bounded(
        by_send_queue.min(by_receive_queue).min(by_completions),
        1,
        requests,
    );

    let share = requests.saturating_mul(chunk_segments);
    let receives = requests.saturating_add(EXTRA_RECEIVES).min(queue);
    let spare = receives.saturating_sub(requests);
    let resources = Resources {
        requests,
        receives,
        recv_batch: bounded(spare / 2, 1, EXTRA_RECEIVES / 2),
        sends: requests.saturating_add(signal_interval),
        segment_pages,
        chunk_segments,
        registrations: share.max(per_call),
        send_room: first.saturating_add(share),
        signal_interval,
    };
    let send_wr = resources.send_wr();
    let fits = send_wr <= queue
        && spare >= FEWEST_EXTRA_RECEIVES
        && send_wr.saturating_add(receives) <= completions;
    fits.then_some(resources)
}

/// The resources of a connection that the peer opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderResources {
    /// The number of Calls that there is room for at a time: the most credits that are ever granted.
    pub grants: u32,
    /// The most Calls of this side.
    pub callbacks: u32,
    /// The most Receives.
    pub receives: u32,
    /// The most entries of the send queue.
    pub send_room: u32,
    /// The number of entries after which a Send is signaled.
    pub signal_interval: u32,
}

impl ResponderResources {
    /// Takes Receives for messages of version 2, so that each Call and each Reply of the peer has
    /// one. Grants less, if the device has too few; `false` means that it has not enough for any.
    //= V2-052, D-10
    pub fn count_messages(&mut self, device: &Device) -> bool {
        let batch = Self::recv_batch(self.grants);
        let wanted = self.grants.saturating_add(self.callbacks);
        let mut receives = self.receives;
        let most = room(device, self.send_room);
        let messages = add_messages(&mut receives, batch, wanted, most);
        let grants = u32::from(messages).saturating_sub(self.callbacks);
        if grants == 0 {
            return false;
        }
        self.grants = self.grants.min(grants);
        self.receives = receives;
        true
    }

    /// Returns the number of Receives for messages of version 2 while there are credits for `calls` Calls.
    //= V2-052, D-10
    pub fn message_receives(calls: u32, callbacks: u32) -> u32 {
        let messages = u16::try_from(calls.saturating_add(callbacks)).unwrap_or(u16::MAX);
        RecvCredits::receives(messages).saturating_add(Self::recv_batch(calls))
    }
}

/// Returns the number of Receives that a device has room for beside `send_wr` entries of the send queue.
fn room(device: &Device, send_wr: u32) -> u32 {
    let completions = device.max_cqe.saturating_sub(2 * Resources::MARKER);
    let queue = device.max_qp_wr.saturating_sub(Resources::MARKER);
    queue.min(completions.saturating_sub(send_wr))
}

/// Returns the ceiling of a version 2 connection: `messages`, or the number of possible Receives if that is
/// less. `batch` Receives are posted together.
///
/// The protocol counts a Receive as posted as soon as its message is not kept. Before that it may
/// have to wait for `batch - 1` others, and one message at a time is being handled. These Receives
/// are extra.
fn add_messages(receives: &mut u32, batch: u32, messages: u32, most: u32) -> u16 {
    let wanted = u16::try_from(messages).unwrap_or(u16::MAX);
    let total = |ceiling: u16| RecvCredits::receives(ceiling).saturating_add(batch);
    let left = most.saturating_sub(total(0));
    let ceiling = wanted.min(u16::try_from(left).unwrap_or(u16::MAX));
    if ceiling != 0 {
        *receives = total(ceiling).max(*receives);
    }
    ceiling
}

/// The fewest entries of a send queue that data can be moved with.
const FEWEST_SENDS: u32 = 16;

/// The entries of the send queue for RDMA Reads and Writes of Calls that are handled at a time.
/// Devices have queues of a power of two of entries, which this leaves for 128 Calls when there is
/// room for the marker and one more.
const MOVES: u32 = 254;

/// The factor by which a connection has room for Receives beyond the Calls of the setting, if the device has
/// room: the setting may be raised while the peer is connected, and a queue does not grow.
const HEADROOM: u32 = 2;

/// The most Send buffers that are kept for a connection without having been needed at once.
const MOST_SENDS: u32 = 8;

impl ResponderResources {
    /// Returns the number of Receives that are reposted together while there are credits for `calls` Calls.
    pub const fn recv_batch(calls: u32) -> u32 {
        bounded(calls, 1, EXTRA_RECEIVES / 2)
    }

    /// Returns the number of Receives while there are credits for `calls` Calls.
    ///
    /// A Receive is not posted while its Call is handled, and is posted before the Reply that gives the credit
    /// back. Receives that wait to be posted with others are extra.
    //= V1-040, V1-125, V1-126
    pub const fn receives(calls: u32, callbacks: u32) -> u32 {
        calls
            .saturating_add(callbacks)
            .saturating_add(Self::recv_batch(calls).saturating_sub(1))
    }

    /// Returns the number of first Send buffers while there are credits for `calls` Calls.
    pub const fn sends(calls: u32) -> u32 {
        let quarter = calls / 4;
        if quarter > MOST_SENDS {
            MOST_SENDS
        } else if quarter == 0 {
            1
        } else {
            quarter
        }
    }
}

/// Returns the resources of a connection on which the peer may have `calls` Calls in progress, and this side
/// `callbacks`. Later the peer may have up to twice the number, if the device has room. Returns `None` if the
/// device cannot have a connection at all.
///
/// A Reply waits for room, so the send queue need not have room for all Replies at once. It always has
/// room for one Reply of `largest` work requests.
pub fn responder(
    calls: u32,
    callbacks: u32,
    largest: u32,
    device: &Device,
) -> Option<ResponderResources> {
    let queue = device.max_qp_wr.saturating_sub(Resources::MARKER);
    let completions = device.max_cqe.saturating_sub(2 * Resources::MARKER);
    let most = queue.min(completions / 2);
    let extra = |calls| {
        let batch = ResponderResources::recv_batch(calls);
        callbacks.saturating_add(batch.saturating_sub(1))
    };
    let now = bounded(most.saturating_sub(extra(calls.min(most))), 1, calls);
    let receives = ResponderResources::receives(now, callbacks);
    let moves = MOVES.max(largest.saturating_add(MOST_UNSIGNALED));
    let wanted = now.saturating_mul(2).saturating_add(moves);
    let send_room = wanted.min(queue).min(completions.saturating_sub(receives));
    let signal_interval = bounded(send_room / 8, 1, MOST_UNSIGNALED);
    let fits_always = send_room.saturating_sub(signal_interval);
    if receives > most || send_room < FEWEST_SENDS || fits_always < largest {
        return None;
    }
    // Only from the entries that are left: the entries that move data stay.
    let later = calls.saturating_mul(HEADROOM);
    let left = room(device, send_room).saturating_sub(extra(later));
    let grants = bounded(left, now, later);
    Some(ResponderResources {
        grants,
        callbacks,
        receives: ResponderResources::receives(grants, callbacks),
        send_room,
        signal_interval,
    })
}

/// Returns `value` if it is within `low` and `high`, or the nearer of both; `low` if `low` is beyond `high`.
const fn bounded(value: u32, low: u32, high: u32) -> u32 {
    let value = if value < high { value } else { high };
    if value > low {
        value
    } else {
        low
    }
}
