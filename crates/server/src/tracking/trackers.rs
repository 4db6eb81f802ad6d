//! Who tracks: the registry that all workers share.

use crate::command::gate;
use crate::session::Session;
use gimmal_io::ConnId;
use gimmal_store::{Reader, ReadersChange};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, RwLock};

/// A connection that is told for others.
#[derive(Debug)]
pub struct Inbox {
    /// Its client.
    pub id: u64,
    /// Its worker.
    pub worker: u16,
    /// The connection.
    pub conn: ConnId,
    open: AtomicBool,
}

impl Inbox {
    /// Of a connection that is open.
    pub fn new(id: u64, worker: u16, conn: ConnId) -> Inbox {
        Inbox { id, worker, conn, open: AtomicBool::new(true) }
    }

    /// Whether its connection is open.
    pub fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    /// Its connection ends.
    pub fn close(&self) {
        self.open.store(false, SeqCst);
    }
}

/// A client that wants to be told of changes. Its connection does not move.
#[derive(Debug)]
pub struct Tracker {
    /// The client.
    pub id: u64,
    /// Its worker.
    pub worker: u16,
    /// Its connection.
    pub conn: ConnId,
    /// It asks for prefixes, and is not listed with keys.
    pub bcast: bool,
    on: AtomicBool,
    noloop: AtomicBool,
    broken: AtomicBool,
    redirect: Mutex<Option<Arc<Inbox>>>,
}

impl Tracker {
    /// A client that begins to track.
    pub fn new(id: u64, worker: u16, conn: ConnId, bcast: bool) -> Tracker {
        Tracker {
            id,
            worker,
            conn,
            bcast,
            on: AtomicBool::new(true),
            noloop: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            redirect: Mutex::default(),
        }
    }

    /// Changes where it is told, and whether of its own changes too.
    pub fn set(&self, redirect: Option<Arc<Inbox>>, noloop: bool) {
        *self.redirect.lock().expect("nothing panics under it") = redirect;
        self.noloop.store(noloop, SeqCst);
        self.broken.store(false, SeqCst);
    }

    /// Whether it still tracks.
    pub fn is_on(&self) -> bool {
        self.on.load(SeqCst)
    }

    /// It is not told of its own changes.
    pub fn is_noloop(&self) -> bool {
        self.noloop.load(SeqCst)
    }

    /// The client that is told for it is gone.
    pub fn is_broken(&self) -> bool {
        self.broken.load(SeqCst)
    }

    /// Where it is told, if not on its own connection. Notes when that is gone.
    pub fn redirect(&self) -> Option<Arc<Inbox>> {
        let inbox = self.redirect.lock().expect("nothing panics under it").clone();
        if inbox.as_ref().is_some_and(|inbox| !inbox.is_open()) {
            self.broken.store(true, SeqCst);
        }
        inbox
    }

    /// The client that is told for it, or 0.
    pub fn redirect_id(&self) -> u64 {
        self.redirect.lock().expect("nothing panics under it").as_ref().map_or(0, |inbox| inbox.id)
    }
}

impl Reader for Tracker {
    fn is_reading(&self) -> bool {
        self.is_on()
    }
}

type ByPrefix = BTreeMap<Box<[u8]>, Vec<Arc<Tracker>>>;

/// All trackers, and what is remembered for them. In cache lines of its own: every change looks at the flag.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Trackers {
    active: AtomicBool,
    clients: Mutex<BTreeMap<u64, Arc<Tracker>>>,
    clients_len: AtomicUsize,
    prefixes: RwLock<ByPrefix>,
    prefixes_len: AtomicUsize,
    keys: AtomicIsize,
    items: AtomicIsize,
}

impl Trackers {
    /// Whether anybody tracks, or keys are still remembered.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Clients that track.
    pub fn clients(&self) -> usize {
        self.clients_len.load(Relaxed)
    }

