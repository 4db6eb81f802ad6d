//! Questions that concern every connection of the server (CLIENT LIST, CLIENT KILL): each worker answers for its own.
//!
//! The asking connection waits; the last worker to answer sends the whole to the asker's worker, which replies.

use crate::commands::client::Redirection;
use crate::exec::Exec;
use crate::mail::{Mailbox, Message};
use crate::session::{ReplyMode, Session};
use gimmal_io::ConnId;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};

/// What is asked.
#[derive(Debug)]
pub enum Question {
    /// A line for each connection that fits.
    List(ClientFilter),
    /// Close each connection that fits; the flag says that the reply is `+OK` or an error, not a count (old form).
    Kill(ClientFilter, bool),
    /// End the wait of the client with this id; the flag says that it gets an error, not what a timeout answers.
    Unblock(u64, bool),
    /// Find the client that is to be told for one that tracks.
    Redirect(Arc<Redirection>),
}

/// Which connections are meant.
#[derive(Debug, Clone, Default)]
pub struct ClientFilter {
    /// Any of these ids; empty: all.
    pub ids: Vec<u64>,
    /// This peer address.
    pub address: Option<String>,
    /// This local address.
    pub local_address: Option<String>,
    /// This user.
    pub user: Option<String>,
    /// `normal`, `pubsub`, `replica`, `master`.
    pub class: Option<&'static str>,
    /// Not the asker.
    pub skip: Option<u64>,
    /// Connected for at least this many seconds.
    pub max_age_s: Option<i64>,
}

impl ClientFilter {
    /// Whether a connection is meant.
    pub fn fits(&self, session: &Session, now_ms: i64) -> bool {
        let is = |wanted: &Option<String>, value: &dyn Fn() -> String| wanted.as_ref().is_none_or(|w| *w == value());
        (self.ids.is_empty() || self.ids.contains(&session.id))
            && self.skip != Some(session.id)
            && self.class.is_none_or(|class| class == session.class())
            && is(&self.address, &|| session.address())
            && is(&self.local_address, &|| session.local_address())
            && is(&self.user, &|| session.user().to_owned())
            && self.max_age_s.is_none_or(|age| (now_ms - session.created_ms) / 1000 >= age)
    }
}

/// One question under way.
pub struct Gather {
    /// What is asked.
    pub question: Question,
    /// Worker of the asking connection.
    pub asker: usize,
    /// The asking connection.
    pub conn: ConnId,
    /// The asking connection's identity.
    pub client: u64,
    /// The asker wants no reply (CLIENT REPLY).
    pub silent: bool,
    missing: AtomicUsize,
    answers: Mutex<Vec<(u64, String)>>,
}

impl Gather {
    /// Puts a question to all workers, for the connection whose command runs.
    pub fn ask(question: Question, exec: &Exec<'_>) {
        let gather = Gather {
            question,
            asker: exec.local.id,
            conn: exec.local.conn,
            client: exec.session.id,
            silent: exec.session.reply_mode != ReplyMode::On,
            missing: AtomicUsize::new(exec.shared.mail.len()),
            answers: Mutex::new(Vec::new()),
        };
        Arc::new(gather).post(&exec.shared.mail);
    }

    /// Puts another question to all workers for the same connection.
    pub fn ask_again(&self, question: Question, workers: &[Mailbox]) {
        let Gather { asker, conn, client, silent, .. } = *self;
        let missing = AtomicUsize::new(workers.len());
        let gather = Gather { question, asker, conn, client, silent, missing, answers: Mutex::default() };
        Arc::new(gather).post(workers);
    }

    fn post(self: Arc<Gather>, workers: &[Mailbox]) {
        for worker in workers {
            worker.post(Message::Ask(self.clone()));
        }
    }

    /// One worker's answers, by client id; the last one sends the whole home.
    pub fn answer(self: &Arc<Gather>, mine: Vec<(u64, String)>, workers: &[Mailbox]) {
        self.answers.lock().expect("no answer panics").extend(mine);
        if self.missing.fetch_sub(1, AcqRel) == 1 {
            workers[self.asker].post(Message::Answered(self.clone()));
        }
    }

    /// All answers in the order of client ids.
    pub fn take(&self) -> Vec<(u64, String)> {
        let mut all = std::mem::take(&mut *self.answers.lock().expect("no answer panics"));
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_sends_all_home_in_order() {
        let workers = [Mailbox::default(), Mailbox::default()];
        let conn = ConnId { index: 0, generation: 0 };
        let gather = Gather {
            question: Question::List(ClientFilter::default()),
            asker: 1,
            conn,
            client: 7,
            silent: false,
            missing: AtomicUsize::new(workers.len()),
            answers: Mutex::default(),
        };
        Arc::new(gather).post(&workers);
        let Some(Message::Ask(first)) = workers[0].take() else { panic!("worker 0 was not asked") };
        first.answer(vec![(9, "i".into())], &workers);
        let Some(Message::Ask(second)) = workers[1].take() else { panic!("worker 1 was not asked") };
        assert!(workers[1].take().is_none(), "sent before all had answered");
        second.answer(vec![(3, "c".into())], &workers);
        let Some(Message::Answered(whole)) = workers[1].take() else { panic!("the asker was not told") };
        assert_eq!(whole.take(), [(3, "c".to_string()), (9, "i".to_string())]);
    }

    #[test]
    fn a_filter_takes_who_fits_every_part_of_it() {
        use crate::session::Peer;
        let session = Session::new(5, Peer::Unix, true, 10_000);
        let filter = ClientFilter::default;
        assert!(filter().fits(&session, 10_000));
        assert!(ClientFilter { ids: vec![4, 5], ..filter() }.fits(&session, 10_000));
        assert!(!ClientFilter { ids: vec![0], ..filter() }.fits(&session, 10_000));
        assert!(!ClientFilter { skip: Some(5), ..filter() }.fits(&session, 10_000));
        assert!(!ClientFilter { class: Some("pubsub"), ..filter() }.fits(&session, 10_000));
        assert!(ClientFilter { user: Some("default".into()), ..filter() }.fits(&session, 10_000));
        assert!(!ClientFilter { address: Some("127.0.0.1:1".into()), ..filter() }.fits(&session, 10_000));
        let old = ClientFilter { max_age_s: Some(3), ..filter() };
        assert!(!old.fits(&session, 12_999) && old.fits(&session, 13_000));
    }
}
