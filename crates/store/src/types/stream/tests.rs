//! Streams and groups against plain models, and the cases that random ones would miss.

use super::*;

fn id(ms: u64) -> StreamId {
    StreamId { ms, seq: 0 }
}

fn pair<'a>(name: &'a [u8], value: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
    std::iter::once((name, value))
}

#[test]
fn ids_follow_each_other_across_milliseconds() {
    assert_eq!(StreamId { ms: 1, seq: u64::MAX }.next(), Some(StreamId { ms: 2, seq: 0 }));
    assert_eq!(StreamId { ms: 2, seq: 0 }.before(), Some(StreamId { ms: 1, seq: u64::MAX }));
    assert_eq!((StreamId::MAX.next(), StreamId::MIN.before()), (None, None));
    let mut stream = Stream::default();
    assert_eq!(stream.next_id(5), Some(id(5)));
    stream.set_last_id(StreamId { ms: 9, seq: 3 });
    assert_eq!(stream.next_id(5), Some(StreamId { ms: 9, seq: 4 }));
    stream.set_last_id(StreamId::MAX);
    assert_eq!(stream.next_id(5), None);
}

/// Entries alternate between kinds, with names that are shared, and some that are too long to be.
#[test]
fn entries_read_back_in_both_directions() {
    let mut stream = Stream::default();
    let long = vec![b'n'; 3000];
    let names = |number: u64| -> Vec<Vec<u8>> {
        match number / 3 % 4 {
            0 => vec![b"a".to_vec()],
            1 => vec![b"a".to_vec(), b"bb".to_vec()],
            2 => vec![b"bb".to_vec(), vec![]],
            _ => vec![long.clone()],
        }
    };
    let fields = |number: u64| -> Vec<(Vec<u8>, Vec<u8>)> {
        names(number)
            .into_iter()
            .map(|name| (name, number.to_string().repeat(1 + number as usize % 90).into_bytes()))
            .collect()
    };
    for number in 1..=2000 {
        let entry = fields(number);
        stream.append(id(number), entry.iter().map(|(name, value)| (&name[..], &value[..])));
    }
    let owned = |entry: StreamEntry<'_>| {
        assert_eq!(entry.len(), entry.fields().count());
        (entry.id.ms, entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>())
    };
    for deleted in (1..=2000).filter(|number| number % 7 == 0) {
        assert!(stream.delete(id(deleted)) && !stream.delete(id(deleted)));
    }
    let left: Vec<_> = (1..=2000).filter(|number| number % 7 != 0).map(|number| (number, fields(number))).collect();
    let entries = stream.entries().clone();
    assert!(entries.iter_from(0).map(owned).eq(left.iter().cloned()));
    assert!(entries.iter_back_from(usize::MAX).map(owned).eq(left.iter().rev().cloned()));
    assert!(entries.iter_back_from(3).map(owned).eq(left[..3].iter().rev().cloned()));
    assert_eq!(entries.iter_back_from(0).count(), 0);
    assert_eq!(
        (entries.rank(id(7)), entries.rank_behind(id(8)), entries.rank_behind(StreamId::MAX)),
        (6, 7, left.len())
    );
    assert!(entries.contains(id(8)) && !entries.contains(id(7)) && !entries.contains(id(3000)));
    assert_eq!(stream.max_deleted_id(), id(1995));
}

#[test]
fn like_entries_keep_their_names_once() {
    let bytes = |name: &[u8]| {
        let mut stream = Stream::default();
        (1..=10_000).for_each(|number| stream.append(id(number), pair(name, b"value")));
        stream.memory_bytes()
    };
    let (short, long) = (bytes(b"n"), bytes(&[b'n'; 100]));
    assert!(long < short + 1000, "{short} and {long} bytes");
}

