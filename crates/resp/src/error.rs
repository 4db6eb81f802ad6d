//! What a client can get wrong below the level of commands. After any of these the connection is answered once and closed:
//! there is no way to find the next command in the stream.

use std::fmt;

/// A request that is not RESP. `Display` gives Redis's text with its "Protocol error: " prefix and without the "ERR " code;
/// [`Writer::protocol_error`](crate::Writer::protocol_error) writes the complete reply, byte for byte as Redis does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// No line end within [`MAX_LINE`](crate::MAX_LINE) bytes after `*`.
    TooBigMultibulkCount,
    /// The number after `*` is not a number, or above the limit.
    InvalidMultibulkLength,
    /// More arguments than a client may send before it has authenticated.
    UnauthenticatedMultibulkLength,
    /// No line end within [`MAX_LINE`](crate::MAX_LINE) bytes after `$`.
    TooBigBulkCount,
    /// An argument does not start with `$` but with this byte.
    ExpectedDollar(u8),
    /// The number after `$` is not a number, negative, or above the limit.
    InvalidBulkLength,
    /// A longer argument than a client may send before it has authenticated.
    UnauthenticatedBulkLength,
    /// No line end within [`MAX_LINE`](crate::MAX_LINE) bytes of an inline command.
    TooBigInline,
    /// An inline command with an open quote, or with text directly behind a closing quote.
    UnbalancedQuotes,
    /// One command's small arguments alone fill 4 GiB, more than a [`Span`](crate::Span) can address. Redis has no such
    /// text: its query buffer limit (1 GiB by default) closes the client first, as should the caller's.
    TooBigRequest,
}

impl ProtocolError {
    /// The text behind "Protocol error: ", as bytes, because the byte that was found instead of `$` is any byte.
    /// CR, LF and NUL are shown as spaces: the text goes into a one-line reply.
    pub fn text(&self) -> Vec<u8> {
        let text = match self {
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::TooBigRequest => "too big request",
            ProtocolError::ExpectedDollar(found) => {
                let mut text = b"expected '$', got '".to_vec();
                text.push(if matches!(found, b'\r' | b'\n' | 0) { b' ' } else { *found });
                text.push(b'\'');
                return text;
            }
        };
        text.as_bytes().to_vec()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", String::from_utf8_lossy(&self.text()))
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_redis() {
        assert_eq!(ProtocolError::InvalidBulkLength.to_string(), "Protocol error: invalid bulk length");
        assert_eq!(ProtocolError::ExpectedDollar(b'X').to_string(), "Protocol error: expected '$', got 'X'");
        assert_eq!(ProtocolError::ExpectedDollar(b'\r').text(), b"expected '$', got ' '");
        assert_eq!(ProtocolError::ExpectedDollar(0xff).text(), b"expected '$', got '\xff'");
    }
}
