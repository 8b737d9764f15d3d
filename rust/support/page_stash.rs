// SPDX-License-Identifier: GPL-2.0

//! Free pages that wait for the next WRITE.
//!
//! The RDMA Reads of a Call fill pages that become pages of the thread that handles the Call, in exchange for the
//! unused pages of that thread. The stash keeps these for the next Call. Without it, each WRITE of a MiB would
//! free 256 pages, and the core would allocate 256 others.
//!
//! All connections share the stash. It has a budget for the module, and gives its pages back when the kernel
//! needs memory (`struct shrinker`). Each NUMA node has its own part, for the threads that run there.
//!
//! C header: `include/linux/shrinker.h`.

use super::{
    memory::{
        self,
        PAGE_SIZE, //
    },
    pages, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    alloc::flags::GFP_NOWAIT,
    ffi::c_ulong,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        SpinLock, //
    },
};

/// The largest budget in bytes.
const MOST: usize = 64 << 20;

/// The divisor of the machine's memory that gives the largest budget.
const SHARE: usize = 256;

/// The number of pages that are given back to the kernel at a time.
const AT_ONCE: usize = 32;

/// Pages at rest, each with a reference that belongs to the stash. The capacity is the budget.
struct Resting(KVVec<NonNull<bindings::page>>);

// SAFETY: `struct page` does not belong to a task.
unsafe impl Send for Resting {}

type NodeStash = SpinLock<Resting>;

/// The stash, while there is a [`PageStash`].
static NODES: Atomic<*mut KVec<Pin<KBox<NodeStash>>>> = Atomic::new(core::ptr::null_mut());

/// The stash. It is made before the first use of a [`PageBuf`](super::pages::PageBuf), and dropped after the last.
pub(crate) struct PageStash {
    shrinker: NonNull<bindings::shrinker>,
}

// SAFETY: a shrinker does not belong to a task (mm/shrinker.c).
unsafe impl Send for PageStash {}
// SAFETY: a shared `PageStash` gives access to nothing.
unsafe impl Sync for PageStash {}

impl PageStash {
    /// Makes the stash, once. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there is no memory.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: reads a variable that the kernel sets at boot.
        let count = unsafe { bindings::rpcrdma_node_count() } as usize;
        let budget = (memory::total() / SHARE).min(MOST) / PAGE_SIZE as usize;
        let share = budget.checked_div(count).unwrap_or(budget);
        let mut nodes = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let pages = Resting(KVVec::with_capacity(share, GFP_KERNEL)?);
            nodes.push(
                KBox::pin_init(new_spinlock!(pages), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        let nodes = KBox::new(nodes, GFP_KERNEL)?;
        // SAFETY: the name is a C string without conversions.
        let shrinker = unsafe {
            bindings::shrinker_alloc(
                bindings::rpcrdma_shrinker_numa_aware,
                c"rpcrdma-pages".as_char_ptr(),
            )
        };
        let shrinker = NonNull::new(shrinker).ok_or(ENOMEM)?;
        NODES.store(KBox::into_raw(nodes), Release);
        // SAFETY: the shrinker is new, and not registered yet.
        unsafe { (*shrinker.as_ptr()).count_objects = Some(count_callback) };
        // SAFETY: the shrinker is new, and not registered yet.
        unsafe { (*shrinker.as_ptr()).scan_objects = Some(scan_callback) };
        // SAFETY: the shrinker has both callbacks.
        unsafe { bindings::shrinker_register(shrinker.as_ptr()) };
        Ok(Self { shrinker })
    }
}

impl Drop for PageStash {
    fn drop(&mut self) {
        // SAFETY: registered by `new`. The callbacks do not run any more when this returns.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) };
        let nodes = NODES.xchg(core::ptr::null_mut(), kernel::sync::atomic::Full);
        // SAFETY: set by `new` with `KBox::into_raw`; there are no users any more.
        let nodes = unsafe { KBox::from_raw(nodes) };
        for node in nodes.iter() {
            pages::release(&mut node.lock().0);
        }
    }
}

/// Returns the part of a node.
#[inline]
fn stash_of(node: usize) -> Option<&'static NodeStash> {
    let nodes = NODES.load(Acquire);
    if nodes.is_null() {
        return None;
    }
    // SAFETY: set by `new`, and there until all users have gone.
    unsafe { (*nodes).get(node) }.map(|node| &**node)
}