#[test]
fn trimming_by_nodes_takes_whole_ones_within_its_limit() {
    let stream = |from: u64| {
        let mut stream = Stream::default();
        (1..=1000).for_each(|number| stream.append(id(number), pair(b"f", b"v")));
        assert_eq!(stream.trim(Keep::From(id(from)), Exactness::Exact).0, usize::try_from(from).expect("small") - 1);
        stream
    };
    let nodes = |limit| Exactness::Nodes { size: 100, limit };
    assert_eq!(stream(1).trim(Keep::Newest(555), nodes(0)).0, 400);
    assert_eq!(stream(1).trim(Keep::Newest(555), nodes(250)).0, 200);
    assert_eq!(stream(1).trim(Keep::Newest(555), nodes(99)).0, 0);
    assert_eq!(stream(31).trim(Keep::Newest(900), nodes(0)).0, 70, "the first node has 70 left");
    assert_eq!(stream(31).trim(Keep::Newest(901), nodes(0)).0, 0);
    assert_eq!(stream(1).trim(Keep::From(id(301)), nodes(0)).0, 300);
    assert_eq!(stream(1).trim(Keep::From(id(300)), nodes(0)).0, 200);
    assert_eq!(stream(1).trim(Keep::Newest(0), nodes(0)).0, 1000);
    assert_eq!(stream(1).trim(Keep::Newest(2000), Exactness::Exact).0, 0);
}

/// Random deliveries, claims and acknowledgements against a plain map, and the memory that is accounted for.
#[test]
fn a_group_agrees_with_a_map() {
    let mut stream = Stream::default();
    (1..=300).for_each(|number| stream.append(id(number), pair(b"f", b"v")));
    assert!(stream.create_group(b"g", Group::new(StreamId::MIN, Some(0))));
    assert!(!stream.create_group(b"g", Group::new(StreamId::MIN, None)));
    let empty = stream.memory_bytes();
    let mut model: BTreeMap<StreamId, (Vec<u8>, i64, u64)> = BTreeMap::new();
    let mut random = 3_u64;
    for round in 0..20_000_i64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, name) = (id(1 + (random >> 33) % 300), format!("c{}", (random >> 50) % 5).into_bytes());
        stream.edit_group(b"g", |group| {
            group.see(&name, false, round);
            match random >> 60 {
                0 => {
                    let had = model.values().filter(|(owner, ..)| *owner == name).count();
                    model.retain(|_, (owner, ..)| *owner != name);
                    assert_eq!(group.remove_consumer(&name), Some(had));
                }
                1..=6 => assert_eq!(group.acknowledge(at), model.remove(&at).is_some()),
                count => {
                    group.put(at, &name, round, count);
                    model.insert(at, (name.clone(), round, count));
                }
            }
        });
        let group = stream.group(b"g").expect("made above");
        assert_eq!(group.pending_len(), model.len());
        if round % 500 == 0 {
            let all = group.pending_from(StreamId::MIN);
            let all = all.map(|one| (one.id, (group.owner(&one).name().to_vec(), one.delivered_ms, one.deliveries)));
            assert!(all.eq(model.iter().map(|(id, one)| (*id, one.clone()))));
            for consumer in group.consumers() {
                let ids = group.pending_of(consumer, id(100)).map(|one| one.id);
                let expected = model.range(id(100)..).filter(|(_, (owner, ..))| owner == consumer.name());
                assert!(ids.eq(expected.map(|(id, _)| *id)));
            }
        }
    }
    stream.edit_group(b"g", |group| {
        for n in 0..5 {
            group.remove_consumer(format!("c{n}").as_bytes());
        }
    });
    let left = stream.memory_bytes();
    assert!(left < empty + 8192, "{left} bytes for an empty group, {empty} before");
    assert!(stream.destroy_group(b"g").is_some() && stream.destroy_group(b"g").is_none());
    assert_eq!(stream.memory_bytes(), size_of::<Stream>() + stream.entries().memory_bytes());
}

#[test]
fn a_group_counts_what_it_has_read_as_far_as_that_is_known() {
    let mut stream = Stream::default();
    stream.create_group(b"g", Group::new(StreamId::MIN, None));
    (1..=5).for_each(|number| stream.append(id(number), pair(b"f", b"v")));
    let lag = |stream: &Stream| stream.lag(stream.group(b"g").expect("made above"));
    stream.edit_group(b"g", |group| group.see(b"c", true, 7));
    assert_eq!(lag(&stream), Some(5));
    assert!(stream.deliver(b"g", b"c", 0..1, true, 7));
    assert_eq!(lag(&stream), Some(4));
    stream.delete(id(3));
    assert_eq!(lag(&stream), None, "an entry between was deleted");
    stream.deliver(b"g", b"c", 1..4, true, 7);
    assert_eq!(lag(&stream), Some(0));
    let group = stream.group(b"g").expect("made above");
    assert_eq!((group.entries_read, group.last_id, group.pending_len()), (Some(5), id(5), 4));
    assert!(!stream.deliver(b"g", b"c", 0..1, true, 8), "its last id is above");
    assert!(stream.is_referenced(id(1)) && !stream.is_referenced(id(3)) && stream.is_referenced(id(6)));
    stream.forget_pending(id(1));
    assert!(!stream.is_referenced(id(1)));
}

