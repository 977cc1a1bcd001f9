extension Fingerprint {
    /// Own frames taken, from the innermost: enough to tell callers apart, and few enough that how the server was entered
    /// does not.
    static let depth = 8

    /// Makes the fingerprint of a stall. Pure: the same input gives the same value in every process.
    ///
    /// FNV-1a (64 bit) over these strings, each followed by a zero byte:
    /// 1. the kind;
    /// 2. per frame, from the innermost, the first eight that are `own` (or, when none is, the first eight of all):
    ///    the base name of the module's file without a version (`libfoo.so.6.1` is `libfoo.so`), then the mangled symbol, or else
    ///    the demangled name, or else `BUILDID+OFFSET`;
    ///    a frame that repeats the one before it (recursion) is left out, and so is an inlined call: whether there are any
    ///    depends on debug information.
    ///
    /// No address, line, thread, host or time goes in. Without any frame the kind alone is left, so all stalls of that kind
    /// whose capture failed count as the same.
    public static func make(
        kind: StallKind,
        frames: [StallReport.Frame],
        modules: [StallReport.Module]
    ) -> Fingerprint {
        var hash = FNV1a()
        hash.add(kind.rawValue)
        let frames = frames.filter { $0.kind != .inlined }
        let own = frames.filter(\.own)
        var last: [String] = []
        var taken = 0
        for frame in own.isEmpty ? frames : own where taken < depth {
            let identity = identity(of: frame, modules: modules)
            guard identity != last else { continue }
            identity.forEach { hash.add($0) }
            last = identity
            taken += 1
        }
        return Fingerprint(digest: hash.value)
    }

    private static func identity(of frame: StallReport.Frame, modules: [StallReport.Module]) -> [String] {
        let module = frame.module.flatMap { modules.indices.contains($0) ? modules[$0] : nil }
        let name = frame.symbol ?? frame.function ?? "\(module?.buildID ?? "?")+\(frame.offset ?? frame.address)"
        return [module.map { stableName(ofPath: $0.path) } ?? "?", name]
    }

    /// The file's base name, cut after `.so`.
    static func stableName(ofPath path: String) -> String {
        let base = path.split(separator: "/").last.map(String.init) ?? ""
        let parts = base.split(separator: ".", omittingEmptySubsequences: false)
        guard let suffix = parts.firstIndex(of: "so") else { return base }
        return parts[...suffix].joined(separator: ".")
    }
}

/// The hash of Fowler, Noll and Vo, 64 bit, variant 1a: fixed for all time, unlike the standard library's seeded one.
private struct FNV1a {
    private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    mutating func add(_ text: String) {
        for byte in text.utf8 { add(byte) }
        add(0)
    }

    private mutating func add(_ byte: UInt8) {
        value = (value ^ UInt64(byte)) &* 0x0000_0100_0000_01b3
    }
}
