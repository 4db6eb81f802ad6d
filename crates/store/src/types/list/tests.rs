//! Lists against a model; what encoding is reported for which sizes.

use super::*;
use std::collections::VecDeque;

const LIMIT: NodeLimit = NodeLimit::Bytes(8192);

/// A list with these elements, pushed one by one as RPUSH would.
fn list(elements: impl IntoIterator<Item = Vec<u8>>, limit: NodeLimit) -> List {
    let mut list = List::empty_in(Vec::new());
    for element in elements {
        list.expect(1, element.len(), limit);
        list.push(End::Tail, &element);
    }
    list
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

/// A short text, an integer or a long text, from a few different ones.
fn random_element(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => vec![b'x'; random.below(300)],
        1 => vec![b'l'; 1000 + random.below(3000)],
        2..6 => (i64::try_from(random.below(1 << 30)).expect("small") - (1 << 20)).to_string().into_bytes(),
        _ => format!("element:{}", random.below(10)).into_bytes(),
    }
}

/// One random edit of both; how long the list should become decides between adding and removing.
fn edit(list: &mut List, model: &mut VecDeque<Vec<u8>>, random: &mut Random, most: usize) {
    let len = model.len();
    match random.below(9) {
        0..3 if len < most => {
            let element = random_element(random);
            list.expect(1, element.len(), LIMIT);
            let end = if random.below(2) == 0 { End::Head } else { End::Tail };
            list.push(end, &element);
            if end == End::Head { model.push_front(element) } else { model.push_back(element) }
        }
        3 if len < most => {
            let (element, index) = (random_element(random), random.below(len + 1));
            list.expect(1, element.len(), LIMIT);
            list.insert(index, &element);
            model.insert(index, element);
        }
        4 if len > 0 => {
            let (element, index) = (random_element(random), random.below(len));
            list.expect(1, element.len(), LIMIT);
            list.set(index, &element, LIMIT);
            model[index] = element;
        }
        5 if len > 0 => {
            let start = random.below(len);
            let end = (start + 1 + random.below(1 + most / 8)).min(len);
            list.remove_range(start..end, LIMIT);
            model.drain(start..end);
        }
        7 if len > 0 => {
            let end = if random.below(2) == 0 { End::Head } else { End::Tail };
            let mut popped = None;
            list.pop(end, LIMIT, |element| popped = Some(element.to_vec()));
            assert_eq!(popped, if end == End::Head { model.pop_front() } else { model.pop_back() });
        }
        6 => {
            let (element, most) = (format!("element:{}", random.below(10)).into_bytes(), random.below(4));
            let backwards = random.below(2) == 0;
            let places: Vec<usize> = (0..len).filter(|index| model[*index] == element).collect();
            let chosen = if backwards {
                &places[places.len().saturating_sub(most)..]
            } else {
                &places[..most.min(places.len())]
            };
            assert_eq!(list.remove_equal(&element, most, backwards, LIMIT), chosen.len());
            chosen.iter().rev().for_each(|index| drop(model.remove(*index)));
        }
        _ => {
            let index = random.below(len + 2);
            assert_eq!(list.view().nth(index), model.get(index).map(Vec::as_slice));
            assert!(list.view().iter_from(index).take(20).eq(model.iter().skip(index).take(20)));
            let before = if index < len { index + 1 } else { 0 };
            assert!(list.view().rev_from(index).take(20).eq(model.iter().take(before).rev().take(20)));
        }
    }
}

/// Small lists, lists about the borders, and long ones.
#[test]
fn edits_agree_with_a_deque() {
    for (most, rounds) in [(8, 20_000), (120, 20_000), (1000, 20_000), (20_000, 60_000)] {
        let (mut list, mut model, mut random) = (List::empty_in(Vec::new()), VecDeque::new(), Random(most as u64));
        for round in 0..rounds {
            edit(&mut list, &mut model, &mut random, most);
            assert_eq!(list.view().len(), model.len(), "round {round}");
            if round % 500 == 0 {
                assert!(list.view().iter().eq(model.iter()), "round {round}");
                let counted: usize =
                    LISTPACK_FRAME + model.iter().map(|element| listpack_entry(element)).sum::<usize>();
                if let Repr::Tree(tree) = &list.repr {
                    assert!(tree.listpack.is_none_or(|known| known + LISTPACK_FRAME == counted), "round {round}");
                }
                assert!(list.listpack_bound().is_none_or(|bound| bound >= counted));
                assert_eq!(list.listpack(), counted);
            }
        }
    }
}

