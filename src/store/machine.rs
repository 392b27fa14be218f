//! What the processor can do and plain Rust cannot say.

use crate::format::index::{BUCKET_SLOTS, Bucket};

/// Starts to load the cache line in which a value begins, and does not wait.
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address: *const T = value;
        // SAFETY: A prefetch is a hint: it reads nothing that the program sees, and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// A bit for each slot of a bucket that holds a tag, from the lowest.
#[inline(always)]
pub(super) fn slots_with(bucket: &Bucket, tag: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 processor has SSE2, the one feature that the function asks for.
    return unsafe { slots_with_sse2(bucket, tag) };
    #[cfg(not(target_arch = "x86_64"))]
    return slots_with_plainly(bucket, tag);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn slots_with_sse2(bucket: &Bucket, tag: u8) -> u32 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};
    use zerocopy::IntoBytes;
    // Behind the tags are four bytes that are none.
    let Some(head) = bucket.as_bytes().first_chunk::<{ size_of::<__m128i>() }>() else { return 0 };
    let tags: __m128i = zerocopy::transmute!(*head);
    let slots = _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag.cast_signed())));
    slots.cast_unsigned() & ((1 << BUCKET_SLOTS) - 1)
}

/// The dull twin.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn slots_with_plainly(bucket: &Bucket, tag: u8) -> u32 {
    bucket.tags.iter().enumerate().map(|(slot, other)| u32::from(*other == tag) << slot).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_each_slot_and_nowhere_else() {
        let mut bucket = Bucket::EMPTY;
        (bucket.overflows, bucket.reserved) = (7, [7; 3]);
        bucket.places = [0x0707_0707.into(); BUCKET_SLOTS];
        assert_eq!(slots_with(&bucket, 7), 0);
        for slot in 0..BUCKET_SLOTS {
            bucket.tags[slot] = 7;
            assert_eq!(slots_with(&bucket, 7), (1 << (slot + 1)) - 1);
            assert_eq!(slots_with(&bucket, 135), 0);
        }
    }

    #[test]
    fn both_ways_find_the_same_slots() {
        let mut bucket = Bucket::EMPTY;
        for step in 0..=255 {
            for (slot, tag) in (0_u8..).zip(&mut bucket.tags) {
                *tag = slot.wrapping_mul(step) % 5;
            }
            for tag in 0..=255 {
                assert_eq!(slots_with(&bucket, tag), slots_with_plainly(&bucket, tag), "{bucket:?}");
            }
        }
    }
}
