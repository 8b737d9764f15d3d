// SPDX-License-Identifier: GPL-2.0

//! Hands the inputs of libFuzzer, which has the main function, to the target that the
//! environment variable FUZZ_TARGET names.

#![no_main]

use std::sync::OnceLock;

mod source;
mod targets;

fn target() -> fn(&[u8]) {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        match targets::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, target)) => *target,
            None => {
                let names: Vec<_> = targets::ALL.iter().map(|(name, _)| *name).collect();
                eprintln!("FUZZ_TARGET has to be one of: {}", names.join(" "));
                std::process::exit(2);
            }
        }
    })
}

/// # Safety
///
/// libFuzzer passes `size` readable bytes at `data`.
#[no_mangle]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    let bytes = if size == 0 {
        &[]
    } else {
        // SAFETY: The caller's promise; the bytes are not written to while this function runs.
        unsafe { std::slice::from_raw_parts(data, size) }
    };
    target()(bytes);
    0
}
