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

/// The room of `src/pack` that has floors of its own; the data of packings are below it.
const SOLVER: &str = "pack::solve";

/// Returns the names that `src/pack/mod.rs` takes from the solver for the users of the room.
fn names_of_the_solver() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("src/pack/mod.rs")).unwrap();
    let paths = uses(&text);
    let names = paths.iter().filter_map(|path| path.strip_prefix("solve::"));
    names.map(str::to_owned).collect()
}

/// Returns the room of `src` to which a path below `crate` leads.
fn room_of(path: &str, names_of_the_solver: &BTreeSet<String>) -> String {
    match path.split("::").collect::<Vec<_>>()[..] {
        ["pack", "solve", ..] => SOLVER.to_owned(),
        ["pack", name, ..] if names_of_the_solver.contains(name) => SOLVER.to_owned(),
        ref parts => parts[0].to_owned(),
    }
}

/// Returns, per room of `src`, the rooms that it imports.
fn imported() -> BTreeMap<String, BTreeSet<String>> {
    let solver = names_of_the_solver();
    assert!(solver.contains("solve") && solver.contains("Budget"), "{solver:?}");
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(root().join("src")).unwrap().with_extension("");
            let parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
            let room = match parts[..] {
                // Those two only name the parts of the crate and of the room.
                ["lib"] | ["pack", "mod"] => continue,
                ["pack", "solve", ..] => SOLVER,
                _ => parts[0],
            };
            let text = fs::read_to_string(&path).unwrap();
            let found = imports.entry(room.to_owned()).or_default();
            let declared = uses(&text);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let is_path = |c: &char| c.is_alphanumeric() || *c == '_' || *c == ':';
            let inline = code
                .flat_map(|line| line.split("crate::").skip(1))
                .map(|part| part.chars().take_while(is_path).collect::<String>());
            let paths = declared.iter().filter_map(|path| path.strip_prefix("crate::"));
            let rooms = paths.map(str::to_owned).chain(inline.filter(|path| !path.ends_with(':')));
            let rooms = rooms.map(|path| room_of(&path, &solver));
            found.extend(rooms.filter(|it| it != room && !it.is_empty()));
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

/// A module of a room with its imports from the room, all as paths inside that folder.
struct File {
    path: Vec<String>,
    imports: Vec<Vec<String>>,
}

/// Returns the modules of a room, such as `pack/solve`, without their tests.
fn files_of(room: &str) -> Vec<File> {
    let base = root().join("src").join(room);
    let (mut folders, mut files) = (vec![base.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.strip_prefix(&base).unwrap().with_extension("");
            let mut module: Vec<String> =
                file.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.last().is_some_and(|name| name == "mod") {
                module.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap();
            let imports =
                uses(code).iter().filter_map(|path| inside(room, path, &module)).collect();
            files.push(File { imports, path: module });
        }
    }
    files
}

/// Returns the paths of all `use` declarations, with braces expanded.
fn uses(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut lines = code.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let line = line.strip_prefix("pub").map_or(line, |rest| rest.trim_start_matches("(crate)"));
        let Some(start) = line.trim_start().strip_prefix("use ") else { continue };
        let mut tree = start.to_owned();
        while !tree.ends_with(';') {
            tree.push_str(lines.next().expect("a declaration ends"));
        }
        expand(String::new(), &tree.trim_end_matches(';').replace(' ', ""), &mut paths);
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

/// Returns where in a room an import of `module` leads, or nothing if it leads elsewhere.
fn inside(room: &str, path: &str, module: &[String]) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.split("::").collect();
    let own: Vec<&str> = ["crate"].into_iter().chain(room.split('/')).collect();
    if let Some(rest) = parts.strip_prefix(&own[..]) {
        return Some(rest.iter().map(|&part| part.to_owned()).collect());
    }
    let ups = parts.iter().take_while(|&&part| part == "super").count();
    let first = parts.get(ups)?;
    if ups == 0 && (*first != "self" && !is_child(room, module, first)) {
        return None;
    }
    let mut full = module[..module.len().checked_sub(ups)?].to_vec();
    full.extend(parts[ups..].iter().filter(|&&part| part != "self").map(|&part| part.to_owned()));
    Some(full)
}

/// Returns whether a module of a room has a child called `name`.
fn is_child(room: &str, module: &[String], name: &str) -> bool {
    let base = root().join("src").join(room);
    let folder = module.iter().fold(base, |path, part| path.join(part));
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
    for file in files_of("pack/solve") {
        let own = room(&file.path);
        let imports = file.imports.iter().map(|path| room(path)).filter(|it| *it != own);
        rooms.entry(own.clone()).or_default().extend(imports);
    }
    assert!(rooms.values().map(BTreeSet::len).sum::<usize>() > 15, "imports are found: {rooms:?}");
    assert_permitted(&permitted("<!-- rooms -->"), &rooms);
}

/// Asserts that files of a room import each other in no circle, and returns how many imports
/// there are.
///
/// The room's own `mod.rs` counts as below its children if it declares a type that they extend.
fn assert_no_circle(room: &str, is_extended: bool) -> usize {
    let files = files_of(room);
    let of = |path: &[String]| {
        let matching = files.iter().enumerate().filter(|(_, file)| path.starts_with(&file.path));
        matching.max_by_key(|(_, file)| file.path.len()).map(|(at, _)| at)
    };
    let mut left: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        if is_extended && file.path.is_empty() {
            continue;
        }
        let imports = file.imports.iter().filter_map(|path| of(path)).filter(|&it| it != at);
        left.insert(at, imports.collect());
    }
    let imports = left.values().map(BTreeSet::len).sum();
    // A file whose imports are all gone is in no circle.
    while let Some(at) =
        left.keys().copied().find(|at| left[at].iter().all(|it| !left.contains_key(it)))
    {
        left.remove(&at);
    }
    let names: Vec<_> = left.keys().map(|&at| files[at].path.join("::")).collect();
    assert!(names.is_empty(), "in circles of {room}, or above them: {names:?}");
    imports
}

#[test]
fn no_circle_connects_files_of_the_solver_or_stages_of_the_planner() {
    assert!(assert_no_circle("pack/solve", false) > 100, "imports are found");
    assert!(assert_no_circle("planner", true) > 30, "imports are found");
}

#[test]
fn files_that_the_design_names_exist() {
    let text = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let tops = ["src/", "python/", "tests/", "benches/", "schema/", "examples/", "docs/"];
    let names = text.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = names
        .filter(|name| tops.iter().any(|top| name.starts_with(top)))
        .filter(|name| !name.contains([' ', '*', '<', '{', ':']))
        .collect();
    assert!(paths.len() > 15, "paths are found: {paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "DESIGN.md names `{path}`, which is gone");
    }
}
