// SPDX-License-Identifier: GPL-2.0

//! Flow control.

/// Returns how many Calls may be outstanding after a version 1 grant of `word`, when `max` is
/// the most this side asked for.
///
/// A peer that grants nothing would stop the connection for good, so zero counts as one.
#[inline]
//= V1-034, V1-038, D-10
pub const fn v1_limit(word: u32, max: u32) -> u32 {
    let granted = if word < max { word } else { max };
    if granted == 0 {
        1
    } else {
        granted
    }
}
