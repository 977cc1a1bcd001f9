import StallReports
import Symbolication

extension OwnCode {
    /// Whether a function of a process that is watched from outside is its own, in any language and without rules.
    ///
    /// Own functions are Swift code by the rules for servers, and all other code except
    /// - the C library and the runtimes of languages;
    /// - the standard libraries that compilers put into the program itself, C++'s `std` and Rust's `core`, and widely used crates
    ///   of Rust, by their names;
    /// - what the source file's path shows to be fetched by a package manager, or to belong to the system;
    /// - what Python's interpreter only makes a call with;
    /// - the system's libraries, unless the program is in the system's directories, too.
    func isOwnOfAnyMake(_ frame: SymbolicatedFrame, module: LoadedModule?, executable: String) -> Bool {
        if frame.swiftModule != nil { return isOwn(frame, module: module, executable: executable) }
        guard let module else { return frame.symbol.map(Self.isOwnScript) ?? false }
        if Self.isRuntime(module.path) || Self.isOfSystem(module.path) && !Self.isOfSystem(executable) { return false }
        if let file = frame.location?.file, file.hasPrefix("/"), SourceOrigin(file) != .project { return false }
        if let symbol = frame.symbol, Self.isCallOfPython(symbol, in: module.path) { return false }
        return frame.symbol.map { !Self.isOfLibrary($0) } ?? true
    }

    /// Whether code that was generated at run time is the program's own.
    private static func isOwnScript(_ symbol: String) -> Bool {
        guard let name = GeneratedName(symbol) else {
            // The type of the result may stand before the name: `int java.lang.String.hashCode()`.
            let function = symbol.prefix { $0 != "(" }.split(separator: " ").last ?? ""
            return !stubs.contains(where: symbol.hasPrefix) && !classLibraries.contains(where: function.hasPrefix)
        }
        return !name.file.hasPrefix("node:") && !name.file.hasPrefix("<frozen ")
            && (!name.file.hasPrefix("/") || SourceOrigin(name.file) == .project)
    }

    /// What V8 and the JVM generate for themselves.
    private static let stubs = [
        "Builtin:", "BytecodeHandler:", "Stub:", "RegExp:", "Interpreter", "StubRoutines", "call_stub",
    ]

    /// Those of the JVM and of .NET.
    private static let classLibraries = [
        "java.", "javax.", "jdk.", "sun.", "Ljava/", "Ljavax/", "Ljdk/", "Lsun/", "System.",
    ]

    private static func isRuntime(_ path: String) -> Bool {
        let name = fileName(ofPath: path)
        return runtimes.contains { name.hasPrefix($0 + ".so") || name.hasPrefix($0 + "-") } || path.hasPrefix("[")
            || name.hasPrefix("libswift") || name.hasPrefix("ld-linux") || name.hasPrefix("ld-musl")
    }

    private static func isOfSystem(_ path: String) -> Bool {
        let others = ["/usr/local/", "/usr/src/"]
        return ["/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/nix/store/"].contains(where: path.hasPrefix)
            && !others.contains(where: path.hasPrefix)
    }

    private static let runtimes = [
        "libBlocksRuntime", "lib_FoundationICU", "libFoundation", "libFoundationEssentials", "libatomic", "libc",
        "libc++",
        "libc++abi", "libdispatch", "libdl", "libgcc_s", "libm", "libpthread", "libresolv", "librt", "libstdc++",
    ]

    /// Python's interpreter makes the same call through fewer functions once it was made a few times: these would make two faults of one.
    private static func isCallOfPython(_ symbol: String, in path: String) -> Bool {
        let file = fileName(ofPath: path)
        let isPython = file.hasPrefix("python3") || file.hasPrefix("libpython3")
        return isPython && callsOfPython.contains(where: symbol.hasPrefix)
    }

    /// Beginnings of the functions' names, of Python 3.8 to 3.13.
    private static let callsOfPython = [
        "cfunction_call", "cfunction_vectorcall", "method_vectorcall", "PyObject_Vectorcall", "PyObject_Call",
        "_PyObject_Vectorcall", "_PyObject_Call", "_PyObject_FastCall", "_PyObject_MakeTpCall", "PyVectorcall_Call",
        "_PyVectorcall_Call", "_PyFunction_Vectorcall", "function_code_fastcall", "object_vacall", "do_call_core",
        "call_function", "trace_call_function", "PyCFunction_Call",
    ]

    private static func isOfLibrary(_ symbol: String) -> Bool {
        let name = Demangler.shortName(symbol)
        switch Demangler.language(of: symbol) {
        case .cPlusPlus:
            let function = name.trimmingPrefix(Demangler.lambdaMark)
            return function.hasPrefix("std::") || function.hasPrefix("__gnu_cxx::")
        case .rust: return isOfRustLibrary(name)
        case .c, .swift: return false
        }
    }

    /// By the first crate in the name: `<alloc::vec::Vec as core::iter::Extend>::extend`, `<u64 as core::fmt::Display>::fmt`. The language's
    /// own types have methods of the standard library only: `str::parse`, `[shop::Cart]::sort`.
    private static func isOfRustLibrary(_ name: String) -> Bool {
        let words = name.split { !$0.isLetter && !$0.isNumber && !"_:".contains($0) }
        let path = words.first { $0.contains("::") && !$0.hasPrefix(":") } ?? ""
        let crate = String(path.prefix { $0 != ":" })
        return name.hasPrefix("[") || rustTypes.contains(crate) || rustLibraries.contains(crate)
    }

    private static let rustTypes: Set<String> = [
        "bool", "char", "str", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64",
        "u128", "usize",
    ]

    private static let rustLibraries: Set<String> = [
        "std", "core", "alloc", "__rustc", "hashbrown", "compiler_builtins", "tokio", "tokio_util", "mio", "async_std",
        "smol", "polling",
        "futures", "futures_core", "futures_util", "futures_executor", "parking_lot", "parking_lot_core",
        "crossbeam_channel",
        "rayon", "rayon_core", "hyper", "hyper_util", "h2", "tower", "axum", "actix_rt", "actix_server", "actix_web",
        "reqwest",
        "rustls", "ring", "serde", "serde_json", "regex", "regex_automata", "tracing", "tracing_core",
    ]
}
