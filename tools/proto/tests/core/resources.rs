// SPDX-License-Identifier: GPL-2.0

use rpcrdma_proto::proto::connection::credit::RecvCredits;
use rpcrdma_proto::proto::resources::{
    resources, responder, Device, Resources, ResponderResources,
};

/// 1 MiB that need not begin at a page boundary.
const DATA_PAGES: u32 = 257;

fn device(registration_pages: u32, max_qp_wr: u32) -> Device {
    Device {
        registration_pages,
        max_qp_wr,
        max_cqe: u32::MAX,
    }
}

/// Numbers around the limits, and some far from them.
fn devices() -> impl Iterator<Item = Device> {
    let pages = [
        1,
        2,
        15,
        16,
        17,
        18,
        19,
        30,
        64,
        128,
        256,
        257,
        511,
        262_144,
        u32::MAX,
    ];
    let wrs = (0..200).chain([255, 894, 895, 1023, 4096, 16_383, 16_384, 32_768, u32::MAX]);
    let cqes = [0, 1, 50, 100, 500, 1000, 4096, 65_536, u32::MAX];
    wrs.flat_map(move |max_qp_wr| {
        pages.into_iter().flat_map(move |registration_pages| {
            cqes.into_iter().map(move |max_cqe| Device {
                registration_pages,
                max_qp_wr,
                max_cqe,
            })
        })
    })
}

fn all() -> impl Iterator<Item = (u32, Device, Resources)> {
    devices().flat_map(|device| {
        [1, 2, 16, 128, 16_384, u32::MAX]
            .into_iter()
            .filter_map(move |n| Some((n, device, resources(n, DATA_PAGES, &device)?)))
    })
}

/// Returns whether queues for these work requests, and for the markers at their ends, fit the
/// device.
fn fits(device: &Device, sends: u64, receives: u32) -> bool {
    let marker = u64::from(Resources::MARKER);
    let sends = sends + marker;
    let receives = u64::from(receives) + marker;
    sends <= u64::from(device.max_qp_wr)
        && receives <= u64::from(device.max_qp_wr)
        && sends + receives <= u64::from(device.max_cqe)
}

#[test]
fn the_queues_fit_the_device() {
    for (wanted, device, r) in all() {
        assert!(
            fits(
                &device,
                u64::from(r.send_room) + u64::from(r.registrations),
                r.receives
            ),
            "{device:?} {r:?}"
        );
        assert!((1..=wanted).contains(&r.requests), "{device:?} {r:?}");
        assert!(r.segment_pages <= device.registration_pages && r.chunk_segments <= 16);
    }
}

/// The worst that can be in the send queue, counted: the Sends that the room admits, and an
/// invalidation of every registration.
#[test]
fn whoever_waits_for_room_has_a_completion_to_come() {
    for (wanted, device, r) in all() {
        let largest = 1 + r.per_call();
        // Sends of any size, posted for as long as there is room for the largest.
        for registrations in 0..=r.per_call() {
            let (mut in_use, mut unsignaled, mut asked) = (0_u64, 0, false);
            while in_use + u64::from(largest) <= u64::from(r.send_room).min(1 << 16) {
                in_use += 1 + u64::from(registrations);
                unsignaled += 1 + registrations;
                if unsignaled >= r.signal_interval {
                    (unsignaled, asked) = (0, true);
                }
            }
            assert!(asked, "{device:?} {r:?} {registrations}");
        }
        // The same for buffers: not all of them can be in unsignaled Sends.
        assert!(r.sends >= r.signal_interval, "{r:?}");
        assert!(u64::from(r.sends) <= 2 * u64::from(wanted), "{r:?}");
        assert!(r.registrations >= r.per_call(), "{r:?}");
    }
}

#[test]
fn every_credit_has_a_receive_that_is_posted() {
    for (_, device, r) in all() {
        let withheld = r.recv_batch - 1;
        assert!(r.receives - withheld > r.requests, "{device:?} {r:?}");
    }
    // With a device of usual size there is one for each Call that the server may send, too.
    let r = resources(128, DATA_PAGES, &device(511, 16_384)).unwrap();
    assert!(r.receives - (r.recv_batch - 1) - r.requests >= 17);
}

