import Symbolication

/// Which functions are the server's own, as opposed to libraries': the culprit of a stall is an own function.
///
/// Without any rules, own is what lies in the executable or beside it, and is of a Swift module that is not known to be a
/// library's. C and C++ in a Swift server are libraries'.
public struct OwnCode: Hashable, Sendable {
    /// Swift modules that are own. Not empty: only these are.
    public var modules: Set<String>
    /// Swift modules that are libraries', besides those known. A name that ends in `*` stands for all that begin so.
    public var libraries: Set<String>

    /// - Parameters:
    ///   - modules: own Swift modules; empty to go by the known libraries.
    ///   - libraries: further modules to count as libraries.
    public init(modules: Set<String> = [], libraries: Set<String> = []) {
        self.modules = modules
        self.libraries = libraries
    }

    func isOwn(_ frame: SymbolicatedFrame, module: LoadedModule?, executable: String) -> Bool {
        guard let name = frame.swiftModule else { return false }
        return modules.isEmpty ? isBeside(executable, module) && !isLibrary(name) : modules.contains(name)
    }

    private func isBeside(_ executable: String, _ module: LoadedModule?) -> Bool {
        guard let path = module?.path else { return false }
        return path == executable || path.dropLastComponent == executable.dropLastComponent
    }

    private func isLibrary(_ name: String) -> Bool {
        Self.known.contains(name) || libraries.contains(name)
            || Self.knownPrefixes.contains(where: name.hasPrefix)
            || libraries.contains { $0.last == "*" && name.hasPrefix($0.dropLast()) }
    }

    private static let known: Set<String> = [
        "ArgumentParser", "AsyncAlgorithms", "AsyncHTTPClient", "Atomics", "Collections", "Configuration", "Crypto",
        "DequeModule", "Dispatch", "GRDB", "HTTPTypes", "Instrumentation", "Logging", "Metrics", "OrderedCollections",
        "RunLoopKit", "ServiceContextModule", "ServiceLifecycle", "StackCapture", "StallMonitor", "StallMonitorService",
        "StallReports", "Subprocess", "Swift", "Symbolication", "Synchronization", "System", "SystemPackage", "Tracing",
        "UnixSignals", "Yams",
    ]

    private static let knownPrefixes = ["Foundation", "Hummingbird", "NIO", "CNIO", "_", "Vapor", "GRPC", "Swift"]
}

extension String {
    /// The path without its last component.
    fileprivate var dropLastComponent: Substring {
        lastIndex(of: "/").map { self[..<$0] } ?? ""
    }
}
