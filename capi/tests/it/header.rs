//! `include/arenaplan.h` is that of the sources, and of the version of the crate.

use std::fs;
use std::path::Path;

/// The crate.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the header that cbindgen makes of the sources.
fn generated() -> String {
    let bindings = cbindgen::generate(ROOT).unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let (path, text) = (Path::new(ROOT).join("include/arenaplan.h"), generated());
    if std::env::var_os("ARENAPLAN_WRITE_HEADER").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(fs::read_to_string(&path).is_ok_and(|known| known == text), "run 'make header'");
}

#[test]
fn the_version_of_the_header_is_that_of_the_crate() {
    let text = generated();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.unwrap().to_owned()
    };
    let numbers = ["AP_VERSION_MAJOR", "AP_VERSION_MINOR", "AP_VERSION_PATCH"].map(number);
    assert_eq!(numbers.join("."), env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_function_is_documented() {
    let text = generated();
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = 0;
    for (index, line) in lines.iter().enumerate() {
        if line.contains(" ap_") && line.contains('(') && !line.trim_start().starts_with('*') {
            functions += 1;
            assert_eq!(lines[index - 1].trim(), "*/", "{line}");
        }
    }
    assert!(functions > 20, "{functions}");
}
