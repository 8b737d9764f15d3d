// SPDX-License-Identifier: GPL-2.0

//! Vectors.
fn main() {}
