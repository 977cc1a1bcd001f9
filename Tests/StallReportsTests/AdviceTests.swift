import Testing

@testable import StallReading
@testable import StallReports

extension Advice {
    fileprivate static func ruleName(for report: StallReport) -> String? { rules.first { $0.fits(report) }?.name }
}

@Suite("Advice")
struct AdviceTests {
    /// A stall with one verdict and the fields that a rule may look at.
    struct Case: Sendable {
        let rule: String
        let verdict: Verdict
        var call: String?
        var function: String?
        var lock: LockKind?
        var descriptor: DescriptorKind?
        var hasOwner = false
        var throttled: Int64?

        var report: StallReport {
            var report = Sample.recovered()
            report.stacks[0].frames = AdviceTests.frames
            report.cause = .init(verdict: verdict)
            if call != nil || descriptor != nil {
                report.cause.systemCall = .init(number: 0, name: call)
                report.cause.systemCall?.descriptors = descriptor.map { [.init(number: 5, kind: $0)] }
            }
            if let lock {
                report.cause.lock = .init(kind: lock, address: 1, owner: hasOwner ? .init(id: 9) : nil)
            }
            report.cause.evidence = .init(processors: .init(throttledPeriods: throttled))
            if let function { report.stacks[0].frames[1].function = function }
            return report
        }
    }

    /// Names without symbols. The third is the server's own.
    private static let frames = [
        "clock_nanosleep", "usleep", "shop.Cart.total() -> Swift.Int", "swift_job_run", "main",
    ]
    .map { StallReport.Frame(address: 0x1000, module: $0.contains(".") ? 0 : 1, function: $0) }

    static let cases: [Case] = [
        Case(rule: "sqlite_busy", verdict: .blocked, call: "clock_nanosleep", function: "sqliteDefaultBusyCallback"),
        Case(
            rule: "wait_until_exit",
            verdict: .blocked,
            call: "ppoll",
            function: "Foundation.Process.waitUntilExit() -> ()"
        ),
        Case(rule: "node_child", verdict: .blocked, call: "epoll_pwait", function: "node::SyncProcessRunner::Spawn"),
        Case(rule: "node_file", verdict: .blocked, call: "openat", function: "node::fs::Open"),
        Case(rule: "python_lock", verdict: .blocked, call: "futex", function: "take_gil", lock: .condition),
        Case(rule: "java_monitor", verdict: .blocked, function: "ObjectMonitor::EnterI", lock: .condition),
        Case(rule: "java_sleep", verdict: .blocked, function: "JVM_Sleep", lock: .condition),
        Case(rule: "java_park", verdict: .blocked, function: "Unsafe_Park", lock: .condition),
        Case(rule: "child", verdict: .blocked, call: "wait4"),
        Case(rule: "fsync", verdict: .diskWait, call: "fdatasync"),
        Case(rule: "dns", verdict: .blocked, call: "poll", function: "getaddrinfo"),
        Case(
            rule: "semaphore_over_async",
            verdict: .blocked,
            function: "Dispatch.DispatchSemaphore.wait() -> ()",
            lock: .dispatchSemaphore
        ),
        Case(rule: "semaphore", verdict: .blocked, lock: .semaphore),
        Case(rule: "group", verdict: .blocked, lock: .dispatchGroup),
        Case(rule: "queue_sync", verdict: .blocked, lock: .dispatchQueue, hasOwner: true),
        Case(rule: "decoding", verdict: .onCPU, function: "Foundation.JSONDecoder.decode<A>(_:from:)"),
        Case(rule: "regex", verdict: .onCPU, function: "_StringProcessing.Processor.cycle() -> ()"),
        Case(rule: "file_lock", verdict: .blocked, call: "flock"),
        Case(rule: "sleep", verdict: .blocked, call: "clock_nanosleep"),
        Case(rule: "socket", verdict: .blocked, call: "recvfrom", descriptor: .socket),
        Case(rule: "pipe", verdict: .blocked, call: "read", descriptor: .pipe),
        Case(rule: "deadlock", verdict: .deadlock, lock: .mutex, hasOwner: true),
        Case(rule: "thread_end", verdict: .blocked, lock: .threadJoin, hasOwner: true),
        Case(rule: "other_loop", verdict: .blocked, lock: .portReply, hasOwner: true),
        Case(rule: "lock_owner", verdict: .blocked, lock: .mutex, hasOwner: true),
        Case(rule: "throttled", verdict: .starved, throttled: 3),
        Case(rule: "starved", verdict: .starved, throttled: 0),
        Case(rule: "on_cpu", verdict: .onCPU),
        Case(rule: "disk_wait", verdict: .diskWait),
        Case(rule: "waiting", verdict: .blocked),
        Case(rule: "paused", verdict: .paused),
        Case(rule: "unknown", verdict: .unknown),
    ]

