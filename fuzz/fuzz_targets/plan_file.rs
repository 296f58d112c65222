#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arenaplan_fuzz::targets::plan_file(bytes));
