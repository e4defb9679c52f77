//! Which states are built, and when.

#![cfg(test)]

mod logs;

use std::borrow::Cow;

use diskproof_states::choice::{Choice, Reach, Tear};
use diskproof_states::content::Store;
use diskproof_states::cut::collect;
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::plan::{choices, Cuts, Pass};
use diskproof_wire::crash_log::{Flags, Operation};
use logs::{Recording, DISK};

fn write(recording: &mut Recording, offset: u64, length: usize) -> u64 {
    let data = Cow::Owned(vec![b'1'; length]);
    recording.add(DISK, Operation::Write { flags: Flags::NONE, offset, data })
}

#[test]
fn each_write_is_torn_in_its_middle_where_it_was_promised() {
    let mut recording = Recording::new(&[b'0'; 4096]);
    let long = write(&mut recording, 0, 2048);
    write(&mut recording, 2560, 512);
    let longer = write(&mut recording, 4096, 1024);
    let said = recording.add(0, Operation::Acknowledge { text: Cow::Borrowed(b"said") });
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let cuts = Cuts::new(&store.trace, &durability, 1);
    assert_eq!(cuts.of(Pass::Torn), [said]);
    assert_eq!(cuts.most_states(Pass::Torn, &store.trace, &durability, said), 6);
    let mut image = Image::new(&store, &durability);
    image.advance(said).unwrap();
    let half = |write: u64, sectors: &[bool], reach| {
        let tear = Tear { sectors: sectors.into(), reach };
        Choice::Without([(write, Some(tear))].into())
    };
    let torn = choices(Pass::Torn, &cuts, &collect(&image, &[]), 1, 100);
    let expected = [
        half(long, &[true, true, false, false], Reach::Whole),
        half(long, &[false, false, true, true], Reach::Whole),
        half(longer, &[true, false], Reach::Whole),
        half(longer, &[false, true], Reach::Whole),
        half(longer, &[true, false], Reach::Until(1)),
    ];
    assert_eq!(torn, expected);
}
