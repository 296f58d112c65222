//! The fuzz targets of `fuzz/` on their seeds, and on random bytes: what `cargo fuzz` does for hours,
//! for a moment.

use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use crate::oracle::Random;
use fuzz::targets::ALL;

#[test]
fn no_target_finds_anything_in_its_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, target) in ALL {
        let seeds = std::fs::read_dir(root.join(name)).unwrap();
        let seeds: Vec<_> =
            seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap()).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        seeds.iter().for_each(|seed| target(seed));
    }
}

#[test]
fn no_target_that_is_made_of_any_bytes_finds_anything_in_some() {
    let mut random = Random(20);
    for (name, target) in ALL.iter().filter(|(name, _)| !name.ends_with("_file")) {
        for _ in 0..if *name == "csv" { 0 } else { 60 } {
            let bytes: Vec<u8> = (0..600).map(|_| random.below(256) as u8).collect();
            target(&bytes);
        }
    }
}

/// A target with a manifest entry that nobody runs here would rot.
#[test]
fn every_target_of_the_manifest_is_run() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    let bins = manifest.split("[[bin]]").skip(1);
    let bins: Vec<_> = bins.map(|bin| bin.split('"').nth(1).unwrap()).collect();
    assert_eq!(bins, ALL.map(|(name, _)| name));
}
