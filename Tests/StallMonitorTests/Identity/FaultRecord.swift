import Foundation

@testable import StallMonitor
@testable import StallReports

/// Recorded stacks of the programs that `Tests/Fixtures/FaultTwins/make` builds: for each twin and each of its faults
/// the frames from the culprit outwards. Kept small: names and modules are stored in lists.
struct FaultRecord: Codable {
    var symbols: [String] = []
    var modules: [StallReport.Module] = []
    /// By twin, then by fault.
    var captures: [String: [String: [Frame]]] = [:]

    struct Frame: Codable {
        /// Index into `symbols`.
        var symbol: Int?
        /// Index into `modules`.
        var module: Int?
        var kind: FrameKind?
        var own: Bool?
        /// Only for frames without a symbol.
        var offset: Address?
        var functionOffset: Address?

        private enum CodingKeys: String, CodingKey {
            case symbol = "s"
            case module = "m"
            case kind = "k"
            case own = "o"
            case offset = "at"
            case functionOffset = "in"
        }
    }

    static let path = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "Records/fault-twins.json")

    static func read() throws -> FaultRecord {
        try JSONDecoder().decode(FaultRecord.self, from: Data(contentsOf: path))
    }

    func write() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        try encoder.encode(self).write(to: Self.path)
    }

    /// - Parameter name: another name for a second run.
    mutating func add(
        _ twin: String,
        _ fault: String,
        _ frames: [StallReport.Frame],
        _ modules: [StallReport.Module],
        as name: String? = nil
    ) {
        captures[name ?? twin, default: [:]][fault] = frames.prefix(48).map { frame in
            Frame(
                symbol: frame.symbol.map { place(of: $0, in: &symbols) },
                module: frame.module.map { place(of: Self.plain(modules[$0], twin), in: &self.modules) },
                kind: frame.kind,
                own: frame.own ? true : nil,
                offset: frame.symbol == nil ? frame.offset : nil,
                functionOffset: frame.symbol == nil ? frame.functionOffset : nil
            )
        }
    }

    /// Without the folder, which is specific to the recording machine, and without the address. A server's builds
    /// have one name.
    private static func plain(_ module: StallReport.Module, _ twin: String) -> StallReport.Module {
        let name = module.path.split(separator: "/").last.map(String.init) ?? module.path
        let path = name == twin ? executable : "/srv/" + name
        return .init(path: path, buildID: module.buildID, loadBase: 0)
    }

    private static let executable = "/srv/shop"

    private func place<Value: Equatable>(of value: Value, in list: inout [Value]) -> Int {
        if let index = list.firstIndex(of: value) { return index }
        list.append(value)
        return list.count - 1
    }

    func frames(_ twin: String, _ fault: String) -> [StallReport.Frame]? {
        captures[twin]?[fault]?.map { frame in
            StallReport.Frame(
                kind: frame.kind,
                address: frame.offset ?? 0,
                module: frame.module,
                offset: frame.offset,
                symbol: frame.symbol.map { symbols[$0] },
                functionOffset: frame.functionOffset,
                own: frame.own ?? false
            )
        }
    }

    /// The names that a fingerprint is made from.
    func path(_ twin: String, _ fault: String) -> [String] {
        guard let frames = frames(twin, fault) else { return [] }
        return FaultPath(frames: frames, modules: modules, executable: Self.executable) {
            Fingerprint.SourceName(symbol: $0)
        }.names
    }

    func fingerprint(_ twin: String, _ fault: String) -> Fingerprint? {
        frames(twin, fault).map { frames in
            .make(kind: .blocked, fault: frames, modules: modules, executable: Self.executable)
        }
    }
}
