//! [`Requests`]: what threads found in received bytes, for a caller who would otherwise look for it himself.

/// Requests that lie whole in some bytes, from the first one on, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Of all requests, one after another: where each argument begins in the bytes, and its length.
    pub arguments: Vec<(u32, u32)>,
    /// Where each request ends in the bytes, and where its arguments end in `arguments`.
    pub ends: Vec<(u32, u32)>,
}

impl Requests {
    /// Forgets everything; keeps the room.
    pub fn clear(&mut self) {
        self.arguments.clear();
        self.ends.clear();
    }
}
