//! A program that counts, seen from inside.

use std::{alloc::System, hint::black_box};

use kai_heap::{Counting, is_counting, live, peak_during};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// The bytes that `make` keeps.
fn kept<T>(make: impl FnOnce() -> T) -> isize {
    let before = live();
    let object = black_box(make());
    let after = live();
    drop(object);
    assert_eq!(live(), before, "all of it came back");
    after - before
}

#[test]
fn every_byte_is_counted_and_every_byte_comes_back() {
    assert!(is_counting());
    assert_eq!(kept(|| Vec::<u8>::with_capacity(1000)), 1000);
    assert_eq!(kept(|| vec![0_u64; 125]), 1000, "zeroed memory too");
    assert_eq!(kept(|| Box::new([1_u8; 77])), 77);
    assert_eq!(kept(|| ()), 0);
}

#[test]
fn memory_that_grows_or_shrinks_counts_once() {
    let grown = kept(|| {
        let mut bytes = Vec::<u8>::with_capacity(10);
        bytes.extend([1; 10]);
        bytes.reserve_exact(5000);
        bytes.truncate(3);
        bytes.shrink_to_fit();
        bytes
    });
    assert_eq!(grown, 3);
}

#[test]
fn the_peak_is_what_was_held_at_once() {
    let ((), peak) = peak_during(|| {
        drop(black_box(vec![1_u8; 5000]));
        drop(black_box(vec![1_u8; 3000]));
    });
    assert_eq!(peak, 5000);
    let (held, peak) = peak_during(|| (black_box(vec![1_u8; 100]), black_box(vec![1_u8; 200])));
    assert_eq!(peak, 300);
    drop(held);
}

#[test]
fn a_peak_within_a_peak_is_part_of_it() {
    let ((), outer) = peak_during(|| {
        let first = black_box(vec![1_u8; 1000]);
        let ((), inner) = peak_during(|| drop(black_box(vec![1_u8; 500])));
        assert_eq!(inner, 500);
        drop(first);
    });
    assert_eq!(outer, 1500);
}

#[test]
fn threads_count_for_themselves() {
    let before = live();
    let counted = std::thread::scope(|scope| {
        scope.spawn(|| kept(|| Vec::<u8>::with_capacity(4096))).join().expect("the thread only counts")
    });
    assert_eq!(counted, 4096);
    assert!((live() - before).abs() < 4096, "what the other thread held is not ours: {}", live() - before);
}