//= V2-052, D-10 (test)
#[test]
fn every_message_has_a_receive_that_is_posted() {
    for (_, device, before) in all() {
        for messages in [1, 4, 16, 144, 100_000] {
            let mut r = before;
            let ceiling = r.add_messages(messages, &device);
            let receives = r.receives + Resources::MARKER;
            let sends = r.send_wr() + Resources::MARKER;
            assert!(receives <= device.max_qp_wr, "{device:?} {r:?}");
            assert!(sends + receives <= device.max_cqe, "{device:?} {r:?}");
            if ceiling == 0 {
                assert_eq!(r, before);
                continue;
            }
            // A batch but one waits to be posted, and one message is being handled.
            let posted = r.receives - r.recv_batch;
            assert!(RecvCredits::receives(ceiling) <= posted, "{device:?} {r:?}");
            assert!(u32::from(ceiling) <= messages && r.receives >= before.receives);
            if u32::from(ceiling) < messages.min(u16::MAX.into()) {
                // There is no room for one more.
                let more = RecvCredits::receives(ceiling + 1) + r.recv_batch;
                let room = (device.max_qp_wr - 1).min(device.max_cqe - 2 - r.send_wr());
                assert!(more > room, "{device:?} {r:?} {ceiling}");
            }
        }
    }
    let usual = device(511, 16_384);
    assert_eq!(
        resources(128, DATA_PAGES, &usual)
            .unwrap()
            .add_messages(144, &usual),
        144
    );
    let mut r = responder(128, 16, 20, &usual).unwrap();
    assert!(r.count_messages(&usual));
    let receives = ResponderResources::message_receives;
    assert_eq!((r.grants, r.receives), (256, receives(256, 16)));
    // With a shorter queue there are fewer Calls at a time, and none with too short a one.
    for max_qp_wr in 20..300 {
        let short = device(511, max_qp_wr);
        let Some(before) = responder(128, 2, 1, &short) else {
            continue;
        };
        let mut r = before;
        if r.count_messages(&short) {
            assert!((1..=before.grants).contains(&r.grants), "{r:?}");
            assert!(receives(r.grants, 2) <= r.receives, "{r:?}");
            assert!(r.receives + Resources::MARKER <= max_qp_wr, "{r:?}");
        } else {
            assert_eq!(r, before);
        }
        // Fewer resources exist while the connection grows.
        for calls in 1..r.grants {
            assert!(receives(calls, 2) <= receives(r.grants, 2));
        }
    }
}

/// The result of the C module for a device (frwr_query_device): credits, or a refusal.
fn own_module(requests: u32, device: &Device) -> Option<u32> {
    let pages = device.registration_pages.min(DATA_PAGES);
    let mut depth = 7;
    let mut left = i64::from(DATA_PAGES) - i64::from(pages);
    while left > 0 {
        depth += 2;
        left -= i64::from(pages);
    }
    let wrs = device.max_qp_wr.checked_sub(33).filter(|&wrs| wrs >= 4)?;
    Some(requests.min(wrs).min(wrs / depth)).filter(|&n| n != 0)
}

#[test]
fn what_the_own_module_takes_is_taken() {
    for device in devices().filter(|device| device.max_cqe == u32::MAX) {
        if own_module(128, &device).is_some() {
            assert!(resources(128, DATA_PAGES, &device).is_some(), "{device:?}");
        }
    }
}

#[test]
fn devices_that_exist_have_the_credits_that_the_own_module_gives() {
    // i40iw, siw, mlx4, mlx5 with queues of 2^14, rxe.
    for (pages, wr) in [
        (511, 895),
        (256, 32_768),
        (511, 16_351),
        (257, 16_384),
        (512, 1 << 20),
    ] {
        let device = device(pages, wr);
        let r = resources(128, DATA_PAGES, &device).unwrap();
        assert!(
            r.requests >= own_module(128, &device).unwrap(),
            "{device:?} {r:?}"
        );
        assert_eq!(r.requests, 128, "{device:?} {r:?}");
        assert_eq!((r.receives, r.recv_batch, r.signal_interval), (161, 16, 64));
    }
}

#[test]
fn a_device_that_registers_nothing_is_refused() {
    assert_eq!(resources(128, DATA_PAGES, &device(0, 16_384)), None);
    assert_eq!(resources(128, DATA_PAGES, &device(257, 0)), None);
    let no_completions = Device {
        max_cqe: 0,
        ..device(257, 16_384)
    };
    assert_eq!(resources(128, DATA_PAGES, &no_completions), None);
}

