//! Checks whether a user number (UID) identifies one user in this user namespace.
//!
//! A user namespace has numbers only for the users in its `uid_map`. The kernel reports every other user as the
//! overflow UID (65534 by default), so two processes with the overflow UID may belong to different users.

use std::fs;
use std::sync::OnceLock;

/// The kernel's default for `/proc/sys/kernel/overflowuid`.
const OVERFLOW_UID_DEFAULT: u32 = 65534;

/// Returns whether processes with this user number may belong to different users.
pub(crate) fn is_ambiguous(uid: u32) -> bool {
    // Without /proc, the map is unknown, and the number counts as ambiguous.
    uid == overflow_uid() && !maps_every_user(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
}

fn overflow_uid() -> u32 {
    static OVERFLOW_UID: OnceLock<u32> = OnceLock::new();
    *OVERFLOW_UID.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        text.trim().parse().unwrap_or(OVERFLOW_UID_DEFAULT)
    })
}

/// Returns whether a `uid_map` covers all users, as in the initial namespace. Each line maps a range: it has the first
/// number inside the namespace, the first number outside of it, and the length. The ranges never overlap. The number
/// 2³² - 1 is not a user.
fn maps_every_user(uid_map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    uid_map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_of_all_numbers_covers_every_user() {
        assert!(maps_every_user("         0          0 4294967295\n"));
        assert!(maps_every_user("0 0 1000\n1000 5000 4294966295\n"));
        // These maps cover no user, one user, or 65,536 users, as in a typical container. The last string is not a map.
        for partial in ["", "0 1000 1\n", "0 100000 65536\n", "0 1000 1\n1 100000 65535\n", "no map"] {
            assert!(!maps_every_user(partial), "{partial:?}");
        }
    }

    #[test]
    fn only_the_overflow_number_can_be_ambiguous() {
        for uid in [1, 1000, 4321] {
            assert!(uid == overflow_uid() || !is_ambiguous(uid), "{uid}");
        }
    }
}
