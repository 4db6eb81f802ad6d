//! The end of the server, and the snapshot before it.
//!
//! From the moment a shutdown wants to save, no client's command runs any more: the snapshot is the last word, and whatever was
//! acknowledged is in it. If it cannot be written the server goes on, as Redis does: it does not throw data away because
//! it was asked to stop.

use super::{Kind, file, submit, withdraw};
use crate::config::{Config, ShutdownWish};
use crate::shared::{Hold, Shared};
use crate::warning;

/// How a shutdown was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// SAVE or NOSAVE; by default the server saves if there are save points.
    pub save: Option<bool>,
    /// It ends even if saving fails.
    pub force: bool,
}

impl Wish {
    /// What `shutdown-on-sigint` and `shutdown-on-sigterm` say.
    pub fn of_signal(wish: ShutdownWish) -> Wish {
        let save = match wish {
            _ if wish.saves() => Some(true),
            _ if wish.saves_not() => Some(false),
            _ => None,
        };
        Wish { save, force: wish.forces() }
    }

    fn saves(self, config: &Config) -> bool {
        self.save.unwrap_or(!config.save().is_empty())
    }
}

/// Ends the server: at once, or when it has saved. `failed` is called if it then does not end. False: it is being ended already, or its
/// data set is being replaced and cannot be saved.
#[must_use]
pub fn shut_down(shared: &Shared, wish: Wish, failed: impl FnOnce(&Shared) + Send + 'static) -> bool {
    let (saving, config) = (&shared.persist.save, shared.settings.current());
    if wish.saves(&config) && shared.lifecycle.hold() == Some(Hold::Replacement) {
        return false;
    }
    // What is half loaded must not replace what it is loaded from.
    let is_loading = shared.persist.load.is_under_way();
    let saves = wish.saves(&config) && !is_loading;
    let has_base = shared.persist.aof.has_base(&config);
    if !has_base && !wish.force && saving.is_wanted(Kind::Rewrite) {
        // A snapshot would not help: with a log a restart does not look at it.
        warning!(
            "Writing initial AOF, can't exit: without it a restart would find what the log had before it was switched on."
        );
        failed(shared);
        return true;
    }
    if !has_base && !is_loading {
        warning!("The log was switched on and has no base: a restart finds what the log had before.");
    }
    if !saves || !saving.has_thread() {
        shared.stop();
        return true;
    }
    if shared.lifecycle.begin_hold(Hold::Shutdown).is_err() {
        return false;
    }
    crate::notice!("Saving the final RDB snapshot before exiting.");
    let done = move |shared: &Shared, result: Result<super::Done, super::Failure>| match result {
        Err(_) if !wish.force => {
            warning!("Error trying to save the DB, can't exit.");
            go_on(shared);
            failed(shared);
        }
        _ => shared.stop(),
    };
    submit(shared, file::request(shared, Kind::Shutdown, done));
    saving.cancel(|kind| kind != Kind::Shutdown);
    true
}

/// SHUTDOWN ABORT. False if no shutdown is under way.
pub fn abort(shared: &Shared) -> bool {
    shared.lifecycle.hold() == Some(Hold::Shutdown) && {
        // If its snapshot has not begun it is in line, and will find that nobody wants it.
        shared.persist.save.cancel(|kind| kind == Kind::Shutdown);
        withdraw(shared, Kind::Shutdown);
        true
    }
}

/// The server does not end after all: commands run again.
fn go_on(shared: &Shared) {
    shared.lifecycle.end_hold();
    shared.tell_all();
}