/// Returns the part of the node that runs this.
#[inline]
fn stash() -> Option<&'static NodeStash> {
    // SAFETY: reads a variable of the processor that runs this. Any node is right.
    stash_of(unsafe { bindings::rpcrdma_this_node() } as usize)
}

/// Returns the number of pages at rest, and the budget in pages. Context: process, does not sleep.
pub(crate) fn counts() -> (usize, usize) {
    let nodes = (0..).map_while(stash_of);
    nodes.fold((0, 0), |(count, most), node| {
        let resting = node.lock();
        (count + resting.0.len(), most + resting.0.capacity())
    })
}

/// Moves `count` pages from the stash to `owned`. Returns `false`, and moves no page, if there are too few.
///
/// Context: process, may sleep.
pub(super) fn take(owned: &mut KVec<NonNull<bindings::page>>, count: usize) -> bool {
    let Some(stash) = stash() else {
        return false;
    };
    if owned.reserve(count, GFP_KERNEL).is_err() {
        return false;
    }
    let mut resting = stash.lock();
    let pages = &mut resting.0;
    let Some((left, taken)) = pages
        .len()
        .checked_sub(count)
        .and_then(|left| Some((left, pages.get(left..)?)))
    else {
        return false;
    };
    // Does not allocate: the capacity suffices.
    let moved = owned.extend_from_slice(taken, GFP_NOWAIT).is_ok();
    if moved {
        pages.truncate(left);
    }
    moved
}

/// Moves pages from `owned` to the stash until it is full. The rest stay.
///
/// A page with a foreign reference may be in use by other code, and is not kept. Context: process, does not
/// sleep.
pub(super) fn put(owned: &mut KVec<NonNull<bindings::page>>) {
    if !owned.iter().all(|page| is_unshared(*page)) {
        return;
    }
    let Some(stash) = stash() else {
        return;
    };
    let mut resting = stash.lock();
    let pages = &mut resting.0;
    let room = pages.capacity() - pages.len();
    let left = owned.len().saturating_sub(room);
    let Some(moved) = owned.get(left..) else {
        return;
    };
    // Does not allocate: there is room.
    if pages.extend_from_slice(moved, GFP_NOWAIT).is_ok() {
        owned.truncate(left);
    }
}

/// Returns whether only the caller has a reference to the page.
#[inline]
fn is_unshared(page: NonNull<bindings::page>) -> bool {
    // SAFETY: the caller has a reference to the page. The field is an `atomic_t`; one load gets one of its values.
    let count = unsafe { core::ptr::read_volatile(&raw const (*page.as_ptr())._refcount.counter) };
    count == 1
}

/// Returns the number of pages at rest of a node.
///
/// # Safety
///
/// Called by the kernel for the shrinker of a [`PageStash`].
unsafe extern "C" fn count_callback(
    _shrinker: *mut bindings::shrinker,
    control: *mut bindings::shrink_control,
) -> c_ulong {
    // SAFETY: the kernel passes an object that it does not change meanwhile.
    let node = unsafe { (*control).nid };
    let stash = usize::try_from(node).ok().and_then(stash_of);
    stash.map_or(0, |stash| stash.lock().0.len()) as c_ulong
}

/// Gives pages at rest of a node back to the kernel, and returns their number.
///
/// # Safety
///
/// Called by the kernel for the shrinker of a [`PageStash`].
unsafe extern "C" fn scan_callback(
    _shrinker: *mut bindings::shrinker,
    control: *mut bindings::shrink_control,
) -> c_ulong {
    // SAFETY: the kernel passes an object that it does not change meanwhile.
    let (node, most) = unsafe { ((*control).nid, (*control).nr_to_scan) };
    let Some(stash) = usize::try_from(node).ok().and_then(stash_of) else {
        return 0;
    };
    let mut freed = 0;
    while freed < most {
        let mut pages = [core::ptr::null_mut(); AT_ONCE];
        let mut count = 0;
        let mut resting = stash.lock();
        for place in pages.iter_mut().take(most - freed) {
            let Some(page) = resting.0.pop() else {
                break;
            };
            *place = page.as_ptr();
            count += 1;
        }
        drop(resting);
        if count == 0 {
            break;
        }
        // SAFETY: the references to the first `count` pages were the stash's, and are given back once.
        unsafe { bindings::rpcrdma_release_page_array(pages.as_mut_ptr(), count as i32) };
        freed += count;
    }
    freed as c_ulong
}
