//! The reply parser: whatever the bytes, it neither panics nor finds other replies when they come in pieces.
//!
//! Input: a byte for the cuts, then the stream (with runs, see [`crate::pieces`]).

use crate::pieces::{cut, expand};
use gimmal_resp::{Reply, ReplyError, ReplyReader, ReplyScanner};

/// Runs one input.
pub fn run(input: &[u8]) {
    let [how, stream @ ..] = input else { return };
    let stream = expand(stream);
    let (whole, whole_error) = read(&stream, 0);
    let (pieces, pieces_error) = read(&stream, (*how).max(1));
    // Replies are compared as text: a double may be no number, which equals nothing.
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"), "cuts change the replies");
    assert_eq!(whole_error, pieces_error, "cuts change the error");
    check_scanner(&stream, whole.len());
}

fn read(stream: &[u8], how: u8) -> (Vec<Reply>, Option<ReplyError>) {
    let mut reader = ReplyReader::default();
    let mut replies = Vec::new();
    let mut fed = 0;
    for piece in cut(stream, how) {
        reader.feed(piece);
        fed += piece.len();
        loop {
            match reader.next_reply() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
        assert!(reader.pending() <= fed);
    }
    (replies, None)
}

/// The scanner finds at least the replies that could be built: it does not look into them.
fn check_scanner(stream: &[u8], built: usize) {
    let mut scanner = ReplyScanner::default();
    let (mut at, mut count) = (0, 0);
    while let Ok(Some(len)) = scanner.scan(&stream[at..]) {
        assert!(len > 0 && len <= stream.len() - at);
        at += len;
        count += 1;
    }
    assert!(count >= built, "{built} replies were built of {count}");
}
