import StallReports

/// The scheme before: to show what the one of today is better at.
enum FingerprintV1 {
    /// What was hashed: the first eight own frames' file and symbol, one after the other the same left out, inlined calls left out.
    static func input(_ frames: [StallReport.Frame], _ modules: [StallReport.Module]) -> [[String]] {
        // What awaits was not part of it.
        let frames = frames.filter { $0.kind == nil }
        let own = frames.filter(\.own)
        var taken: [[String]] = []
        for frame in own.isEmpty ? frames : own where taken.count < 8 {
            let module = frame.module.map { modules[$0] }
            let name = frame.symbol ?? frame.function ?? "\(module?.buildID ?? "?")+\(frame.offset ?? frame.address)"
            let identity = [module?.path ?? "?", name]
            if identity != taken.last { taken.append(identity) }
        }
        return taken
    }
}
