//! Long lists: what is answered in slices is the list of one moment, whatever happens to the key meanwhile.

mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::InProcess;
use running::Client;

const ELEMENTS: usize = 200_000;

/// Fills `l` with numbers in order.
fn fill(client: &mut Client) {
    for start in (0..ELEMENTS).step_by(1000) {
        let mut words = vec!["RPUSH".to_owned(), "l".to_owned()];
        words.extend((start..start + 1000).map(|number| number.to_string()));
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        assert_eq!(client.call(&words), Reply::Integer(start as i64 + 1000));
    }
}

fn send(client: &mut Client, line: &str) {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    client.send(&bytes);
}

/// Takes an array of these numbers.
fn take_numbers(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    let reply = client.reply();
    let elements = reply.as_list().unwrap_or_else(|| panic!("{reply:?}"));
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    assert_eq!(elements.len(), numbers.len());
    for (element, number) in elements.iter().zip(&numbers) {
        assert_eq!(element.as_bytes(), Some(number.as_bytes()));
    }
}

#[test]
fn long_replies_are_of_one_moment() {
    let server = InProcess::start(2);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    fill(&mut writer);
    send(&mut reader, "LRANGE l 5 -6");
    // The reader's first bytes say that its list is held; it is not read on before the key has changed.
    reader.stream.peek(&mut [0]).expect("the reply begins");
    assert_eq!(writer.ask("LSET l 100000 changed"), Reply::Simple(b"OK".to_vec()));
    assert_eq!(writer.ask("DEL l"), Reply::Integer(1));
    take_numbers(&mut reader, 5..ELEMENTS - 5);
}

#[test]
fn many_elements_are_popped_at_once_and_answered_in_slices() {
    let server = InProcess::start(2);
    let (mut popper, mut other) = (server.connect(), server.connect());
    fill(&mut other);
    let quarter = ELEMENTS / 4;
    send(&mut popper, &format!("RPOP l {quarter}"));
    popper.stream.peek(&mut [0]).expect("the reply begins");
    assert_eq!(other.ask("LLEN l"), Reply::Integer((ELEMENTS - quarter) as i64));
    take_numbers(&mut popper, (ELEMENTS - quarter..ELEMENTS).rev());
    send(&mut popper, &format!("LPOP l {quarter}"));
    take_numbers(&mut popper, 0..quarter);
    // All that is left, within a transaction, where the slices follow each other.
    for line in ["MULTI", &format!("LMPOP 2 none l RIGHT COUNT {ELEMENTS}"), "LLEN l"] {
        popper.ask(line);
    }
    let reply = popper.ask("EXEC");
    let [popped, len] = reply.as_list().expect("two replies") else { panic!("{reply:?}") };
    let elements = popped.as_list().expect("key and elements")[1].as_list().expect("elements");
    assert_eq!((elements.len(), len), (ELEMENTS - 2 * quarter, &Reply::Integer(0)));
    assert_eq!(elements[0].as_bytes(), Some((ELEMENTS - quarter - 1).to_string().as_bytes()));
    assert_eq!(other.ask("EXISTS l"), Reply::Integer(0));
}
