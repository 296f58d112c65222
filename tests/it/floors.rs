//! The drawing stays true: what each module of `src` imports is what `DESIGN.md` permits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A table of `DESIGN.md`: the floor of each module, and the modules that it may import.
type Table = BTreeMap<String, (u32, BTreeSet<String>)>;

/// Reads the table between two equal marks of `DESIGN.md`.
fn permitted(mark: &str) -> Table {
    let text = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let table = text.split(mark).nth(1).expect("the table is between two marks");
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

/// Asserts that each module imports only modules that are permitted, and only from lower floors.
fn assert_permitted(permitted: &Table, imported: &BTreeMap<String, BTreeSet<String>>) {
    for (module, imports) in imported {
        let (floor, allowed) =
            permitted.get(module).unwrap_or_else(|| panic!("DESIGN.md does not list `{module}`"));
        for import in imports {
            assert!(
                allowed.contains(import),
                "`{module}` imports `{import}`, which DESIGN.md does not permit"
            );
            let (below, _) = &permitted[import];
            assert!(
                below < floor,
                "`{module}` on floor {floor} imports `{import}` on floor {below}"
            );
        }
    }
    for module in permitted.keys() {
        assert!(imported.contains_key(module), "DESIGN.md lists `{module}`, which is gone");
    }
}

/// A module of `src/solve` with its imports from `src/solve`, all as paths inside that folder.
struct File {
    path: Vec<String>,
    imports: Vec<Vec<String>>,
}

/// Returns the modules of `src/solve` without their tests.
fn files_of_solve() -> Vec<File> {
    let base = root().join("src/solve");
    let (mut folders, mut files) = (vec![base.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&base).unwrap().with_extension("");
            let mut module: Vec<String> =
                inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.last().is_some_and(|name| name == "mod") {
                module.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap();
            let imports =
                uses(code).iter().filter_map(|path| inside_solve(path, &module)).collect();
            files.push(File { imports, path: module });
        }
    }
    files
}

/// Returns the paths of all `use` declarations, with braces expanded.
fn uses(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let mut paths = Vec::new();
    for part in code.split(';') {
        let start = part.rfind(" use ").map(|at| at + 5).or_else(|| {
            part.trim_start().starts_with("use ").then(|| part.find("use ").unwrap() + 4)
        });
        if let Some(start) = start {
            expand(String::new(), &part[start..].replace(' ', ""), &mut paths);
        }
    }
    paths
}

/// Appends the paths of a `use` tree below `prefix`.
fn expand(prefix: String, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        return paths.push(prefix + tree);
    };
    let inner = rest.strip_suffix('}').expect("braces are balanced");
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if from < at {
                    expand(format!("{prefix}{head}"), &inner[from..at], paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns where in `src/solve` an import of `module` leads, or nothing if it leads elsewhere.
fn inside_solve(path: &str, module: &[String]) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.split("::").collect();
    if let ["crate", "solve", rest @ ..] = &parts[..] {
        return Some(rest.iter().map(|&part| part.to_owned()).collect());
    }
    let ups = parts.iter().take_while(|&&part| part == "super").count();
    let first = parts.get(ups)?;
    if ups == 0 && (*first != "self" && !is_child(module, first)) {
        return None;
    }
    let mut full = module[..module.len().checked_sub(ups)?].to_vec();
    full.extend(parts[ups..].iter().filter(|&&part| part != "self").map(|&part| part.to_owned()));
    Some(full)
}

/// Returns whether a module of `src/solve` has a child called `name`.
fn is_child(module: &[String], name: &str) -> bool {
    let folder = module.iter().fold(root().join("src/solve"), |path, part| path.join(part));
    folder.join(name).is_dir() || folder.join(name).with_extension("rs").is_file()
}

#[test]
fn modules_import_what_the_design_permits() {
    assert_permitted(&permitted("<!-- floors -->"), &imported());
}

#[test]
fn rooms_of_the_solver_import_only_rooms_below() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let room = |path: &[String]| path.first().map_or("solve", |room| room).to_owned();
    for file in files_of_solve() {
        let own = room(&file.path);
        let imports = file.imports.iter().map(|path| room(path)).filter(|it| *it != own);
        rooms.entry(own.clone()).or_default().extend(imports);
    }
    assert!(rooms.values().map(BTreeSet::len).sum::<usize>() > 15, "imports are found: {rooms:?}");
    assert_permitted(&permitted("<!-- rooms -->"), &rooms);
}

#[test]
fn no_circle_connects_files_of_the_solver() {
    let files = files_of_solve();
    let of = |path: &[String]| {
        let matching = files.iter().enumerate().filter(|(_, file)| path.starts_with(&file.path));
        matching.max_by_key(|(_, file)| file.path.len()).map(|(at, _)| at)
    };
    let mut left: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        let imports = file.imports.iter().filter_map(|path| of(path)).filter(|&it| it != at);
        left.insert(at, imports.collect());
    }
    assert!(left.values().map(BTreeSet::len).sum::<usize>() > 100, "imports are found");
    // A file whose imports are all gone is in no circle.
    while let Some(at) =
        left.keys().copied().find(|at| left[at].iter().all(|it| !left.contains_key(it)))
    {
        left.remove(&at);
    }
    let names: Vec<_> = left.keys().map(|&at| files[at].path.join("::")).collect();
    assert!(names.is_empty(), "in circles, or above them: {names:?}");
}
