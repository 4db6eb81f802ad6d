//! DUMP: a value as a payload that any server of the family understands.

use crate::args::Args;
use crate::exec::{Continuation, Exec, Outcome, SLICE_US, Stop};
use crate::lazyfree::Lazyfree;
use crate::payload::{self, Large, Written};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn dump(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let options = payload::options(&exec.local.config);
    let large = {
        let mut locked = exec.lock(args.at(1))?;
        let Some(entry) = exec.read(locked.key()) else {
            exec.reply.put().null();
            return Ok(());
        };
        match payload::written(&entry, options) {
            Written::Payload(payload) => {
                exec.reply.put().bulk(&payload);
                return Ok(());
            }
            Written::Large(large) => large,
        }
    };
    // The lock is released.
    let mut dumping = Dumping { large: Some(large), lazyfree: exec.shared.lazyfree.clone() };
    match dumping.step(exec)? {
        true => Ok(()),
        false => Err(Stop::Continue(Box::new(dumping))),
    }
}

struct Dumping {
    large: Option<Large>,
    /// Who frees the value, if it left the keyspace meanwhile.
    lazyfree: Arc<Lazyfree>,
}

impl Drop for Dumping {
    fn drop(&mut self) {
        if let Some(large) = self.large.take() {
            self.lazyfree.discard(large.into_value());
        }
    }
}

impl Continuation for Dumping {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let large = self.large.as_mut().expect("there until the last step");
        if !large.step(Duration::from_micros(SLICE_US)) {
            return Ok(false);
        }
        let payload = large.payload();
        exec.reply.rope(payload, 0, payload.len());
        Ok(true)
    }
}
