//! Files that a server must reject.

/// Turns a good file into a bad one.
type Damage = fn(Vec<u8>, &mut dyn FnMut() -> u64) -> Vec<u8>;

/// All ways to damage a file, with their names.
pub(crate) const BAD_FILES: [(&str, Damage); 6] = [
    ("empty", |_, _| Vec::new()),
    ("truncated", |mut good, random| {
        good.truncate(random() as usize % good.len());
        good
    }),
    ("longer than it says", |mut good, random| {
        good.extend((0..=random() % 5000).map(|_| random() as u8).collect::<Vec<u8>>());
        good
    }),
    ("wrong in one bit", |mut good, random| {
        let at = random() as usize % good.len();
        good[at] ^= 1 << (random() % 8);
        good
    }),
    ("text", |good, _| b"key,value\n".repeat(good.len() / 10)),
    ("random", |good, random| (0..good.len()).map(|_| random() as u8).collect()),
];
