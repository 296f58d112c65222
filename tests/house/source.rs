//! The files of a crate, the items that each file declares, and the files that each file imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of all crates of the workspace, and the name of each crate in paths.
pub(crate) const CRATES: [(&str, &str); 7] = [
    ("src", "arenaplan"),
    ("pack/src", "arenaplan_pack"),
    ("classic/src", "arenaplan_classic"),
    ("kernels/src", "arenaplan_kernels"),
    ("engine/src", "arenaplan_engine"),
    ("capi/src", "arenaplan_capi"),
    ("python/src", "arenaplan_python"),
];

/// Returns the folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// A file: a module without its tests.
pub(crate) struct File {
    /// Path of the module inside the crate; empty for `lib.rs`.
    pub(crate) module: Vec<String>,
    /// Path of the file inside the folder of the crate.
    pub(crate) path: PathBuf,
    /// Code without comments, texts and tests.
    pub(crate) code: String,
    /// Items declared at the top level, by name.
    pub(crate) items: BTreeSet<String>,
    /// What `use` declarations bring into scope: name, or `*`, and path.
    uses: Vec<(String, Vec<String>)>,
}

/// The files of a crate.
pub(crate) struct Source {
    pub(crate) files: Vec<File>,
    by_module: BTreeMap<Vec<String>, usize>,
}

impl Source {
    /// Reads all files below `folder`.
    pub(crate) fn read(folder: &str) -> Self {
        let base = root().join(folder);
        let mut paths = files_below(&base);
        paths.sort();
        let files: Vec<File> = paths.iter().map(|path| File::read(&base, path)).collect();
        assert!(files.len() > 4, "{folder} has files");
        let by_module =
            files.iter().enumerate().map(|(at, file)| (file.module.clone(), at)).collect();
        Self { files, by_module }
    }

    /// Returns, by file, the files whose items a file names; itself and the heads of the folders
    /// that the file lies in are left out: a head (`mod.rs`, `lib.rs`) is above its parts, and
    /// what the head declares for all of them is its parts' own.
    ///
    /// A name leads to the file that declares the item, however many modules pass it on.
    pub(crate) fn imports(&self) -> Vec<BTreeSet<usize>> {
        let all = self.files.iter().enumerate().map(|(at, file)| {
            let inline = paths_in(&file.code);
            let declared = file.uses.iter().filter(|(_, path)| !path.is_empty());
            let paths = declared.map(|(_, path)| path.clone()).chain(inline);
            let found = paths.filter_map(|path| self.resolve(at, &path, 0));
            found.filter(|&it| !file.module.starts_with(&self.files[it].module)).collect()
        });
        all.collect()
    }

