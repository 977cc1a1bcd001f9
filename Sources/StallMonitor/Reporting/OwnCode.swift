import StallReports
import Symbolication

/// Which functions are the server's own rather than a library's. The culprit of a stall is an own function.
///
/// By default a function is own if it lies in the executable or in a file beside it, and
/// - belongs to a Swift module that is not a known library, or that is named like the executable, and whose source file is not in a
///   package's checkout, or
/// - is C or C++ with a source file that is neither in a package's checkout nor among the system's headers. Without debug
///   information the source file is unknown, and C and C++ count as library code.
///
/// In an executable stripped of its symbols, every function without a name is own, including those of libraries linked into it.
///
/// Rules take precedence over this, in this order: `libraries`, `modules`, `symbols`, `sources`, `binaries`.
public struct OwnCode: Hashable, Sendable {
    /// Swift modules that are own. If not empty, no other Swift module is.
    public var modules: Set<String>
    /// Swift modules that are libraries, besides the known ones. `*` is any text.
    public var libraries: Set<String>
    /// C and C++ functions that are own, by their symbols: `shop_*`.
    public var symbols: Set<String>
    /// Source files that are own, by the path that the compiler recorded: `*/Sources/CShop/*`.
    public var sources: Set<String>
    /// Executables and shared libraries whose code is own, except for known libraries: a path, a file's name, or `libshop*`.
    public var binaries: Set<String>

    /// - Parameters:
    ///   - modules: Own Swift modules. If empty, the known libraries decide.
    ///   - libraries: Further modules that are libraries.
    ///   - symbols: Own C and C++ functions.
    ///   - sources: Own source files.
    ///   - binaries: Own files, in addition to the executable and those in its directory.
    public init(
        modules: Set<String> = [],
        libraries: Set<String> = [],
        symbols: Set<String> = [],
        sources: Set<String> = [],
        binaries: Set<String> = []
    ) {
        (self.modules, self.libraries, self.symbols, self.sources) = (modules, libraries, symbols, sources)
        self.binaries = binaries
    }

    func isOwn(_ frame: SymbolicatedFrame, module: LoadedModule?, executable: String) -> Bool {
        let file = frame.location?.file
        if let name = frame.swiftModule {
            if libraries.match(name) { return false }
            if !modules.isEmpty { return modules.contains(name) }
            if let file, sources.match(file) { return true }
            let isLibrary = Self.isLibrary(name) && !Self.isMain(name, of: executable)
            return isBeside(executable, module) && !isLibrary && file.map(SourceOrigin.init) != .checkout
        }
        guard let symbol = frame.symbol else { return module.map { isNameless($0, executable) } ?? false }
        guard frame.language != .swift else { return false }
        if symbols.match(symbol) { return true }
        guard let file else { return false }
        if sources.match(file) { return true }
        return isBeside(executable, module) && SourceOrigin(file) == .project
    }

    /// Whether code without a name in this file counts as own, because nothing distinguishes it from libraries linked into the
    /// file.
    private func isNameless(_ module: LoadedModule, _ executable: String) -> Bool {
        module.lacksNames && (module.path == executable || isOwnBinary(module.path))
    }

    private func isOwnBinary(_ path: String) -> Bool { binaries.match(path) || binaries.match(fileName(ofPath: path)) }

    private func isBeside(_ executable: String, _ module: LoadedModule?) -> Bool {
        guard let path = module?.path else { return false }
        if path == executable || path.dropLastComponent == executable.dropLastComponent { return true }
        return isOwnBinary(path)
    }

    private static func isLibrary(_ name: String) -> Bool {
        known.contains(name) || knownPrefixes.contains(where: name.hasPrefix)
    }

    /// Whether it is the executable's own module, by its name. That may begin like a library's: `VaporShop`, `NIOEchoServer`.
    private static func isMain(_ name: String, of executable: String) -> Bool {
        name == String(fileName(ofPath: executable).map { $0.isLetter || $0.isNumber ? $0 : "_" })
    }

