//! Memory at run time from storage ids.

use arenaplan::{SharingOptions, SpaceId, share_storage};

use crate::sharing::branches;

#[test]
fn row_23_a_block_at_run_time_is_as_large_as_its_largest_value_and_in_one_space() {
    use arenaplan::{Alignment, StorageBlocks, StorageEntry};
    let graph = branches();
    let plan = share_storage(&graph, &SharingOptions::default()).unwrap();
    let entries = |spaces: fn(usize) -> usize| -> Vec<StorageEntry> {
        let values = graph.values().iter().zip(plan.storages()).enumerate();
        values
            .filter_map(|(index, (value, storage))| {
                let space = SpaceId::new(spaces(index));
                Some(StorageEntry { block: storage.block()?, bytes: value.bytes(), space })
            })
            .collect()
    };
    let alignment = Alignment::new(64).unwrap();
    let blocks = StorageBlocks::new(entries(|_| 0), alignment).unwrap();
    assert_eq!(blocks.allocated_bytes(), plan.allocated_bytes());
    assert_eq!(blocks.value(0).unwrap().as_ptr() as usize % 64, 0);
    assert!(blocks.value(99).is_none());
    let refused = StorageBlocks::new(entries(|index| index % 2), alignment);
    assert_eq!(refused.unwrap_err().kind(), "InvalidBuffer");
}