    /// Every client that tracks.
    pub fn all(&self) -> Vec<Arc<Tracker>> {
        self.clients.lock().expect("nothing panics under it").values().cloned().collect()
    }

    /// Keys that are remembered.
    pub fn keys(&self) -> usize {
        usize::try_from(self.keys.load(Relaxed)).unwrap_or(0)
    }

    /// Readers of these keys.
    pub fn items(&self) -> usize {
        usize::try_from(self.items.load(Relaxed)).unwrap_or(0)
    }

    /// Different prefixes.
    #[inline]
    pub fn prefixes(&self) -> usize {
        self.prefixes_len.load(Relaxed)
    }

    /// Shards remember more, or less.
    pub fn count(&self, change: ReadersChange) {
        if change.keys != 0 {
            self.keys.fetch_add(change.keys, Relaxed);
        }
        if change.items != 0 {
            self.items.fetch_add(change.items, Relaxed);
        }
    }

    /// Counts out up to `most` keys of those over `allowed`, which the caller lets go of: how many.
    pub fn claim(&self, allowed: usize, most: usize) -> usize {
        let excess = |keys: isize| usize::try_from(keys).unwrap_or(0).saturating_sub(allowed).min(most);
        let claimed = self.keys.fetch_update(Relaxed, Relaxed, |keys| match excess(keys) {
            0 => None,
            claimed => Some(keys - claimed.cast_signed()),
        });
        claimed.map_or(0, excess)
    }

    /// Calls `visit` with each prefix and who asks for it.
    pub fn each_prefix(&self, mut visit: impl FnMut(&[u8], &[Arc<Tracker>])) {
        let prefixes = self.prefixes.read().expect("nothing panics under it");
        prefixes.iter().for_each(|(prefix, trackers)| visit(prefix, trackers));
    }

    /// A client tracks from now on. Called while the gate is closed.
    pub fn add(&self, tracker: &Arc<Tracker>) {
        let mut clients = self.clients.lock().expect("nothing panics under it");
        clients.insert(tracker.id, tracker.clone());
        self.clients_len.store(clients.len(), Relaxed);
        self.active.store(true, SeqCst);
    }

    /// A client asks for a prefix. Called while the gate is closed.
    pub fn add_prefix(&self, prefix: &[u8], tracker: &Arc<Tracker>) {
        let mut prefixes = self.prefixes.write().expect("nothing panics under it");
        prefixes.entry(prefix.into()).or_default().push(tracker.clone());
        self.prefixes_len.store(prefixes.len(), Relaxed);
    }

    /// A client tracks no more; what was on its way to it is dropped.
    pub fn remove(&self, session: &mut Session) {
        session.gates &= !gate::CACHING;
        let Some(tracking) = &mut session.tracking else { return };
        let on = tracking.on.take();
        if tracking.inbox.is_none() {
            // Nobody knows of the connection any more: it may move, to a worker that counts its queue's places by itself.
            session.tracking = None;
        }
        let Some(options) = on else { return };
        options.tracker.on.store(false, SeqCst);
        let mut clients = self.clients.lock().expect("nothing panics under it");
        clients.remove(&options.tracker.id);
        self.clients_len.store(clients.len(), Relaxed);
        drop(clients);
        if options.prefixes.is_empty() {
            return;
        }
        let mut prefixes = self.prefixes.write().expect("nothing panics under it");
        for prefix in &options.prefixes {
            let Some(trackers) = prefixes.get_mut(prefix) else { continue };
            trackers.retain(|tracker| !Arc::ptr_eq(tracker, &options.tracker));
            if trackers.is_empty() {
                prefixes.remove(prefix);
            }
        }
        self.prefixes_len.store(prefixes.len(), Relaxed);
    }

    /// Takes down the flag if nobody tracks and nothing is remembered. Called within a batch: nobody begins to track meanwhile.
    pub fn rest(&self) {
        if self.clients() == 0 && self.keys() == 0 {
            self.active.store(false, SeqCst);
        }
    }
}
