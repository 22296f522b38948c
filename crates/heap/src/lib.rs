//! An allocator that counts what it gives out, thread by thread.
//!
//! ```text
//!   program ── #[global_allocator] Counting(any allocator) ──▶ live and peak bytes of this thread
//! ```
//!
//! The counters are plain cells of the thread: counting costs a few instructions and no thread waits for another, so that the program that
//! is shipped can count. The price: what one thread gets and another gives back is counted as got by the one and given back by the other.
//! Whoever measures stays on one thread. It must not know: anything else.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    hint::black_box,
};

thread_local! {
    // Constant and without a destructor: reading them allocates nothing and works until the thread's very end.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting<A>(pub A);

/// Bytes that this thread got more than it gave back.
#[must_use]
pub fn live() -> isize {
    LIVE.get()
}

/// Whether this program counts at all: whether its allocator is a [`Counting`].
#[must_use]
pub fn is_counting() -> bool {
    let before = live();
    let probe = black_box(Box::new(0_u8));
    let counted = live() != before;
    drop(probe);
    counted
}

/// Runs `work` and says how many bytes more than before this thread held at the most.
pub fn peak_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (before, outer) = (live(), PEAK.get());
    PEAK.set(before);
    let outcome = work();
    let peak = PEAK.get();
    PEAK.set(peak.max(outer));
    (outcome, usize::try_from(peak - before).unwrap_or(0))
}

/// Counts bytes that were got; sizes of layouts never exceed `isize::MAX`.
fn got(bytes: usize) {
    let live = LIVE.get().wrapping_add_unsigned(bytes);
    LIVE.set(live);
    if live > PEAK.get() {
        PEAK.set(live);
    }
}

fn gave_back(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub_unsigned(bytes));
}

#[expect(
    unsafe_code,
    reason = "the trait is unsafe; every promise is the inner allocator's, to which each call goes unchanged"
)]
// SAFETY: all calls are handed to the inner allocator as they came, and its answers are returned as they are.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those the inner allocator asks for.
        let memory = unsafe { self.0.alloc(layout) };
        if !memory.is_null() {
            got(layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { self.0.alloc_zeroed(layout) };
        if !memory.is_null() {
            got(layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        gave_back(layout.size());
        // SAFETY: as above.
        unsafe { self.0.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(memory, layout, size) };
        if !moved.is_null() {
            gave_back(layout.size());
            got(size);
        }
        moved
    }
}
