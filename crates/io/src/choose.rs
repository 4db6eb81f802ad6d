//! Which engine to run on: decided once per process, so that all workers agree, and explained in one clause.

use std::io;

use crate::uring::{self, Uring, UringOptions};
use crate::{Engine, Epoll, Model, os};

/// What the operator asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// io_uring from kernel 6.1 if it works here, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
    /// A model of the papers, or an error.
    Model(Model),
}

/// An engine's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Uring`].
    Uring,
    /// [`Epoll`].
    Epoll,
    /// [`ModelEngine`](crate::ModelEngine).
    Model(Model),
}

/// Sizes and switches of the engines; the defaults are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Of the io_uring engine.
    pub uring: UringOptions,
}

/// The outcome of [`choose`], to be opened once in each worker's thread.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The engine to use.
    pub kind: Kind,
    /// Why, for the log and INFO: features found, or what was refused and what to change.
    pub why: String,
    options: Options,
}

/// The oldest kernel on which `Auto` takes io_uring: deferred task work and multishot receive came with 6.0 and 6.1.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// Decides which engine to use. Only [`Choice::Uring`] and [`Choice::Model`] can fail, with the reason.
pub fn choose(choice: Choice, options: &Options) -> Result<Decision, String> {
    let decision = |kind, why| Ok(Decision { kind, why, options: *options });
    match choice {
        Choice::Epoll => return decision(Kind::Epoll, "configured".into()),
        Choice::Model(model) if !model.needs_uring() => return decision(Kind::Model(model), "configured".into()),
        Choice::Auto | Choice::Uring | Choice::Model(_) => {}
    }
    let (major, minor) = os::kernel_version();
    if choice == Choice::Auto && (major, minor) < OLDEST_KERNEL {
        let (least_major, least_minor) = OLDEST_KERNEL;
        let why = format!("kernel {major}.{minor} is older than {least_major}.{least_minor}");
        return decision(Kind::Epoll, why);
    }
    match uring::probe() {
        Ok(features) => match choice {
            Choice::Model(model) => decision(Kind::Model(model), features.to_string()),
            _ => decision(Kind::Uring, features.to_string()),
        },
        Err(why) if choice == Choice::Auto => decision(Kind::Epoll, format!("io_uring is not usable: {why}")),
        Err(why) => Err(why),
    }
}

impl Decision {
    /// Makes an engine for the calling thread, which alone may use it.
    pub fn open(&self) -> io::Result<Box<dyn Engine>> {
        Ok(match self.kind {
            Kind::Uring => Box::new(Uring::new(self.options.uring)?),
            Kind::Epoll => Box::new(Epoll::new()?),
            Kind::Model(model) => Box::new(model.open()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_explained_and_opens_what_it_names() {
        for choice in [Choice::Auto, Choice::Uring, Choice::Epoll] {
            let decision = choose(choice, &Options::default()).unwrap();
            assert!(!decision.why.is_empty());
            let engine = decision.open().unwrap();
            let name = if decision.kind == Kind::Uring { "uring" } else { "epoll" };
            assert_eq!(engine.name(), name);
            if choice == Choice::Epoll {
                assert_eq!((name, decision.why.as_str()), ("epoll", "configured"));
            }
        }
    }
}
