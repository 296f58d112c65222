//! The rooms of each crate: imports go down, and the tables of rooms in documents are made from
//! the code.
//!
//! `make rooms` writes the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use crate::source::{CRATES, Source, root};

/// Rooms and the rooms that each imports.
type Rooms = BTreeMap<String, BTreeSet<String>>;

/// Returns the rooms below `prefix`, the path of a module: its parts, and `head` for the module itself.
fn rooms_of(source: &Source, prefix: &[&str], head: &str) -> Rooms {
    let room = |at: usize| {
        let inside = source.files[at].module.get(prefix.len()).map_or(head, String::as_str);
        let is_inside = source.files[at].module.iter().zip(prefix).all(|(one, other)| one == other)
            && source.files[at].module.len() >= prefix.len();
        is_inside.then(|| inside.to_owned())
    };
    let mut rooms = Rooms::new();
    for (at, imports) in source.imports().into_iter().enumerate() {
        let Some(own) = room(at) else { continue };
        let others = imports.into_iter().filter_map(room).filter(|it| *it != own);
        rooms.entry(own.clone()).or_default().extend(others);
    }
    rooms
}

/// Returns the floor of every room: the length of the longest way down.
fn floors(rooms: &Rooms) -> BTreeMap<String, usize> {
    let mut floors = BTreeMap::new();
    while floors.len() < rooms.len() {
        let ready: Vec<&String> = rooms
            .iter()
            .filter(|(room, imports)| {
                !floors.contains_key(*room) && imports.iter().all(|it| floors.contains_key(it))
            })
            .map(|(room, _)| room)
            .collect();
        assert!(!ready.is_empty(), "rooms in a circle, or above one: {rooms:?}");
        for room in ready {
            let below = rooms[room].iter().map(|it| floors[it] + 1).max().unwrap_or(0);
            floors.insert(room.clone(), below);
        }
    }
    floors
}

/// Returns the first sentence of the documentation of a room.
fn content(folder: &str, prefix: &[&str], room: &str) -> String {
    let base = prefix.iter().fold(root().join(folder), |path, part| path.join(part));
    let candidates = [
        base.join(room).join("mod.rs"),
        base.join(room).with_extension("rs"),
        base.join("mod.rs"),
        base.join("lib.rs"),
    ];
    let path = candidates.iter().find(|path| path.is_file()).expect("a room has a head");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let all = lines.join(" ");
    let end = all.find(". ").unwrap_or(all.len());
    all[..end].trim_end_matches('.').replace(['[', ']'], "").replace("(crate::pack::base)", "")
}

/// Returns a table of rooms, the lowest floor first.
fn table(folder: &str, prefix: &[&str], rooms: &Rooms) -> String {
    let floors = floors(rooms);
    let mut order: Vec<&String> = rooms.keys().collect();
    order.sort_by_key(|room| (floors[*room], (*room).clone()));
    let mut text =
        String::from("| room | floor | content | imports |\n| --- | --- | --- | --- |\n");
    for room in order {
        let imports: Vec<String> = rooms[room].iter().map(|it| format!("`{it}`")).collect();
        let imports = if imports.is_empty() { "–".to_owned() } else { imports.join(" ") };
        let content = content(folder, prefix, room);
        writeln!(text, "| `{room}` | {} | {content} | {imports} |", floors[room]).unwrap();
    }
    text
}

#[test]
fn the_tables_of_documents_are_those_of_the_code() {
    let tables: [(&str, &str, &str, &[&str], &str); 3] = [
        ("DESIGN.md", "<!-- rooms of src -->", "src", &[], "lib"),
        ("docs/design/rooms.md", "<!-- rooms of pack -->", "pack/src", &[], "lib"),
        ("docs/design/rooms.md", "<!-- rooms of solve -->", "pack/src", &["solve"], "solve"),
    ];
    for (document, mark, folder, prefix, head) in tables {
        let path = root().join(document);
        let old = fs::read_to_string(&path).unwrap();
        let rooms = rooms_of(&Source::read(folder), prefix, head);
        let parts: Vec<&str> = old.split(mark).collect();
        assert_eq!(parts.len(), 3, "the table is between two marks `{mark}`");
        let table = table(folder, prefix, &rooms);
        let new = format!("{}{mark}\n\n{table}\n{mark}{}", parts[0], parts[2]);
        if std::env::var_os("ARENAPLAN_WRITE_ROOMS").is_some() {
            fs::write(path, new).unwrap();
        } else {
            assert!(old == new, "a table of rooms in {document} is stale: run `make rooms`");
        }
    }
}

#[test]
fn imports_between_rooms_go_down_in_the_core_crates() {
    for folder in ["src", "pack/src", "classic/src"] {
        floors(&rooms_of(&Source::read(folder), &[], "lib"));
    }
}

#[test]
fn the_core_has_few_rooms_levels_and_arrows() {
    let rooms = rooms_of(&Source::read("src"), &[], "lib");
    let levels = floors(&rooms).values().max().unwrap() + 1;
    let inner = rooms.iter().filter(|(room, _)| *room != "lib");
    let arrows: usize = inner.map(|(_, imports)| imports.len()).sum();
    assert!(rooms.len() <= 13, "{} rooms", rooms.len());
    assert!(levels <= 8, "{levels} levels, that of `lib.rs` included");
    assert!(arrows <= 53, "{arrows} arrows");
}

#[test]
fn the_checker_takes_data_from_packing_and_nothing_from_planners() {
    let source = Source::read("src");
    let rooms = rooms_of(&source, &[], "lib");
    for planner in ["liveness", "choose", "recompute", "planner"] {
        assert!(!rooms["check"].contains(planner), "check imports {planner}");
    }
    let checker =
        source.files.iter().filter(|file| file.module.first().is_some_and(|it| it == "check"));
    let taken: BTreeSet<String> =
        checker.flat_map(|file| file.names_below(&["crate", "pack"])).collect();
    assert_eq!(taken, BTreeSet::from(["Space", "Status"].map(str::to_owned)));
}

/// The circle that is meant: all `unsafe` code of the core stands in `raw.rs`, the types that the code is for elsewhere.
const MEANT: [&str; 1] = ["src: run/arena/memfd.rs run/arena/raw.rs"];

#[test]
fn no_circle_connects_files() {
    let mut found = Vec::new();
    for (folder, _) in CRATES {
        let source = Source::read(folder);
        for circle in circles(&source.imports()) {
            let paths: Vec<String> =
                circle.into_iter().map(|at| source.files[at].path.display().to_string()).collect();
            found.push(format!("{folder}: {}", paths.join(" ")));
        }
    }
    assert_eq!(found, MEANT, "files in circles");
}

/// Returns the sets of files that import each other, directly or through others.
fn circles(imports: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let below: Vec<BTreeSet<usize>> = (0..imports.len())
        .map(|start| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(at) = open.pop() {
                open.extend(imports[at].iter().copied().filter(|&it| seen.insert(it)));
            }
            seen
        })
        .collect();
    let members = |at: usize| -> Vec<usize> {
        below[at].iter().copied().filter(|&it| below[it].contains(&at)).collect()
    };
    let all: BTreeSet<Vec<usize>> = (0..imports.len()).map(members).collect();
    all.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[test]
fn folders_are_at_most_four_deep() {
    for (folder, _) in CRATES {
        for file in Source::read(folder).files {
            assert!(file.path.components().count() <= 4, "{folder}/{}", file.path.display());
        }
    }
}