/// What trimming and deleting do to a stream and its groups, against lists.
#[test]
fn references_are_kept_deleted_or_respected() {
    let mut seed = 7_u64;
    let mut below = move |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    for round in 0..200 {
        let mut stream = Stream::default();
        let len = 1 + below(300);
        (1..=len).for_each(|ms| stream.append(id(ms), pair(b"f", b"v")));
        let mut pending: Vec<Vec<u64>> = Vec::new();
        let mut read: Vec<u64> = Vec::new();
        for group in 0..below(3) {
            let name = [b'a' + u8::try_from(group).expect("few")];
            let up_to = below(len + 1);
            stream.create_group(&name, Group::new(StreamId::MIN, None));
            stream.edit_group(&name, |group| group.create_consumer(b"c", 0));
            stream.deliver(&name, b"c", 0..usize::try_from(up_to).expect("small"), true, 0);
            let mut left: Vec<u64> = (1..=up_to).collect();
            left.retain(|ms| {
                below(3) > 0 || !stream.edit_group(&name, |group| group.acknowledge(id(*ms))).expect("a group")
            });
            pending.push(left);
            read.push(up_to);
        }
        // Some entries are gone already, and pending all the same.
        let mut entries: Vec<u64> = (1..=len).collect();
        entries.retain(|ms| below(9) > 0 || !stream.delete(id(*ms)));
        let referenced = |ms: u64| read.iter().any(|up_to| *up_to < ms) || pending.iter().any(|ids| ids.contains(&ms));
        let keep = if below(2) == 0 { Keep::Newest(below(len + 1)) } else { Keep::From(id(below(len + 2))) };
        let surplus = match keep {
            Keep::Newest(most) => entries.len().saturating_sub(usize::try_from(most).expect("small")),
            Keep::From(from) => entries.iter().filter(|ms| id(**ms) < from).count(),
        };
        let references = [References::Keep, References::Delete, References::Acked][round % 3];
        let candidates: Vec<u64> = match (references, keep) {
            (References::Acked, Keep::Newest(_)) => entries.clone(),
            _ => entries[..surplus].to_vec(),
        };
        let goes = |ms: &u64| references != References::Acked || !referenced(*ms);
        let gone: Vec<u64> = candidates.into_iter().filter(goes).take(surplus).collect();
        assert_eq!(stream.trim_referenced(keep, Exactness::Exact, references), gone.len(), "round {round}: {keep:?}");
        entries.retain(|ms| !gone.contains(ms));
        if references == References::Delete {
            pending.iter_mut().for_each(|ids| ids.retain(|ms| !gone.contains(ms)));
        }
        assert!(stream.entries().iter_from(0).map(|entry| entry.id.ms).eq(entries.iter().copied()), "round {round}");
        for (ids, (_, group)) in pending.iter().zip(stream.groups()) {
            assert!(group.pending_from(StreamId::MIN).map(|one| one.id.ms).eq(ids.iter().copied()), "round {round}");
        }
        for ms in 1..=len {
            let there = stream.entries().contains(id(ms));
            let stays = there && stream.is_referenced(id(ms));
            let expected = there.then_some(references != References::Acked || !stays);
            assert_eq!(stream.delete_referenced(id(ms), references), expected, "round {round}");
        }
        assert!(stream.is_empty() || references == References::Acked);
        if references == References::Delete {
            let gone = |ms: u64| !entries.contains(&ms);
            assert!(stream.groups().all(|(_, group)| group.pending_from(StreamId::MIN).all(|one| gone(one.id.ms))));
        }
    }
}
