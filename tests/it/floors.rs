//! The drawing stays true: what each module of `src` imports is what `DESIGN.md` permits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the table of `DESIGN.md`: module, floor, and modules that it may import.
fn permitted() -> BTreeMap<String, (u32, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let table = text.split("<!-- floors -->").nth(1).expect("the table is between two marks");
    let names =
        |cell: &str| cell.replace(['`', ','], " ").split_whitespace().map(str::to_owned).collect();
    let mut modules = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let floor = cells[2].parse().unwrap();
        modules.insert(cells[1].trim_matches('`').to_owned(), (floor, names(cells[4])));
    }
    modules
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Returns, per top-level module of `src`, the top-level modules that it imports.
fn imported() -> BTreeMap<String, BTreeSet<String>> {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(root().join("src")).unwrap();
            let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
            if module == "lib" {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let found = imports.entry(module.to_owned()).or_default();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for part in code.flat_map(|line| line.split("crate::").skip(1)) {
                let name: String =
                    part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name != module && !name.is_empty() {
                    found.insert(name);
                }
            }
        }
    }
    imports
}

#[test]
fn modules_import_what_the_design_permits() {
    let permitted = permitted();
    for (module, imports) in imported() {
        let (floor, allowed) =
            permitted.get(&module).unwrap_or_else(|| panic!("DESIGN.md does not list `{module}`"));
        for import in imports {
            assert!(
                allowed.contains(&import),
                "`{module}` imports `{import}`, which DESIGN.md does not permit"
            );
            let (below, _) = &permitted[&import];
            assert!(
                below < floor,
                "`{module}` on floor {floor} imports `{import}` on floor {below}"
            );
        }
    }
}

#[test]
fn the_design_lists_no_module_that_is_gone() {
    let present = imported();
    for module in permitted().keys() {
        assert!(present.contains_key(module), "DESIGN.md lists `{module}`");
    }
}