    /// Returns the file to which a path in the file `at` leads, unless it leaves the crate.
    fn resolve(&self, at: usize, path: &[String], depth: usize) -> Option<usize> {
        let first = path.first()?.as_str();
        let module = &self.files[at].module;
        let (start, rest): (Vec<String>, &[String]) = match first {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                (module[..module.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            _ => return self.named(at, path, depth),
        };
        let start = *self.by_module.get(&start)?;
        if rest.is_empty() { Some(start) } else { self.named(start, rest, depth) }
    }

    /// Returns the file to which a path leads that begins with a name known in the file `at`.
    fn named(&self, at: usize, path: &[String], depth: usize) -> Option<usize> {
        let (name, rest) = path.split_first()?;
        let mut child = self.files[at].module.clone();
        child.push(name.clone());
        if let Some(&child) = self.by_module.get(&child) {
            return if rest.is_empty() {
                Some(child)
            } else {
                self.named(child, rest, depth).or(Some(child))
            };
        }
        if self.files[at].items.contains(name) {
            return Some(at);
        }
        if depth > 8 {
            return None;
        }
        for (known, target) in &self.files[at].uses {
            let mut full = target.clone();
            if known == "*" {
                full.push(name.clone());
            } else if known != name {
                continue;
            }
            full.extend(rest.iter().cloned());
            if full[..] != *path
                && let Some(found) = self.resolve(at, &full, depth + 1)
            {
                return Some(found);
            }
        }
        None
    }
}

impl File {
    fn read(base: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let code = stripped(&text);
        let code = code.split("\nmod tests {").next().unwrap().to_owned();
        let inside = path.strip_prefix(base).unwrap();
        let parts = inside.with_extension("");
        let mut module: Vec<String> =
            parts.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let items = code.lines().filter_map(declared).collect();
        Self { module, path: inside.to_path_buf(), items, uses: uses(&code), code }
    }

    /// Returns the names of the types that the file declares, those inside of functions and macros
    /// among them.
    pub(crate) fn types(&self) -> Vec<String> {
        let name = |line: &str| {
            let inner = line.trim_start();
            let (kind, rest) = without_visibility(inner).split_once(' ')?;
            let is_type = match kind {
                "struct" | "enum" | "trait" | "union" => true,
                // An indented alias is an associated type.
                "type" => inner.len() == line.len(),
                _ => false,
            };
            // A macro that declares types names these where it is called.
            is_type.then(|| word(rest)).filter(|name| !name.is_empty())
        };
        self.code.lines().filter_map(name).collect()
    }

    /// Returns the names that the file imports from below a path.
    pub(crate) fn names_below(&self, path: &[&str]) -> Vec<String> {
        let inline = paths_in(&self.code).into_iter();
        let all = self.uses.iter().map(|(_, path)| path.clone()).chain(inline);
        let below =
            all.filter(|it| it.len() > path.len() && it.iter().zip(path).all(|(a, b)| a == b));
        below.map(|it| it[path.len()].clone()).collect()
    }
}

/// Returns the Rust files below a folder.
pub(crate) fn files_below(base: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![base.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns code with comments and texts left out.
fn stripped(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|&c| c != '\n').is_some() {},
            '"' => {
                code.push_str("\"\"");
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => _ = chars.next(),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '\'' if matches!(chars.peek(), Some('"' | '\\' | '/')) => {
                // A character that would begin a text or a comment.
                let escaped = chars.next() == Some('\\');
                while chars.next_if(|&c| c != '\'').is_some() {}
                if escaped && chars.peek() == Some(&'\'') {
                    chars.next();
                }
                chars.next_if_eq(&'\'');
            }
            _ => code.push(c),
        }
    }
    code
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest =
        if rest.starts_with('(') { rest.split_once(')').map_or(rest, |it| it.1) } else { rest };
    rest.trim_start()
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the name of the item that a line at the top level declares.
fn declared(line: &str) -> Option<String> {
    let mut line = without_visibility(line);
    for prefix in ["const ", "unsafe ", "async ", "extern \"\" "] {
        // Of `const NAME`, too, where the name follows at once.
        if let Some(rest) = line.strip_prefix(prefix) {
            let is_function = ["fn ", "unsafe ", "extern ", "trait ", "impl"]
                .iter()
                .any(|it| rest.starts_with(it));
            if !is_function {
                return (prefix == "const ").then(|| word(rest));
            }
            line = rest;
        }
    }
    let (kind, rest) = line.split_once(' ')?;
    let kinds = ["struct", "enum", "trait", "union", "fn", "type", "static", "macro_rules!"];
    kinds.contains(&kind).then(|| word(rest))
}

/// Returns what all `use` declarations bring into scope.
fn uses(code: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = code.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(start) = without_visibility(line).strip_prefix("use ") else { continue };
        let mut tree = start.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().expect("a declaration ends"));
        }
        let tree = tree.split(';').next().unwrap().replace(" as ", "@").replace(' ', "");
        expand("", &tree, &mut found);
    }
    found
}

/// Appends the names of a `use` tree below `prefix`.
fn expand(prefix: &str, tree: &str, found: &mut Vec<(String, Vec<String>)>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, alias) =
            tree.split_once('@').map_or((tree, None), |(path, as_)| (path, Some(as_)));
        let full = format!("{prefix}{path}");
        let mut parts: Vec<String> =
            full.trim_start_matches("::").split("::").map(str::to_owned).collect();
        let last = parts.last().cloned().unwrap_or_default();
        if last == "self" && parts.len() > 1 || last == "*" {
            parts.pop();
        }
        let own = if last == "*" { last } else { parts.last().cloned().unwrap_or_default() };
        found.push((alias.map_or(own, str::to_owned), parts));
        return;
    };
    let inner = rest.strip_suffix('}').expect("braces are balanced");
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if from < at {
                    expand(&format!("{prefix}{head}"), &inner[from..at], found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the paths of two parts or more in code, `use` declarations included.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c| !is_part(c))
        // A path that ends in `::` begins the tree of a declaration.
        .filter(|path| path.contains("::") && !path.ends_with("::"))
        .map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .filter(|path: &Vec<String>| path.len() > 1)
        .collect()
}