#[test]
fn sizes_are_those_of_a_listpack() {
    for (element, size) in [
        (b"0".as_slice(), 2),
        (b"127", 2),
        (b"128", 3),
        (b"-1", 3),
        (b"4095", 3),
        (b"-4097", 4),
        (b"32768", 5),
        (b"8388608", 6),
        (b"-2147483649", 10),
        (b"9223372036854775807", 10),
        (b"9223372036854775808", 21),
        (b"007", 5),
        (b"-0", 4),
        (b"", 2),
        (b"a", 3),
    ] {
        assert_eq!(listpack_entry(element), size, "{}", String::from_utf8_lossy(element));
    }
    assert_eq!(listpack_entry(&[b'a'; 63]), 65);
    assert_eq!(listpack_entry(&[b'a'; 64]), 67);
    assert_eq!(listpack_entry(&[b'a'; 126]), 130);
    assert_eq!(listpack_entry(&[b'a'; 5000]), 5007);
}

#[test]
fn the_reported_encoding_follows_the_limit() {
    // A listpack of 8 KiB holds so many texts of 10 bytes, and what is to be added counts before it is there.
    let elements = || (0..2000).map(|number| format!("text{number:06}").into_bytes());
    let full = (8192 - LISTPACK_FRAME) / 12;
    let mut filled = list(elements().take(full), LIMIT);
    assert_eq!(filled.view().form(), Form::Compact);
    filled.expect(1, 10, LIMIT);
    assert_eq!(filled.view().form(), Form::Large);
    // Only at half the limit it is compact again.
    let half = (4096 - LISTPACK_FRAME) / 12;
    filled.remove_range(0..full - half - 1, LIMIT);
    assert_eq!(filled.view().form(), Form::Large);
    filled.remove_range(0..1, LIMIT);
    assert_eq!(filled.view().form(), Form::Compact);
    // The same by number, and when so much is removed at once that it has to be counted anew.
    let by_number = NodeLimit::of(100);
    let mut filled = list(elements(), by_number);
    assert_eq!(filled.view().form(), Form::Large);
    filled.remove_range(50..1999, by_number);
    assert_eq!(filled.view().form(), Form::Large);
    filled.remove_range(0..1, by_number);
    assert_eq!(filled.view().form(), Form::Compact);
    assert_eq!(filled.view().nth(49), Some(b"text001999".as_slice()));
    // One long element is no listpack's, and its removal lets the rest be one.
    let mut long = list([b"a".to_vec(), vec![b'x'; 9000]], by_number);
    assert_eq!(long.view().form(), Form::Large);
    long.set(1, b"b", by_number);
    assert_eq!(long.view().form(), Form::Compact);
}

#[test]
fn limits_are_read_as_redis_reads_them() {
    assert_eq!(NodeLimit::of(-1), NodeLimit::Bytes(4096));
    assert_eq!(NodeLimit::of(-2), NodeLimit::Bytes(8192));
    assert_eq!(NodeLimit::of(-5), NodeLimit::Bytes(65_536));
    assert_eq!(NodeLimit::of(i64::MIN), NodeLimit::Bytes(65_536));
    assert_eq!(NodeLimit::of(0), NodeLimit::Elements(1));
    assert_eq!(NodeLimit::of(128), NodeLimit::Elements(128));
    assert_eq!(NodeLimit::of(i64::MAX), NodeLimit::Elements(32_767));
}

/// What is removed stays with the list that was shared before, to be freed elsewhere.
#[test]
fn a_shared_list_keeps_what_is_removed() {
    let mut long = list((0..100_000).map(|number| number.to_string().into_bytes()), LIMIT);
    assert!(long.shared(10).is_none());
    let before = long.shared(99_990).expect("it is large");
    long.remove_range(5..99_995, LIMIT);
    assert_eq!((long.view().len(), long.view().form()), (10, Form::Compact));
    assert!(long.view().iter().map(<[u8]>::len).eq([1, 1, 1, 1, 1, 5, 5, 5, 5, 5]));
    let LargeTree::List(before) = before else { panic!("a list") };
    assert_eq!(ListRef::Tree(&before).nth(50_000), Some(b"50000".as_slice()));
}
