//! Questions that concern every connection of the server (CLIENT LIST, CLIENT KILL): each worker answers for its own.
//!
//! The asking connection waits; the last worker to answer sends the whole to the asker's worker, which replies.

use crate::mail::{Mailbox, Message};
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

/// One question under way.
pub struct Gather {
    /// What is asked.
    pub question: Question,
    /// Worker of the asking connection.
    pub asker: usize,
    /// The asking connection.
    pub conn: ConnId,
    /// The asking connection's identity, for `SKIPME`.
    pub client: u64,
    missing: AtomicUsize,
    answers: Mutex<Vec<(u64, String)>>,
}

impl Gather {
    /// Puts a question to all workers.
    pub fn ask(question: Question, asker: usize, conn: ConnId, client: u64, workers: &[Mailbox]) {
        let gather = Gather {
            question,
            asker,
            conn,
            client,
            missing: AtomicUsize::new(workers.len()),
            answers: Mutex::new(Vec::new()),
        };
        let gather = Arc::new(gather);
        for worker in workers {
            worker.post(Message::Ask(gather.clone()));
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
        Gather::ask(Question::List(ClientFilter::default()), 1, conn, 7, &workers);
        let Some(Message::Ask(first)) = workers[0].take() else { panic!("worker 0 was not asked") };
        first.answer(vec![(9, "i".into())], &workers);
        let Some(Message::Ask(second)) = workers[1].take() else { panic!("worker 1 was not asked") };
        assert!(workers[1].take().is_none(), "sent before all had answered");
        second.answer(vec![(3, "c".into())], &workers);
        let Some(Message::Answered(whole)) = workers[1].take() else { panic!("the asker was not told") };
        assert_eq!(whole.take(), [(3, "c".to_string()), (9, "i".to_string())]);
    }
}
