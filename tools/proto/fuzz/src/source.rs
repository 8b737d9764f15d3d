// SPDX-License-Identifier: GPL-2.0

//! Decisions drawn from the input of the fuzzer; when it ends, every decision is zero.

pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    pub fn u32(&mut self) -> u32 {
        (u32::from(self.u16()) << 16) | u32::from(self.u16())
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        let drawn = if end <= 256 {
            u32::from(self.u8())
        } else if end <= 65536 {
            u32::from(self.u16())
        } else {
            self.u32()
        };
        drawn % end.max(1)
    }

    /// A length: often small, sometimes at a border, sometimes anything.
    pub fn length(&mut self, most: u32) -> u32 {
        match self.u8() % 8 {
            0 => 0,
            1 | 2 => u32::from(self.u8()).min(most),
            3 | 4 => u32::from(self.u16()).min(most),
            5 => most.saturating_sub(u32::from(self.u8() % 8)),
            6 => (4096_u32 * u32::from(self.u8() % 8) + u32::from(self.u8() % 8)).min(most),
            _ => self.u32() % most.saturating_add(1).max(1),
        }
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
