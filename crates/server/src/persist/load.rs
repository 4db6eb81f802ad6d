//! Reading back what was kept.

/// The data set as it is being loaded.
#[derive(Default)]
pub struct Loading {}
