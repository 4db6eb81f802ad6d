//! Aggregates in the table: edited in place, overwritten, copied and expired like strings, with their memory accounted for.

use gimmal_store::types::{Aggregate, Field, Fields, Limits, Type};
use gimmal_store::{NewValue, StandaloneTable, ValueRef};

const LIMITS: Limits = Limits { entries: 512, value: 64 };

fn field(number: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("field:{number}").into_bytes(), format!("value of {number}").into_bytes())
}

fn put(fields: &mut Fields, number: usize) {
    let (name, value) = field(number);
    fields.put(Field { name: &name, value: &value, expire_at_ms: None }, LIMITS);
}

/// From one field to thousands and back, through both forms; the bytes in use return to what they were.
#[test]
fn a_hash_grows_and_shrinks_in_its_entry() {
    let mut table = StandaloneTable::new((1, 2), 0);
    let hash = table.hash(b"key");
    let mut buffer = Vec::new();
    let before = table.bytes();
    let mut first = Fields::empty_in(Vec::new());
    put(&mut first, 0);
    assert!(!table.put_aggregate(hash, b"key", Aggregate::Hash(first), Some(1000), 7).replaced);
    for number in 1..3000 {
        let mut entry = table.find_mut(hash, b"key").expect("there");
        entry.edit(&mut buffer, |fields: &mut Fields| put(fields, number)).expect("a hash");
    }
    let entry = table.find(hash, b"key").expect("there");
    assert_eq!((entry.kind(), entry.encoding().name(), entry.expire_at_ms()), (Type::Hash, "hashtable", Some(1000)));
    assert!(table.bytes() > before + 3000 * 20);
    let copy = entry.copied(9);
    for number in 1..3000 {
        let mut entry = table.find_mut(hash, b"key").expect("there");
        let removed = entry.edit(&mut buffer, |fields: &mut Fields| fields.remove(&field(number).0, i64::MIN));
        assert_eq!(removed, Some(true));
    }
    let ValueRef::Hash(left) = table.find(hash, b"key").expect("there").value() else { panic!("a hash") };
    assert_eq!(left.find(b"field:0", 0).map(|field| field.value), Some(&b"value of 0"[..]));
    assert_eq!(left.len(), 1);
    let ValueRef::Hash(copied) = copy.value() else { panic!("a hash") };
    assert_eq!(copied.len(), 3000, "a copy shares nothing that is changed later");
    let with_one = table.bytes();
    let removed = table.remove(hash, b"key").expect("there");
    assert_eq!(with_one - table.bytes(), removed.entry().memory_bytes());
    assert!(table.is_empty());
}

#[test]
fn other_types_are_not_edited_and_are_overwritten() {
    let mut table = StandaloneTable::new((3, 4), 0);
    let hash = table.hash(b"key");
    let mut buffer = Vec::new();
    assert!(!table.put(hash, b"key", NewValue::Bytes(b"text"), None, 0).replaced);
    let mut entry = table.find_mut(hash, b"key").expect("there");
    assert!(entry.edit(&mut buffer, |_: &mut Fields| ()).is_none());
    let mut fields = Fields::empty_in(Vec::new());
    (0..2000).for_each(|number| put(&mut fields, number));
    let put_large = table.put_aggregate(hash, b"key", Aggregate::Hash(fields), None, 0);
    assert!(put_large.replaced && put_large.old.is_none());
    let put_string = table.put(hash, b"key", NewValue::Int(5), None, 0);
    assert!(put_string.old.is_some_and(|old| old.free_cost() > 10), "the tree comes back to be freed");
    assert_eq!(table.find(hash, b"key").map(|entry| entry.kind()), Some(Type::String));
}