    private static let known: Set<String> = [
        "ArgumentParser", "AsyncAlgorithms", "AsyncHTTPClient", "Atomics", "Collections", "Configuration", "Crypto",
        "DequeModule", "Dispatch", "GRDB", "HTTPTypes", "Instrumentation", "Locking", "Logging", "Metrics",
        "OrderedCollections", "RunLoopKit", "RunLoopPorts", "ServiceContextModule", "ServiceLifecycle", "StackCapture",
        "StallDetection", "StallDiagnosis", "StallMonitor", "StallMonitorLoops", "StallMonitorService", "StallReports",
        "StallTesting", "StallTestingXCTest", "Subprocess", "Swift", "Symbolication", "Synchronization", "System",
        "SystemPackage", "Tracing", "UnixSignals", "Yams",
    ]

    private static let knownPrefixes = ["Foundation", "Hummingbird", "NIO", "CNIO", "_", "Vapor", "GRPC", "Swift"]
}

/// Where a source file comes from, by its path on the machine that built it.
enum SourceOrigin: Hashable {
    /// A project's own directory.
    case project
    /// A dependency that the package manager fetched.
    case checkout
    /// The compiler's or the system's.
    case system

    init(_ file: String) {
        if Self.belowHome(file).contains("/checkouts/") || Self.packages.contains(where: file.contains) {
            self = .checkout
        } else if !file.hasPrefix("/") || Self.isOfSystem(file) || Self.isOurs(file) {
            self = .system
        } else {
            self = .project
        }
    }

    private static let packages = [
        "/SourcePackages/", "/vcpkg_installed/", "/.conan", "cargo/registry/src/", "/node_modules/", "/site-packages/",
        "/dist-packages/", "/lib/python3.",
    ]

    /// The path without the home directory: SwiftPM has its `checkouts` elsewhere, and people their own projects in `~/checkouts`.
    private static func belowHome(_ file: String) -> Substring {
        let names = file.split(separator: "/", maxSplits: 2)
        switch names.first {
        case "root": return file.dropFirst("/root/".count)
        case "home", "Users": return names.count > 2 ? names[2] : ""
        default: return file[...]
        }
    }

    /// The last one is the directory in which Swift's own toolchains are built.
    private static let systems = ["/usr/", "/opt/rh/", "/nix/store/", "/rustc/", "/lib/", "/home/build-user/"]

    /// Container images are often built in `/usr/src/app`.
    private static func isOfSystem(_ file: String) -> Bool {
        systems.contains(where: file.hasPrefix) && !file.hasPrefix("/usr/src/") || file.contains("/.rustup/toolchains/")
    }

    /// Whether the file is the monitor's own C code, which counts as a library's even when its own package is built.
    private static func isOurs(_ file: String) -> Bool {
        ["CStackCapture", "CMonitorShims", "CRunLoopShims", "CRunLoopPorts", "CLoopHooks"]
            .contains { file.contains("/Sources/\($0)/") }
    }
}

/// A text in which `*` matches any text.
struct Wildcard: Hashable, Sendable {
    private let parts: [Substring]

    init(_ pattern: String) {
        parts = pattern.split(separator: "*", omittingEmptySubsequences: false)
    }

    func matches(_ text: String) -> Bool {
        let (first, last) = (parts[0], parts[parts.count - 1])
        guard parts.count > 1 else { return first == text }
        guard text.hasPrefix(first), text.utf8.count >= first.utf8.count + last.utf8.count, text.hasSuffix(last) else {
            return false
        }
        var rest = text.dropFirst(first.count).dropLast(last.count)
        for part in parts.dropFirst().dropLast() where !part.isEmpty {
            guard let found = rest.firstRange(of: part) else { return false }
            rest = rest[found.upperBound...]
        }
        return true
    }
}

extension Set<String> {
    /// Whether one of these patterns matches the text.
    fileprivate func match(_ text: String) -> Bool { contains { Wildcard($0).matches(text) } }
}

extension String {
    /// The path without its last component.
    fileprivate var dropLastComponent: Substring {
        lastIndex(of: "/").map { self[..<$0] } ?? ""
    }
}
