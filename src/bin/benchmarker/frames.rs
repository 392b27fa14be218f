//! A list of encoded requests of different lengths (frames) in one buffer.

use std::ops::Range;

#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// For each frame (an encoded request), the offset in `bytes` where the frame ends.
    ends: Vec<usize>,
}

impl Frames {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    pub(crate) fn get(&self, frame: usize) -> &[u8] {
        &self.bytes[self.start(frame)..self.ends[frame]]
    }

    /// Adds a frame (an encoded request), which consists of the bytes that `write` appends.
    #[inline]
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Appends the frames (encoded requests) of `other` with these indexes. The bytes of all these frames are copied in
    /// one operation.
    pub(crate) fn extend_from(&mut self, other: &Frames, frames: Range<usize>) {
        let (from, to) = (other.start(frames.start), other.start(frames.end));
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes[from..to]);
        self.ends.extend(other.ends[frames].iter().map(|end| begin + (end - from)));
    }

    #[inline]
    fn start(&self, frame: usize) -> usize {
        frame.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_frames_keep_their_bytes_and_bounds() {
        let mut all = Frames::default();
        for text in ["one", "", "three", "4"] {
            all.push_with(|bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        let mut some = Frames::default();
        some.extend_from(&all, 2..4);
        some.extend_from(&all, 0..0);
        some.extend_from(&all, 0..3);
        assert_eq!(some.len(), 5);
        let found: Vec<&[u8]> = (0..5).map(|frame| some.get(frame)).collect();
        assert_eq!(found, [&b"three"[..], b"4", b"one", b"", b"three"]);
        assert_eq!(some.as_bytes(), b"three4onethree");
    }
}