    @Test("each rule matches the stall it is meant for", arguments: cases)
    func rules(_ one: Case) { #expect(Advice.ruleName(for: one.report) == one.rule) }

    @Test("every rule has a test case and a unique name")
    func complete() { #expect(Advice.rules.map(\.name) == Self.cases.map(\.rule)) }

    @Test(
        "a regular expression of another language is one, too",
        arguments: [
            "v8::internal::RegExpImpl::IrregexpExec", "sre_ucs1_match", "std::__detail::__regex_algo_impl",
            "regex_automata::meta::Regex::search",
        ]
    )
    func regularExpression(function: String) {
        #expect(Advice.ruleName(for: Case(rule: "regex", verdict: .onCPU, function: function).report) == "regex")
    }

    @Test("a stall that was only starved, or stopped from outside, is not blamed on what the code was at then")
    func outsideReasons() {
        for verdict in [Verdict.starved, .paused] {
            for one in [
                Case(rule: "", verdict: verdict, function: "Foundation.JSONDecoder.decode"),
                Case(rule: "", verdict: verdict, call: "fsync"),
                Case(rule: "", verdict: verdict, function: "Foundation.Process.waitUntilExit() -> ()"),
            ] {
                #expect(Advice.ruleName(for: one.report) == verdict.rawValue)
            }
        }
    }

    @Test(
        "SQLite sleeps because the database is busy, also if its functions have no names",
        arguments: [
            ("clock_nanosleep", "/usr/lib/libsqlite3.so.0.8.6", "sqlite_busy"),
            ("fcntl", "/usr/lib/libsqlite3.so.0.8.6", "file_lock"), ("clock_nanosleep", "/srv/shop", "sleep"),
        ]
    )
    func sleepOfLibrary(call: String, caller: String, rule: String) {
        var report = Case(rule: rule, verdict: .blocked, call: call).report
        report.modules.append(.init(path: caller, loadBase: 0x3000))
        report.stacks[0].frames[2].module = 2
        report.stacks[0].frames[2].function = nil
        #expect(Advice.ruleName(for: report) == rule)
    }

    @Test("Swift's means are advised only if the stack shows Swift: its functions, its runtime or its libraries")
    func language() throws {
        let means = ["Task", "@concurrent", "SwiftNIO", "URLSession"]
        let named = Self.cases.filter { ["sleep", "socket", "decoding", "on_cpu"].contains($0.rule) }
        #expect(named.count == 4)
        for one in named {
            var report = one.report
            func isForSwift() throws -> Bool {
                let remedy = try #require(Advice.of(report)).remedy
                return means.contains(where: remedy.contains)
            }
            #expect(try isForSwift(), "swift_job_run is on the stack")
            report.stacks[0].frames.removeAll { $0.function == "swift_job_run" }
            #expect(try !isForSwift(), "\(one.rule)")
            report.stacks[0].frames[2].symbol = "$s4shop4CartV5totalSiyF"
            #expect(try isForSwift())
            report.stacks[0].frames[2].symbol = nil
            report.modules.append(.init(path: "/usr/lib/swift/linux/libswift_Concurrency.so", loadBase: 0x3000))
            #expect(try isForSwift())
        }
    }

    @Test("what a process had noted of a stall when it ended is incomplete for no lack of permissions")
    func terminated() {
        var report = Case(rule: "unknown", verdict: .unknown).report
        report.state = .terminated
        #expect(Advice.of(report) != nil)
        report.stacks = []
        #expect(Advice.of(report) == nil)
        report.state = .recovered
        #expect(Advice.of(report) != nil)
    }

    @Test("missing names of a distribution's program are in a package; a server's own program has none")
    func missingNames() throws {
        var report = Sample.recovered()
        report.isProvisional = true
        let index = try #require(report.culpritFrame?.module)
        for path in ["/usr/bin/redis-server", "/usr/local/bin/shop", "/srv/shop"] {
            let isPackaged = path.hasSuffix("redis-server")
            report.modules[index].path = path
            let words = try #require(report.missingNames)
            #expect(words.contains("--symbols FILE' names them, with a FILE of the same build"))
            #expect(words.contains("DEBUGINFOD_URLS") == isPackaged, "\(path)")
            #expect(words.contains("-dbgsym") == isPackaged, "\(path)")
        }
    }

    @Test("of a program that has names of some functions it is not said that it has none")
    func someNames() throws {
        var report = Sample.recovered()
        report.isProvisional = true
        let module = try #require(report.culpritFrame?.module)
        #expect(try #require(report.missingNames).contains(" has symbols of only some functions here, so the others "))
        for stack in report.stacks.indices {
            for frame in report.stacks[stack].frames.indices where report.stacks[stack].frames[frame].module == module {
                report.stacks[stack].frames[frame].function = nil
                report.stacks[stack].frames[frame].symbol = nil
            }
        }
        #expect(try #require(report.missingNames).contains(" has no symbols here, so its functions have no names "))
    }

    @Test("a verdict that this version does not know gets no advice")
    func later() { #expect(Advice.of(Case(rule: "", verdict: Verdict(rawValue: "haunted")).report) == nil) }
}
