import Configuration
import Foundation
import StallDetection
import StallMonitor
import StallReports
import Synchronization
import Testing

@testable import StallMonitorService

@Suite("Configuration from a file and the environment")
struct ConfigurationTests {
    private func configuration(_ values: [AbsoluteConfigKey: ConfigValue]) async throws -> StallMonitor.Configuration {
        try await .init(config: ConfigReader(provider: InMemoryProvider(values: values)))
    }

    @Test("Without keys the defaults apply")
    func defaults() async throws {
        let read = try await configuration([:])
        let plain = StallMonitor.Configuration()
        #expect(read.rule == plain.rule && read.limits == plain.limits && read.directory == plain.directory)
        #expect(read.repeats == plain.repeats)
        #expect(
            read.enabled && read.reportsJobsLongerThan == nil && read.service == nil && read.ownCode == OwnCode()
                && read.captureSignal == 27
        )
    }

    @Test("A text that is empty is not set: the directory is the default one, and the server has its executable's name")
    func emptyTexts() async throws {
        let read = try await configuration([
            "directory": "", "service.name": "", "health.port": 0, "health.address": "", "logLevel": "",
        ])
        #expect(read.directory == StallMonitor.Configuration().directory && read.service == nil)
        #expect(read.health == .init(port: 0))
    }

    @Test("The warm-up of 'gate run' replaces the grace of a file, whichever is longer", arguments: [0, 1000, 9000])
    func warmUp(milliseconds: Int) async throws {
        let variable = StallMonitor.Configuration.startupGraceVariable
        let config = ConfigReader(providers: [
            EnvironmentVariablesProvider(environmentVariables: [variable: "\(milliseconds)"]),
            InMemoryProvider(values: ["stallMonitor.startupGraceMilliseconds": 5000]),
        ])
        let read = try await StallMonitor.Configuration(config: config.scoped(to: "stallMonitor"))
        #expect(read.startupGrace == .milliseconds(milliseconds))
    }

    @Test("Values that change while they are read are all the new ones")
    func changedMeanwhile() async throws {
        let provider = MutableInMemoryProvider(initialValues: ["tickMilliseconds": 20, "ticks": 3])
        // Between the two keys.
        let reporter = ChangingReporter(after: "tickMilliseconds") {
            provider.setValue(40, forKey: "tickMilliseconds")
            provider.setValue(6, forKey: "ticks")
        }
        let config = ConfigReader(provider: provider, accessReporter: reporter)
        let read = try await StallMonitor.Configuration(config: config)
        #expect(read.rule.tick == .milliseconds(40) && read.rule.ticks == 6)
    }

    @Test("Each key sets its value")
    func keys() async throws {
        let read = try await configuration([
            "enabled": false, "directory": "/var/stalls", "tickMilliseconds": 20, "ticks": 3, "limits.reports": 7,
            "repeated.turns": 7, "repeated.ticks": 2, "congested.ticks": 9, "limits.megabytes": 2,
            "repeats.windowSeconds": 5, "repeats.longestWindowSeconds": 40,
            "repeats.reportsPerMinute": 8, "repeats.burst": 4, "repeats.megabytesPerMinute": 3, "service.name": "shop",
            "service.version": "1.2", "captureSignal": 34, "followsLocks": false,
            "reportsJobsLongerThanMilliseconds": 900, "health.port": 8081, "health.failsAfterSeconds": 30,
            "abortsAfterSeconds": 90,
            "ownCode.modules": .init(.stringArray(["Shop"]), isSecret: false),
            "ownCode.libraries": .init(.stringArray(["Acme*"]), isSecret: false),
        ])
        #expect(!read.enabled && !read.followsLocks && read.directory == "/var/stalls")
        let rule = StallRule(
            tick: .milliseconds(20),
            ticks: 3,
            repeated: .init(turns: 7, ticks: 2),
            congested: .init(ticks: 9)
        )
        #expect(read.rule == rule && read.reportsJobsLongerThan == .milliseconds(900))
        let off = try await configuration(["repeated.enabled": false, "congested.enabled": false]).rule
        #expect(off.repeated == nil && off.congested == nil)
        #expect(read.limits.reports == 7 && read.limits.bytes == 2 << 20)
        let repeats = RepeatRule(
            window: .seconds(5),
            longestWindow: .seconds(40),
            reportsPerMinute: 8,
            burst: 4,
            bytesPerMinute: 3 << 20
        )
        #expect(read.repeats == repeats)
        #expect(read.service == ServiceIdentity(name: "shop", version: "1.2"))
        #expect(read.abortsAfter == .seconds(90))
        #expect(read.health == .init(port: 8081, address: "127.0.0.1", failsAfter: .seconds(30)))
        #expect(read.captureSignal == 34 && read.ownCode == OwnCode(modules: ["Shop"], libraries: ["Acme*"]))
    }

    @Test("The values for memory and for the monitor's own cost are set")
    func memoryAndCost() async throws {
        let read = try await configuration([
            "memory.reports": 5, "memory.megabytes": 3, "cost.processorPercent": 2.5, "cost.heldPercent": 0.5,
            "cost.processorBurstMilliseconds": 100, "cost.heldBurstMilliseconds": 10,
        ])
        #expect(read.memory == .init(reports: 5, bytes: 3 << 20))
        #expect(
            read.cost
                == .init(
                    processorShare: 0.025,
                    processorBurst: .milliseconds(100),
                    heldShare: 0.005,
                    heldBurst: .milliseconds(10)
                )
        )
    }

    @Test("A number out of range is an error that names the key and the range")
    func range() async throws {
        let wrong: [(AbsoluteConfigKey, ConfigValue, String)] = [
            ("ticks", 0, "ticks is 0; set it to 1 to 10000"),
            (
                "tickMilliseconds", .init(.int(.max), isSecret: false),
                "tickMilliseconds is 1000000000; set it to 1 to 60000"
            ),
            ("limits.megabytes", 0, "limits.megabytes is 0; set it to 1 to 1048576"),
            ("memory.megabytes", -5, "memory.megabytes is -5; set it to 1 to 1048576"),
            (
                "limits.megabytes", .init(.int(.max), isSecret: false),
                "limits.megabytes is 1099511627776; set it to 1 to 1048576"
            ),
            ("repeats.windowSeconds", -1, "repeats.windowSeconds is -1; set it to 0 to 86400"),
            ("captureSignal", 65, "captureSignal is 65; set it to 1 to 64"),
            ("cost.heldPercent", 0.0, "cost.heldPercent is 0; set it to 0.0001 to 100"),
        ]
        for (key, value, text) in wrong {
            let error = await #expect(throws: ConfigurationRangeError.self) { try await configuration([key: value]) }
            #expect(error?.description == text)
        }
    }

    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    @Test("The documentation's table equals the reader's list of keys")
    func documentation() throws {
        let folder = "Sources/StallMonitorService/StallMonitorService.docc/ConfigurationKeys.md"
        let text = try String(contentsOf: Self.root.appending(path: folder), encoding: .utf8)
        let table = text.components(separatedBy: "<!-- keys -->\n").last?
            .components(separatedBy: "<!-- end of the keys -->").first
        let made = ConfigurationOption.table
        #expect(table == made, "The article should have:\n\(made)")
    }

    @Test("The shipped file has exactly the existing keys, with the default values")
    func shippedKeys() throws {
        let text = try String(contentsOf: Self.root.appending(path: "config/stall-monitor.yaml"), encoding: .utf8)
        var scopes: [(indent: Int, name: String)] = []
        var found: [String: String?] = [:]
        for line in text.split(separator: "\n") {
            guard let match = line.wholeMatch(of: /( *)(# )?( *)([A-Za-z]+):(?: (.+))?/),
                !["true", "false"].contains(match.4)
            else { continue }
            let indent = match.1.count + match.3.count
            scopes.removeAll { $0.indent >= indent }
            scopes.append((indent, String(match.4)))
            guard let value = match.5 else { continue }
            let key = scopes.dropFirst().map(\.name).joined(separator: ".")
            found.updateValue(match.2 == nil ? String(value) : nil, forKey: key)
        }
        #expect(found.keys.sorted() == ConfigurationOption.all.map(\.key).sorted())
        for option in ConfigurationOption.all {
            guard let value = found[option.key] ?? nil else { continue }
            #expect(value == option.defaultText, "\(option.key)")
        }
    }

    @Test("A key is the property's name in code with its unit, and each property has a key")
    func sameNames() {
        var whole = StallMonitor.Configuration(service: ServiceIdentity(name: "shop"), health: .init(port: 0))
        whole.rule.congested = .init(ticks: 5)
        // For code and tests only.
        let withoutKey: Set = [
            "metadata", "details", "abortPatience", "lookupPatience", "noticeCapacity", "takesGraceOfEnvironment",
        ]
        let named = ConfigurationOption.all.map(\.key).filter { !$0.hasSuffix(".enabled") }.map { key in
            key.replacing(/(Milliseconds|Seconds)$/, with: "")
                .replacing("megabytes", with: "bytes").replacing("Percent", with: "Share")
        }
        // The log's level belongs to the service.
        #expect(Set(named) == Set(Self.properties(of: whole)).subtracting(withoutKey).union(["logLevel"]))
    }

    /// The paths of all values; those of `rule` have no prefix.
    private static func properties(of value: Any, below prefix: String = "") -> [String] {
        Mirror(reflecting: value).children.flatMap { child -> [String] in
            let mirror = Mirror(reflecting: child.value)
            let value: Any? = mirror.displayStyle == .optional ? mirror.children.first?.value : child.value
            let isGroup = value.map { Mirror(reflecting: $0).displayStyle == .struct && !($0 is Duration) } ?? false
            guard let name = child.label else { return [] }
            guard isGroup, let value else { return [prefix + name] }
            return properties(of: value, below: name == "rule" ? prefix : "\(prefix)\(name).")
        }
    }

    private static let wholeNumbers = ConfigurationOption.all.compactMap { option in
        if case .integer(let range) = option.form { (option.key, range) } else { nil }
    }

    @Test(
        "A whole number is accepted at both ends of its range, and refused beyond",
        arguments: wholeNumbers
    )
    func ranges(_ key: String, _ range: ClosedRange<Int>) async throws {
        let configKey = AbsoluteConfigKey(key.split(separator: ".").map(String.init))
        let read = { (number: Int) in
            var values: [AbsoluteConfigKey: ConfigValue] = ["health.port": 0]
            values[configKey] = .init(.int(number), isSecret: false)
            _ = try await configuration(values)
        }
        for number in [range.lowerBound, range.upperBound] { try await read(number) }
        for number in [range.lowerBound - 1, range.upperBound + 1] {
            let error = await #expect(throws: ConfigurationRangeError.self) { try await read(number) }
            #expect(error?.key == key && error?.range.hasSuffix("to \(range.upperBound)") == true, "\(number)")
        }
    }

    @Test("A value of the wrong form is an error, not the default")
    func wrongForm() async {
        await #expect(throws: (any Error).self) { try await configuration(["ticks": "five"]) }
    }

    @Test("The shipped file contains the defaults")
    func shippedFile() async throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let read = try await StallMonitor.Configuration.load(file: root.path + "/config/stall-monitor.yaml")
        #expect(read.rule == StallRule() && read.limits == ReportDirectory.Limits() && read.enabled)
        #expect(read.repeats == RepeatRule())
        #expect(read.memory == .init() && read.cost == .init())
    }

    @Test("A group that is given a value in place of its keys is an unknown key; one without a value is not")
    func groupWithValue() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "stall-monitor-groups-\(UUID()).yaml")
        defer { try? FileManager.default.removeItem(at: file) }
        let text = """
            stallMonitor:
              repeated: false
              health: 8081
              service: [shop]
              limits:
              memory: ~
              ticks: 3
            """
        try Data(text.utf8).write(to: file)
        let unknown = UnknownKeys(file: file.path)
        #expect(
            unknown.findNew() == [
                "repeated (did you mean repeated.enabled?)", "health (did you mean health.port?)",
                "service (did you mean service.name?)",
            ]
        )
        #expect(unknown.findNew().isEmpty)
    }

    @Test("A file is read; a missing one counts as empty; a broken one is an error")
    func files() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "stall-monitor-config-\(UUID())")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let file = directory.appending(path: "c.yaml")

        #expect(try await StallMonitor.Configuration.load(file: file.path).rule == StallRule())
        try Data("stallMonitor:\n  ticks: 9\n".utf8).write(to: file)
        #expect(try await StallMonitor.Configuration.load(file: file.path).rule.ticks == 9)
        try Data("stallMonitor: [".utf8).write(to: file)
        let error = await #expect(throws: (any Error).self) {
            try await StallMonitor.Configuration.load(file: file.path)
        }
        #expect(error.map { "\($0)".hasPrefix("\(file.path) cannot be used as a configuration file: ") } == true)
        // One that was just created, or in which everything is commented out.
        for text in ["", "# stallMonitor:\n#   ticks: 9\n", "---\n"] {
            try Data(text.utf8).write(to: file)
            let error = await #expect(throws: (any Error).self) {
                try await StallMonitor.Configuration.load(file: file.path)
            }
            #expect(error.map { "\($0)".contains("it has no keys; write 'stallMonitor:' into it") } == true)
        }
        try Data("stallMonitor:\n".utf8).write(to: file)
        #expect(try await StallMonitor.Configuration.load(file: file.path).rule == StallRule())
    }
}

/// Does something once, as soon as a key has been read.
final class ChangingReporter: AccessReporter {
    private let key: AbsoluteConfigKey
    private let change: Mutex<(@Sendable () -> Void)?>

    init(after key: AbsoluteConfigKey, change: @escaping @Sendable () -> Void) {
        self.key = key
        self.change = Mutex(change)
    }

    func report(_ event: AccessEvent) {
        guard event.metadata.key == key else { return }
        let change = change.withLock { change in
            defer { change = nil }
            return change
        }
        change?()
    }
}
