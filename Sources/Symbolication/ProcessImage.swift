import Glibc

/// What the addresses of a process are resolved with: where its modules are, and their first pages. Of a process that has ended,
/// or runs another program now, this is what was remembered.
struct ProcessImage: ~Copyable {
    let map: ModuleMap
    let memory: ProcessMemory
    private let remembered: RememberedModules

    init(of process: ProcessDirectory, remembered: RememberedModules = RememberedModules()) {
        let now = remembered.isFinal ? ModuleMap(parsing: []) : ModuleMap(of: process)
        map = now.mappings.isEmpty ? remembered.map : now
        memory = ProcessMemory(of: remembered.isFinal ? nil : process)
        self.remembered = remembered
    }

    /// The module whose file starts at the mapping. Nil if it is none, or is neither there now nor remembered.
    func module(at mapping: ModuleMap.Mapping) -> ModuleImage? {
        ModuleImage(at: mapping.range.lowerBound, in: memory) ?? remembered.modules[mapping]
    }

    /// The whole of the kernel's page, which is in no file.
    func vdso(at mapping: ModuleMap.Mapping) -> [UInt8]? {
        let size = min(mapping.range.upperBound - mapping.range.lowerBound, 1 << 20)
        return memory.read(mapping.range.lowerBound, count: Int(size)) ?? remembered.vdso
    }
}

/// Modules of a process that may end before its addresses are resolved.
struct RememberedModules: Sendable {
    fileprivate(set) var map = ModuleMap(parsing: [])
    fileprivate(set) var modules: [ModuleMap.Mapping: ModuleImage] = [:]
    fileprivate var vdso: [UInt8]?
    /// Whether the process runs another program now, so that no more can be learned of this one.
    var isFinal = false

    /// Reads the process only if it has not seen the modules of all addresses yet.
    mutating func add(_ addresses: [UInt], of process: ProcessDirectory) {
        guard !isFinal, !addresses.allSatisfy(knows) else { return }
        let image = ProcessImage(of: process, remembered: self)
        map = image.map
        for mapping in addresses.compactMap(map.headerMapping) where modules[mapping] == nil {
            modules[mapping] = image.module(at: mapping)
            if mapping.isVDSO { vdso = image.vdso(at: mapping) }
        }
    }

    private func knows(_ address: UInt) -> Bool {
        guard map.contains(address) else { return false }
        return map.headerMapping(around: address).map { modules[$0] != nil } ?? true
    }
}

/// A process's memory, read without ever faulting: reading an unmapped address from `/proc/PID/mem` returns an error.
struct ProcessMemory: ~Copyable {
    private let file: Int32

    /// Without `/proc`, without a process, or if the other process's memory may not be read, nothing can be read.
    init(of process: ProcessDirectory?) {
        file = process.map { unsafe open($0.path + "/mem", O_RDONLY | O_CLOEXEC) } ?? -1
    }

    deinit {
        if file >= 0 { close(file) }
    }

    /// - Returns: `count` bytes, or as many as are mapped from `address` on, or nil if not even the first is.
    func read(_ address: UInt, count: Int) -> [UInt8]? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            initialized = unsafe max(0, pread(file, buffer.baseAddress, count, off_t(bitPattern: address)))
        }
        return bytes.isEmpty ? nil : bytes
    }
}

/// The directory of a process in `/proc`. The directory of another process is held open: it then stays that process's directory,
/// and cannot be read after the process has ended, even if a later process gets its number.
struct ProcessDirectory: Sendable {
    /// Nil for this process.
    private let directory: OpenDirectory?

    static let own = ProcessDirectory(nil)

    /// If there is no such process now, nothing can be read.
    init(processID: Int32) { self.init(OpenDirectory(of: processID)) }

    private init(_ directory: OpenDirectory?) { self.directory = directory }

    private final class OpenDirectory: Sendable {
        private let descriptor: Int32
        /// For readers.
        let name: String
        /// For opening files.
        var path: String { "/proc/thread-self/fd/\(descriptor)" }

        init(of processID: Int32) {
            let name = "/proc/\(processID)"
            self.name = name
            descriptor = unsafe open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        }

        deinit { if descriptor >= 0 { close(descriptor) } }
    }

    var isOwn: Bool { directory == nil }

    /// For a process whose first thread has ended, the directory of another thread: the first one's files show a process
    /// without memory.
    var path: String {
        guard let directory else { return "/proc/thread-self" }
        let whole = directory.path
        if Self.hasMemory(whole) { return whole }
        return directoryNames(whole + "/task").map { "\(whole)/task/\($0)" }.first(where: Self.hasMemory) ?? whole
    }

    /// A thread with memory has an executable.
    private static func hasMemory(_ path: String) -> Bool {
        var byte: CChar = 0
        return unsafe readlink(path + "/exe", &byte, 1) > 0
    }

    /// The same file as the process itself sees it: it may be in another mount namespace or have another root directory.
    func file(_ path: String) -> String { isOwn ? path : "\(self.path)/root\(path)" }

    /// The same problem, in words that say something to a reader: the path through our descriptor does not.
    func readable(_ problem: SymbolProblem) -> SymbolProblem {
        guard let directory, let path = problem.path, path.hasPrefix(directory.path + "/") else { return problem }
        return SymbolProblem(
            problem.code,
            path: "\(directory.name)\(path.dropFirst(directory.path.count))",
            detail: problem.detail
        )
    }

    /// The kernel's path of the running executable, with its mark if it was deleted.
    var executable: String? {
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { buffer, initialized in
            initialized = unsafe buffer.withMemoryRebound(to: CChar.self) {
                unsafe max(0, readlink(path + "/exe", $0.baseAddress!, $0.count))
            }
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}

/// The names in a directory, without `.` and `..`. Empty if it cannot be read.
func directoryNames(_ path: String, limit: Int = .max) -> [String] {
    guard let directory = unsafe opendir(path) else { return [] }
    defer { unsafe closedir(directory) }
    var names: [String] = []
    while names.count < limit, let entry = unsafe readdir(directory) {
        let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
            unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
        }
        if name != ".", name != ".." { names.append(name) }
    }
    return names
}

/// - Parameter limit: Of a longer file only the beginning is read: a process can fill its maps with long names. The 250,000
///   mappings of a large database take half of 64 MiB.
/// - Returns: The whole of a file whose size is not known in advance, or nil. Retries EINTR.
func readWholeFile(_ path: String, limit: Int = 64 << 20) -> [UInt8]? {
    let file = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var whole: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 64 * 1024)
    while whole.count < limit {
        let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(file, $0.baseAddress, $0.count) }
        if count < 0 && errno == EINTR { continue }
        if count < 0 { return nil }
        if count == 0 { break }
        whole += part[..<min(count, limit - whole.count)]
    }
    return whole
}
