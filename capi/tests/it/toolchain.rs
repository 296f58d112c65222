//! The library, the compilers of the machine, and valgrind.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Warnings that are errors in the header and in every program.
const WARNINGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];

/// Exit code of valgrind if it finds something.
const FOUND: i32 = 99;

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Static,
    Shared,
}

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Builds the library, with the profile of this test, and returns the folder that has it.
///
/// `cargo test` does not build a library that Rust cannot link. Packages and features are those of
/// `make test-rust`, so that cargo compiles no dependency a second time.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap().file_name().unwrap().to_str().unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--workspace", "--exclude", "arenaplan-python"])
            .args(["--all-features", "--lib", "--tests", "--quiet", "--profile", profile])
            .args(["--message-format", "json"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let messages = String::from_utf8(built.stdout).unwrap();
        let messages = messages.lines().map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            message
        });
        let files = messages.flat_map(|message| {
            let names = message["filenames"].as_array().cloned().unwrap_or_default();
            names.into_iter().map(|name| PathBuf::from(name.as_str().unwrap()))
        });
        let archive = |file: &PathBuf| file.file_name().unwrap() == "libarenaplan.a";
        files.into_iter().find(archive).unwrap().parent().unwrap().to_path_buf()
    })
}

/// Returns whether a program can be started, or says that a test is skipped.
fn there(program: &OsString) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no {}", program.to_string_lossy());
    }
    found
}

/// Returns a tool that a variable of the environment names, or the usual one.
fn tool(variable: &str, usual: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

/// Compiles a program of one file into `folder`; nothing, visibly, without a compiler.
pub fn compile(source: &Path, standard: &str, link: Link, folder: &Path) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        eprintln!("SKIPPED: the flags of the compiler are those of Linux");
        return None;
    }
    let cpp = source.extension().unwrap() == "cpp";
    let compiler = if cpp { tool("CXX", "c++") } else { tool("CC", "cc") };
    if !there(&compiler) {
        return None;
    }
    let (library, program) = (library(), folder.join(source.file_stem().unwrap()));
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(WARNINGS).args(["-g", "-O1"]);
    if !cpp {
        command.args(["-Wstrict-prototypes", "-Wmissing-prototypes"]);
    }
    command.arg("-I").arg(root().join("capi/include")).arg(source).arg("-o").arg(&program);
    match link {
        Link::Static => {
            command.arg(library.join("libarenaplan.a")).args(["-lpthread", "-ldl", "-lm"]);
        }
        Link::Shared => {
            let folder = library.to_str().unwrap();
            command.arg(format!("-L{folder}")).arg(format!("-Wl,-rpath,{folder}"));
            command.args(["-larenaplan", "-lpthread"]);
        }
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(program)
}

/// Runs a program, and returns its code and what it printed.
pub fn run(program: &Path, arguments: &[&str]) -> (i32, String) {
    finish(Command::new(program).args(arguments).output().unwrap())
}

/// Runs a program under valgrind: no wrong access, no leak. Nothing, visibly, without valgrind.
pub fn run_checked(program: &Path, arguments: &[&str]) -> Option<(i32, String)> {
    if !there(&"valgrind".into()) {
        return None;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--leak-check=full", "--show-leak-kinds=all"]);
    let known = concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/it/valgrind.supp");
    command.arg(known);
    command.args(["--errors-for-leak-kinds=all", &format!("--error-exitcode={FOUND}")]);
    let done = command.arg(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let (code, text) = finish(done);
    assert_ne!(code, FOUND, "{errors}");
    Some((code, text))
}

fn finish(done: Output) -> (i32, String) {
    let code = done.status.code();
    let code = code.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&done.stderr)));
    if code != 0 {
        eprintln!("{}", String::from_utf8_lossy(&done.stderr));
    }
    (code, String::from_utf8(done.stdout).unwrap())
}
