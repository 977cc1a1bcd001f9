internal import Glibc

/// The kernel's news about directories (inotify(7)). One thread at a time.
struct Inotify: ~Copyable {
    /// One piece of news.
    struct Event {
        let watch: Int32
        let mask: UInt32
        /// The name in the watched directory; empty for news about the directory itself.
        let name: String

        func has(_ flags: Int32...) -> Bool { flags.contains { mask & UInt32(bitPattern: $0) != 0 } }
    }

    private let file: OpenFile

    var descriptor: Int32 { file.descriptor }

    init() throws(ReportError) {
        do throws(ReportError) {
            let flags = Int32(IN_NONBLOCK | IN_CLOEXEC)
            file = OpenFile(owning: try systemCall(path: nil) { inotify_init1(flags) }, path: "inotify")
        } catch let error where error.errorNumber == EMFILE {
            throw ReportError(.io, detail: "raise fs.inotify.max_user_instances", errorNumber: EMFILE)
        }
    }

    /// Watches a directory; throws what opening it would.
    func watch(_ path: String, for flags: Int32...) throws(ReportError) -> Int32 {
        let mask = flags.reduce(UInt32(IN_ONLYDIR)) { $0 | UInt32(bitPattern: $1) }
        do throws(ReportError) {
            return try systemCall(path: path) { unsafe inotify_add_watch(descriptor, path, mask) }
        } catch let error where error.errorNumber == ENOSPC {
            throw ReportError(.io, path: path, detail: "raise fs.inotify.max_user_watches", errorNumber: ENOSPC)
        }
    }

    /// A watch that the kernel has removed already is no error.
    func unwatch(_ watch: Int32) { inotify_rm_watch(descriptor, watch) }

    /// What is there to read now, perhaps nothing.
    func events() throws(ReportError) -> [Event] {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        do throws(ReportError) {
            let count = try systemCall(path: nil) {
                unsafe buffer.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress, $0.count) }
            }
            return Self.parse(buffer[..<count])
        } catch let error where error.errorNumber == EAGAIN {
            return []
        }
    }

    /// A record is watch, mask, cookie and the length of the name, 32 bits each; then the name, filled up with zeros.
    private static func parse(_ bytes: ArraySlice<UInt8>) -> [Event] {
        var events: [Event] = []
        var rest = bytes
        while rest.count >= 16 {
            let words = unsafe rest.withUnsafeBytes { raw in
                (0..<4).map { unsafe raw.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self) }
            }
            let name = rest.dropFirst(16).prefix(Int(words[3]))
            let text = String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
            events.append(Event(watch: Int32(bitPattern: words[0]), mask: words[1], name: text))
            rest = rest.dropFirst(16 + Int(words[3]))
        }
        return events
    }
}