#[test]
fn the_usual_sizes() {
    let r = resources(128, DATA_PAGES, &device(257, 16_384)).unwrap();
    let expected = Resources {
        requests: 128,
        receives: 161,
        recv_batch: 16,
        sends: 192,
        segment_pages: 257,
        chunk_segments: 3,
        registrations: 384,
        send_room: 63 + 7 + 381,
        signal_interval: 64,
    };
    assert_eq!(r, expected);
    assert_eq!(r.send_wr(), 835);
}

fn responders_of(largest: u32) -> impl Iterator<Item = (u32, u32, Device, ResponderResources)> {
    devices().flat_map(move |device| {
        [(1, 0), (4, 2), (128, 2), (16_384, 2), (u32::MAX, u32::MAX)]
            .into_iter()
            .filter_map(move |(calls, callbacks)| {
                let r = responder(calls, callbacks, largest, &device)?;
                Some((calls, callbacks, device, r))
            })
    })
}

fn all_responders() -> impl Iterator<Item = (u32, u32, Device, ResponderResources)> {
    [1, 70, 1029].into_iter().flat_map(responders_of)
}

/// Beside Sends that owe no completion.
#[test]
fn a_responder_has_room_for_the_largest_message_or_is_none() {
    for largest in [1, 70, 1029, u32::MAX] {
        for (_, _, device, r) in responders_of(largest) {
            assert!(
                r.send_room - r.signal_interval >= largest,
                "{device:?} {r:?}"
            );
        }
    }
    let few_sges = responder(128, 2, 1029, &device(256, 16_384)).unwrap();
    assert_eq!(few_sges.send_room, 256 + 1029 + 64);
    assert_eq!(responder(128, 2, 1029, &device(256, 1024)), None);
    assert!(responder(128, 2, 900, &device(256, 1024)).is_some());
}

#[test]
fn a_responders_queues_fit_the_device() {
    for (_, _, device, r) in all_responders() {
        assert!(
            fits(&device, r.send_room.into(), r.receives),
            "{device:?} {r:?}"
        );
    }
}

#[test]
fn a_responder_has_a_receive_for_what_the_peer_may_send() {
    for (calls, callbacks, device, r) in all_responders() {
        assert!(1 <= r.grants, "{device:?} {r:?}");
        assert!(r.grants <= calls.saturating_mul(2), "{device:?} {r:?}");
        for granted in 1..=r.grants {
            let receives = ResponderResources::receives(granted, callbacks);
            assert!(receives <= r.receives, "{device:?} {r:?}");
            // Short of a batch, Receives are not posted.
            let posted = receives - (ResponderResources::recv_batch(granted) - 1);
            assert!(posted >= granted + callbacks, "{device:?} {r:?}");
        }
        assert_eq!(
            r.receives,
            ResponderResources::receives(r.grants, callbacks)
        );
    }
}

/// Its send queue has the same length without them.
#[test]
fn what_a_responder_may_grant_later_takes_nothing_from_what_it_has_now() {
    for (calls, callbacks, device, r) in all_responders() {
        let now = calls.min(r.grants);
        let queue = device.max_qp_wr - Resources::MARKER;
        let completions = device.max_cqe - 2 * Resources::MARKER;
        let wanted = now.saturating_mul(2).saturating_add(254).min(queue);
        let rest = completions - ResponderResources::receives(now, callbacks);
        assert!(r.send_room >= wanted.min(rest), "{device:?} {r:?}");
    }
}

#[test]
fn a_responder_that_waits_for_room_has_a_completion_to_come() {
    for (_, _, device, r) in all_responders() {
        assert!(r.signal_interval >= 1);
        assert!(r.signal_interval <= r.send_room / 2, "{device:?} {r:?}");
    }
}

#[test]
fn a_responder_on_a_common_device() {
    let r = responder(128, 2, 69, &device(256, 16_384)).unwrap();
    // Twice the requested number, for later.
    assert_eq!(r.grants, 256);
    assert_eq!(r.receives, 273);
    // With the marker and a free entry, a power of two: the same as for 128 Calls.
    assert_eq!(r.send_room, 510);
    assert_eq!(responder(128, 2, 1, &device(256, 8)), None);
}
