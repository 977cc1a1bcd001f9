import Glibc

/// Debuginfod servers, queried through elfutils' own client, libdebuginfod. The library is loaded at the first query, so a
/// process that never queries has neither it nor its network library loaded.
///
/// Never queried unless passed to a ``SymbolSearch``: intended for tools. The client stores files in its own cache
/// (`$DEBUGINFOD_CACHE_PATH`, or `~/.cache/debuginfod_client`).
public struct DebugInfoServer: Sendable {
    /// The longest time that one query may take.
    public var patience: Duration

    /// - Parameter patience: 20 seconds by default.
    /// - Returns: Nil if `$DEBUGINFOD_URLS` names no server. Reads the environment, as the client itself does at each query.
    public init?(patience: Duration = .seconds(20)) {
        guard let urls = unsafe getenv("DEBUGINFOD_URLS"), unsafe urls.pointee != 0 else { return nil }
        self.patience = patience
    }

    /// - Returns: The path of a file that the server returned for this build; its contents have still to be checked.
    func symbolFile(buildID: String, within time: Duration) throws(SymbolProblem) -> String {
        guard let client = unsafe Client.shared else {
            throw SymbolProblem(.download, detail: "libdebuginfod.so.1 is not installed")
        }
        let deadline = SuspendingClock.now + min(time, patience)
        // A module that was not stripped has no separate symbol file.
        for isStripped in [true, false] {
            do throws(SymbolProblem) {
                let find = unsafe isStripped ? client.findDebugInformation : client.findExecutable
                return unsafe try client.find(find, buildID, deadline)
            } catch {
                guard error.code == .missingFile else { throw error }
            }
        }
        throw SymbolProblem(.download, detail: "it has none")
    }
}

/// The functions of libdebuginfod.so.1 that are used: debuginfod_find_debuginfo(3).
@unsafe private struct Client {
    typealias Handle = OpaquePointer
    typealias Find =
        @convention(c) (
            Handle, UnsafePointer<UInt8>?, CInt, UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        ) -> CInt
    typealias Progress = @convention(c) (Handle, CLong, CLong) -> CInt
    typealias Begin = @convention(c) () -> Handle?
    typealias End = @convention(c) (Handle?) -> Void
    typealias SetProgress = @convention(c) (Handle, Progress) -> Void
    typealias SetUserData = @convention(c) (Handle, UnsafeMutableRawPointer?) -> Void
    typealias UserData = @convention(c) (Handle) -> UnsafeMutableRawPointer?

    let begin: Begin
    let end: End
    let setProgress: SetProgress
    let setUserData: SetUserData
    let userData: UserData
    let findDebugInformation: Find
    let findExecutable: Find

    /// Loaded once and never unloaded. Nil if it is not installed.
    static let shared: Client? = unsafe Client()

    private init?() {
        guard let library = unsafe dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL),
            let begin = unsafe dlsym(library, "debuginfod_begin"), let end = unsafe dlsym(library, "debuginfod_end"),
            let progress = unsafe dlsym(library, "debuginfod_set_progressfn"),
            let data = unsafe dlsym(library, "debuginfod_set_user_data"),
            let getData = unsafe dlsym(library, "debuginfod_get_user_data"),
            let debug = unsafe dlsym(library, "debuginfod_find_debuginfo"),
            let executable = unsafe dlsym(library, "debuginfod_find_executable")
        else { return nil }
        unsafe self.begin = unsafe unsafeBitCast(begin, to: Begin.self)
        unsafe self.end = unsafe unsafeBitCast(end, to: End.self)
        unsafe setProgress = unsafe unsafeBitCast(progress, to: SetProgress.self)
        unsafe setUserData = unsafe unsafeBitCast(data, to: SetUserData.self)
        unsafe userData = unsafe unsafeBitCast(getData, to: UserData.self)
        unsafe findDebugInformation = unsafe unsafeBitCast(debug, to: Find.self)
        unsafe findExecutable = unsafe unsafeBitCast(executable, to: Find.self)
    }

    /// Throws `missingFile` if the server has none.
    func find(_ find: Find, _ buildID: String, _ deadline: SuspendingClock.Instant) throws(SymbolProblem) -> String {
        guard let handle = unsafe begin() else { throw SymbolProblem(.download, detail: "its client has no memory") }
        defer { unsafe end(handle) }
        var limit = deadline
        var path: UnsafeMutablePointer<CChar>?
        // The client calls back at least about once a second, and gives up if the result is not zero.
        let result = unsafe withUnsafeMutablePointer(to: &limit) { limit in
            unsafe setUserData(handle, limit)
            unsafe setProgress(handle) { handle, _, _ in
                guard let client = unsafe Client.shared, let limit = unsafe client.userData(handle) else { return 1 }
                return unsafe SuspendingClock.now > limit.load(as: SuspendingClock.Instant.self) ? 1 : 0
            }
            // A length of zero means that the id is in hexadecimal.
            return unsafe buildID.withCString { text in
                unsafe text.withMemoryRebound(to: UInt8.self, capacity: buildID.utf8.count + 1) {
                    unsafe find(handle, $0, 0, &path)
                }
            }
        }
        if result >= 0 { close(result) }
        defer { unsafe free(path) }
        guard result >= 0, let path = unsafe path else {
            throw unsafe Self.problem(-result, deadline)
        }
        return unsafe String(cString: path)
    }

    private static func problem(_ number: CInt, _ deadline: SuspendingClock.Instant) -> SymbolProblem {
        if SuspendingClock.now >= deadline { return SymbolProblem(.download, detail: "no answer in time") }
        if number == ENOENT { return SymbolProblem(.missingFile) }
        return SymbolProblem(.download, detail: unsafe String(cString: strerror(number)))
    }
}
