// SPDX-License-Identifier: GPL-2.0

use crate::{
    pool::{Idles, Pool, SMALL_PAGES},
    rdma::mr::{Mr, MrList},
};
use loom::{
    model,
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        Arc,
    },
    thread,
};

const LARGE_PAGES: u32 = SMALL_PAGES + 1;

/// A transport: the pool of its connection, and the mark of a sender that sunrpc lets wait.
struct Transport {
    pool: Pool,
    /// `XPRT_WRITE_SPACE` of sunrpc.
    waits: AtomicBool,
    was_woken: AtomicBool,
}

impl Transport {
    fn new() -> Arc<Self> {
        let this = Self {
            pool: Pool::new(),
            waits: AtomicBool::new(false),
            was_woken: AtomicBool::new(false),
        };
        // Makes the variables.
        this.pool.take_all();
        this.pool.take_wanted();
        Arc::new(this)
    }

    /// Wakes the sender, as `Xprt::write_space` does.
    fn wake_sender(&self, wanted: bool) {
        if wanted && self.waits.load(Relaxed) {
            self.was_woken.store(true, Relaxed);
        }
    }

    fn give_back(&self, mr_pages: u32) {
        self.wake_sender(self.pool.put(Mr::new(mr_pages)));
    }

    /// Looks for a registration, as the sender does. Returns the registrations of the sender, and whether the
    /// sender sleeps.
    fn send(&self, pages: u32) -> (Idles, bool) {
        let mut stash = Idles::new();
        stash.fill_from(&self.pool, pages);
        if stash.take(pages).is_some() {
            return (stash, false);
        }
        self.waits.store(true, Relaxed);
        self.pool.want();
        stash.fill_from(&self.pool, pages);
        let sleeps = stash.take(pages).is_none();
        (stash, sleeps)
    }
}

/// Returns the number of registrations that `pool` has.
fn count(pool: &Pool) -> u32 {
    let mut all = pool.take_all();
    std::iter::from_fn(|| all.pop()).map(|_| 1).sum()
}

#[test]
fn a_registration_that_comes_back_wakes_the_sender() {
    for (given, wanted) in [
        (SMALL_PAGES, SMALL_PAGES),
        (LARGE_PAGES, SMALL_PAGES),
        (LARGE_PAGES, LARGE_PAGES),
    ] {
        model(move || {
            let transport = Transport::new();
            let completion = thread::spawn({
                let transport = transport.clone();
                move || transport.give_back(given)
            });
            let (_, sleeps) = transport.send(wanted);
            completion.join().unwrap();
            assert!(!sleeps || transport.was_woken.load(Relaxed));
        });
    }
}

#[test]
fn several_registrations_that_come_back_wake_the_sender() {
    model(|| {
        let transport = Transport::new();
        let completion = thread::spawn({
            let transport = transport.clone();
            move || {
                let mut mrs = MrList::new();
                mrs.push(Mr::new(SMALL_PAGES));
                mrs.push(Mr::new(LARGE_PAGES));
                transport.wake_sender(transport.pool.put_all(mrs));
            }
        });
        let (_, sleeps) = transport.send(SMALL_PAGES);
        completion.join().unwrap();
        assert!(!sleeps || transport.was_woken.load(Relaxed));
    });
}

#[test]
fn two_completions_wake_the_sender_and_lose_no_registration() {
    model(|| {
        let transport = Transport::new();
        let completions = [SMALL_PAGES, LARGE_PAGES].map(|pages| {
            let transport = transport.clone();
            thread::spawn(move || transport.give_back(pages))
        });
        let (mut stash, sleeps) = transport.send(LARGE_PAGES);
        for completion in completions {
            completion.join().unwrap();
        }
        assert!(!sleeps || transport.was_woken.load(Relaxed));
        transport.pool.put_all(stash.take_all());
        assert_eq!(count(&transport.pool), if sleeps { 2 } else { 1 });
    });
}

#[test]
fn a_worker_that_takes_the_other_size_wakes_the_sender() {
    model(|| {
        let transport = Transport::new();
        transport.pool.put(Mr::new(LARGE_PAGES));
        transport.pool.put(Mr::new(LARGE_PAGES));
        let worker = thread::spawn({
            let transport = transport.clone();
            move || {
                // All large registrations are out of the pool for a moment.
                let (freed, wanted) = transport.pool.take_other(SMALL_PAGES);
                transport.wake_sender(wanted);
                freed.is_some()
            }
        });
        let (_, sleeps) = transport.send(LARGE_PAGES);
        worker.join().unwrap();
        assert!(!sleeps || transport.was_woken.load(Relaxed));
    });
}
